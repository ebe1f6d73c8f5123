// SPDX-License-Identifier: Apache-2.0

package command

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// content writes a file.
type content func(w io.Writer)

func text(s string) content { return func(w io.Writer) { io.WriteString(w, s) } } //nolint:errcheck // by the writer

// times repeats a line with its number.
func times(n int, head, line, tail string) content {
	return func(w io.Writer) {
		io.WriteString(w, head) //nolint:errcheck // checked where the writer is flushed
		for i := range n {
			if strings.Contains(line, "%") {
				fmt.Fprintf(w, line, i)
			} else {
				io.WriteString(w, line) //nolint:errcheck // as above
			}
		}
		io.WriteString(w, tail) //nolint:errcheck // as above
	}
}

// gigabyte is 1 GB of one byte, compressed.
func gigabyte(c byte) content { return members(64, bytes.Repeat([]byte{c}, 16<<20)) }

// members is the same data n times, compressed: so many members of gzip, as to compress all of it takes long.
func members(n int, data []byte) content {
	one := sync.OnceValue(func() []byte { return written(zipped(data)) })
	return func(w io.Writer) {
		for range n {
			w.Write(one()) //nolint:errcheck // checked where the writer is flushed
		}
	}
}

func zipped(data []byte) content {
	return func(w io.Writer) {
		z := gzip.NewWriter(w)
		z.Write(data) //nolint:errcheck // Close says so, too
		if err := z.Close(); err != nil {
			panic(err)
		}
	}
}

func written(c content) []byte {
	var b bytes.Buffer
	c(&b)
	return b.Bytes()
}

// without is the example with files added, and without those of the names in gone.
func with(t *testing.T, files map[string]content, gone ...string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(broken)); err != nil {
		t.Fatal(err)
	}
	for _, name := range gone {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		w := bufio.NewWriter(f)
		c(w)
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// replaced is the example with one file in another's place.
func replaced(old, name string, c content) func(t *testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		return with(t, map[string]content{name: c}, old)
	}
}

// added is the example with one file more.
func added(name string, c content) func(t *testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		return with(t, map[string]content{name: c})
	}
}

// changed is the example with something else in the place of a file.
func changed(name string, do func(path string) error) func(t *testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		dir := with(t, nil, name)
		if err := do(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
}

// archive is a .tar.gz of the example and of what more writes.
func archive(more func(w *tar.Writer)) func(t *testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.AddFS(os.DirFS(broken)); err != nil {
			t.Fatal(err)
		}
		more(w)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return file(t, zipped(b.Bytes()))
	}
}

// file writes a file of any kind.
func file(t *testing.T, c content) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snap.tar.gz")
	if err := os.WriteFile(path, written(c), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// member writes a member of an archive.
func member(h *tar.Header, data string) func(w *tar.Writer) {
	return func(w *tar.Writer) {
		h.Mode, h.Size = 0o600, int64(len(data))
		if err := w.WriteHeader(h); err != nil {
			panic(err)
		}
		if _, err := io.WriteString(w, data); err != nil {
			panic(err)
		}
	}
}

// blocks are members of an archive without its end, n in number.
func blocks(n int, name string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range n {
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf(name, i), Typeflag: tar.TypeReg, Mode: 0o600}); err != nil {
			panic(err)
		}
	}
	return b.Bytes()
}

// sparse packs a file of 8 GB without a byte in it.
func sparse(format string) func(t *testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		dir := with(t, nil)
		if err := os.Truncate(filepath.Join(dir, saveFile), 0); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(dir, saveFile), 8<<30); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "snap.tar.gz")
		cmd := exec.CommandContext(t.Context(), "tar", "-C", dir, "--sparse", "--format="+format, "-czf", out, ".")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return out
	}
}
