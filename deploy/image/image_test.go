// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
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

// pack makes a Debian package of files and links (target "-> …"), with a line of control of its own.
func pack(t *testing.T, dir, name, version, control string, files map[string]string) string {
	t.Helper()
	root := filepath.Join(dir, name+".root")
	files["DEBIAN/control"] = "Package: " + name + "\nVersion: " + version + "\nArchitecture: amd64\n" +
		"Maintainer: test <test@svcproxy.test>\nDescription: test\n" + control
	for f, text := range files {
		f = filepath.Join(root, f)
		if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, link := strings.CutPrefix(text, "-> "); link {
			err = os.Symlink(to, f)
		} else {
			err = os.WriteFile(f, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	deb := filepath.Join(dir, name+".deb")
	if out, err := exec.Command("dpkg-deb", "--root-owner-group", "--build", root, deb).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return deb
}

// With a package's file goes its copyright file, with that the texts it names, and the list says where the sources are.
func TestNotices(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("there are no packages without dpkg-deb:", err)
	}
	dir := t.TempDir()
	debs := []string{
		pack(t, dir, "base-files", "12", "", map[string]string{
			"usr/share/common-licenses/GPL-2":    "the GPL 2",
			"usr/share/common-licenses/GPL-3":    "the GPL 3",
			"usr/share/common-licenses/GPL":      "-> GPL-3",
			"usr/share/common-licenses/LGPL":     "the LGPL",
			"usr/share/doc/base-files/copyright": "none of ours",
		}),
		pack(t, dir, "tool", "1:2.0-3+b1", "Source: tools (1:2.0-3)\n", map[string]string{
			"sbin/tool":                    "text",
			"usr/share/doc/tool/copyright": "See `/usr/share/common-licenses/GPL-2'. Or /usr/share/common-licenses/GPL.",
			"usr/share/doc/tool/changelog": "long",
		}),
		pack(t, dir, "libtool1", "2.0-3", "Source: tools\n", map[string]string{
			"usr/lib/data": "text", "usr/share/doc/libtool1": "-> tool",
		}),
		pack(t, dir, "other", "1", "", map[string]string{
			"usr/lib/other": "text", "usr/share/doc/other/copyright": "/usr/share/common-licenses/LGPL",
		}),
		pack(t, dir, "without", "1", "", map[string]string{"usr/lib/without": "text"}),
		pack(t, dir, "unknown", "1", "", map[string]string{
			"usr/lib/unknown": "text", "usr/share/doc/unknown/copyright": "/usr/share/common-licenses/None-1.",
		}),
	}
	all, err := unpack(debs)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := prune(all, []string{"/usr/sbin/tool", "/usr/lib/data"}, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	if err := addNotices(kept, all); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"usr/lib/data", "usr/sbin/tool",
		"usr/share/common-licenses/GPL", "usr/share/common-licenses/GPL-2", "usr/share/common-licenses/GPL-3",
		"usr/share/doc/SOURCES", "usr/share/doc/libtool1", "usr/share/doc/tool/copyright",
	}
	if got := slices.Sorted(maps.Keys(kept)); !slices.Equal(got, want) {
		t.Errorf("kept %q, want %q", got, want)
	}
	const list = `The programs and libraries of Debian in this image, as Debian built them, and their sources.
The licences are in /usr/share/doc/*/copyright and /usr/share/common-licenses/.

libtool1 2.0-3
    source: tools 2.0-3
    https://snapshot.debian.org/package/tools/2.0-3/
tool 1:2.0-3+b1
    source: tools 1:2.0-3
    https://snapshot.debian.org/package/tools/1:2.0-3/
`
	if got := string(kept[sources].data); got != list {
		t.Errorf("the sources are\n%s\nwant\n%s", got, list)
	}
	for file, want := range map[string]string{
		"usr/lib/without": "without has no copyright file",
		"usr/lib/unknown": "the licence of unknown: usr/share/common-licenses/None-1 is in no package",
	} {
		if err := addNotices(tree{file: all[file]}, all); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", file, err, want)
		}
	}
}

// What is taken is what apt would install, of each package one version, whatever else was downloaded.
func TestPlanned(t *testing.T) {
	got := planned(`NOTE: This is only a simulation!
Inst libcap2 (1:2.66-4+deb12u3+b1 Debian-Security:12/stable-security [amd64])
Inst iptables:arm64 (1.8.9-2 Debian:12.11/stable [arm64])
Inst debconf (1.5.82 Debian:12.11/stable [all]) []
Conf libcap2 (1:2.66-4+deb12u3+b1 Debian-Security:12/stable-security [amd64])
`)
	want := []string{"debconf_1.5.82_all.deb", "iptables_1.8.9-2_arm64.deb", "libcap2_1%3a2.66-4+deb12u3+b1_amd64.deb"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
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
		o := options{
			output: filepath.Join(dir, name), tag: "example.test/x:v1", archs: []string{"amd64", "arm64"},
			add: []string{file + ":/bin/program", "link=program:/bin/alias"}, entrypoint: "/bin/program",
		}
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
		"-o x -t y -arch vax":             `"vax" is not an architecture: use amd64 or arm64`,
		"-o x -t y -arch amd64 -add here": "-add here is not FILE:PATH",
		"-o x -t y more":                  `"more" is one argument too many`,
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
	o := options{
		output: filepath.Join(dir, "x.tar"), tag: tag, archs: []string{"amd64", "arm64"},
		add: []string{file + ":/bin/program"}, entrypoint: "/bin/program", push: true,
	}
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
