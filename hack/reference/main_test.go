// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const dir = "../../docs/commands"

// The pages in the tree are those of the commands as they are now.
func TestPagesAreCurrent(t *testing.T) {
	t.Setenv("HOME", "/home/someone") // which no page says
	want, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if names := slices.Sorted(maps.Keys(want)); !slices.Equal(got, names) {
		t.Errorf("%s has %v, want %v: run make docs", dir, got, names)
	}
	for name, text := range want {
		page, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(page) != text {
			t.Errorf("%s is not current (%v): run make docs", name, err)
		}
		if strings.Contains(text, "/home/") {
			t.Errorf("%s holds a path of the machine that wrote it", name)
		}
	}
}

// What is no page any more goes, and what is not a page stays.
func TestRun(t *testing.T) {
	to := t.TempDir()
	for _, name := range []string{"kubectl_svcproxy_gone.md", "kubectl_svcproxy_trace.md", "picture.svg"} {
		if err := os.WriteFile(filepath.Join(to, name), []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := run([]string{to}); err != nil {
		t.Fatal(err)
	}
	want, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	want["picture.svg"] = "old"
	entries, err := os.ReadDir(to)
	if err != nil || len(entries) != len(want) {
		t.Errorf("there are %v, %v", entries, err)
	}
	for name, text := range want {
		if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(got) != text {
			t.Errorf("%s: %v\n%s", name, err, got)
		}
	}
	if run(nil) == nil || run([]string{filepath.Join(to, "none")}) == nil {
		t.Error("it writes to nowhere")
	}
}
