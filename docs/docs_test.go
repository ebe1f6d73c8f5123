// SPDX-License-Identifier: Apache-2.0

// Package docs checks the documentation against the code and against itself.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = ".."

// Every link to a file or a section of this repository has a target.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, path := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, path), -1) {
			file, section, _ := strings.Cut(m[1], "#")
			if strings.Contains(m[1], "://") {
				continue
			}
			to := path
			if file != "" {
				to = filepath.Join(filepath.Dir(path), filepath.FromSlash(file))
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
			} else if section != "" && !anchors(t, to)[section] {
				t.Errorf("%s links to %s: there is no such section", path, m[1])
			}
		}
	}
}

// pages returns the names of all Markdown files of the repository.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() != ".." && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			all = append(all, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("there is no Markdown file")
	}
	return all
}

// anchors are the sections of a Markdown file, by the names that its headings get.
func anchors(t *testing.T, name string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	odd := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for line := range strings.Lines(read(t, name)) {
		if heading := strings.TrimLeft(line, "#"); heading != line {
			out[strings.ReplaceAll(odd.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), ""), " ", "-")] = true
		}
	}
	return out
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
