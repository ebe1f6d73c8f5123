// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func TestPrune(t *testing.T) {
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Skip("there is no ELF file to read:", err)
	}
	needed, err := loads(program)
	if err != nil {
		t.Fatal(err)
	}
	all := tree{
		"usr/sbin/tool":     {data: []byte("text"), mode: 0o755},
		"usr/sbin/alias":    {link: "tool"},
		"usr/sbin/absolute": {link: "/sbin/tool"},
		"usr/sbin/choice":   {link: "/etc/alternatives/choice"},
		"usr/sbin/broken":   {link: "nowhere"},
		"usr/share/doc/x":   {data: []byte("no need")},
	}
	for _, tt := range []struct {
		patterns []string
		want     []string
		err      string
	}{
		{[]string{"/usr/sbin/tool"}, []string{"usr/sbin/tool"}, ""},
		{[]string{"/usr/sbin/a*"}, []string{"usr/sbin/absolute", "usr/sbin/alias", "usr/sbin/tool"}, ""},
		{[]string{"/usr/sbin/none"}, nil, "/usr/sbin/none: no package has such a file"},
		{[]string{"/usr/sbin/broken"}, nil, "usr/sbin/nowhere is in no package, and usr/sbin/broken needs it"},
		{[]string{"/usr/sbin/choice"}, nil, "is an alternative"},
	} {
		got, err := prune(all, tt.patterns, "amd64")
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%v: %v, want %q", tt.patterns, err, tt.err)
		} else if names := slices.Sorted(maps.Keys(got)); err == nil && !slices.Equal(names, tt.want) {
			t.Errorf("%v: %v, want %v", tt.patterns, names, tt.want)
		}
	}
	// What a program loads comes with it, or is missed.
	all["usr/bin/program"] = &entry{data: program}
	if _, err := prune(all, []string{"/usr/bin/program"}, "amd64"); (err == nil) != (len(needed) == 0) {
		t.Errorf("a program that loads %v: %v", needed, err)
	}
	for _, n := range needed {
		if !strings.Contains(n, "/") {
			n = "usr/lib/x86_64-linux-gnu/" + n
		}
		all[merged(strings.TrimPrefix(n, "/"))] = &entry{data: []byte("a library")}
	}
	if got, err := prune(all, []string{"/usr/bin/program"}, "amd64"); err != nil || len(got) != len(needed)+1 {
		t.Errorf("kept %v: %v", slices.Sorted(maps.Keys(got)), err)
	}
}

// The same files make the same bytes.
func TestReproducible(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "program")
	if err := os.WriteFile(file, []byte("binary"), 0o600); err != nil {
		t.Fatal(err)
	}
	var archives [][]byte
	for _, name := range []string{"a.tar", "b.tar"} {
		o := options{output: filepath.Join(dir, name), tag: "example.test/x:v1", archs: []string{"amd64", "arm64"}, add: []string{file + ":/bin/program", "link=program:/bin/alias"}, entrypoint: "/bin/program"}
		if err := build(o); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(o.output)
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, data)
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two builds differ")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("left beside the archives: %v, %v", entries, err)
	}
}

func TestBadInput(t *testing.T) {
	for args, want := range map[string]string{
		"":                                "are needed",
		"-o x -t y -arch vax":             `"vax" is no architecture: amd64 and arm64 are`,
		"-o x -t y -arch amd64 -add here": "-add here is not FILE:PATH",
		"-o x -t y more":                  `"more" is one word too many`,
	} {
		if err := run(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// What is pushed is, digest for digest, what the archive holds; the registry has the image of each architecture.
func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "program")
	if err := os.WriteFile(file, []byte("binary"), 0o600); err != nil {
		t.Fatal(err)
	}
	tag := strings.TrimPrefix(server.URL, "http://") + "/svcproxy/x:v1"
	o := options{output: filepath.Join(dir, "x.tar"), tag: tag, archs: []string{"amd64", "arm64"}, add: []string{file + ":/bin/program"}, entrypoint: "/bin/program", push: true}
	if err := build(o); err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(tag)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var archs []string
	for _, m := range manifest.Manifests {
		archs = append(archs, m.Platform.Architecture)
		img, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if layers, err := img.Layers(); err != nil || len(layers) != 1 {
			t.Errorf("%s: %d layers, %v", m.Platform, len(layers), err)
		}
	}
	if !slices.Equal(archs, o.archs) {
		t.Errorf("the registry has it for %v", archs)
	}
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	archive, err := os.ReadFile(o.output)
	if err != nil || !bytes.Contains(archive, []byte(digest.String())) {
		t.Errorf("the archive does not hold %s: %v", digest, err)
	}

	o.tag = "no registry/x:v1"
	if err := build(o); err == nil || !strings.Contains(err.Error(), "push: ") {
		t.Errorf("pushed to nowhere: %v", err)
	}
}
