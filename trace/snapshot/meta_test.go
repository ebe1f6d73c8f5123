// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

func TestMeta(t *testing.T) {
	want := Meta{Version: Version, CreatedAt: time.Date(2026, 11, 20, 19, 38, 0, 0, time.UTC), Tool: "a tool"}
	var b bytes.Buffer
	node := NewNode("n", map[string][]byte{"iptables-save.txt": []byte("# nothing\n")})
	if err := Write(&b, want, &Cluster{}, []*Node{node}); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "s.tar.gz")
	if err := os.WriteFile(archive, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("nodes/n/iptables-save.txt", "# nothing\n")
	meta := func(name string) (Meta, error) {
		t.Helper()
		s, err := Open(name)
		if err != nil {
			t.Fatal(err)
		}
		return s.Meta()
	}
	if got, err := meta(archive); err != nil || got != want {
		t.Errorf("archive: got %+v, %v", got, err)
	}
	if _, err := meta(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the file: got %v", err)
	}
	write(metaName, `{"version":1,"createdAt":"2026-11-20T19:38:00Z","tool":"a tool"}`)
	if got, err := meta(dir); err != nil || got != want {
		t.Errorf("directory: got %+v, %v", got, err)
	}
	write(metaName, "{")
	if _, err := meta(dir); err == nil {
		t.Error("half a file was read")
	}
	write(metaName, string(make([]byte, maxMeta+1)))
	if _, err := meta(dir); !bounds.Is(err) {
		t.Errorf("a large file: got %v", err)
	}
}

// Of an archive that tar has made of a directory, and of a directory with that of the snapshot in it, the time is
// known, too: it was said that the snapshot does not say when it was made.
func TestMetaOfArchivesMadeByHand(t *testing.T) {
	want := Meta{Version: Version, CreatedAt: time.Date(2026, 11, 20, 19, 38, 0, 0, time.UTC), Tool: "a tool"}
	outer := t.TempDir()
	dir := filepath.Join(outer, "evidence")
	for name, text := range map[string]string{
		"nodes/n/iptables-save.txt": "# nothing\n",
		metaName:                    `{"version":1,"createdAt":"2026-11-20T19:38:00Z","tool":"a tool"}`,
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, from := range map[string]string{"top.tar": outer, "flat.tar": dir} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := errors.Join(w.AddFS(os.DirFS(from)), w.Close()); err != nil {
			t.Fatal(err)
		}
		archive := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(archive, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{archive, from} {
			s, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := s.Meta(); err != nil || got != want {
				t.Errorf("%s: got %+v, %v", path, got, err)
			}
		}
	}
}
