// SPDX-License-Identifier: Apache-2.0

package command

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Command lines of this program in documents: with its name anywhere, and without it where a code span begins with a
// command, as in the table of symptoms.
var (
	shownCommand = regexp.MustCompile("kubectl svcproxy ([a-z]+(?: [^`|;>&()\\n]*)?)")
	shownAlone   = regexp.MustCompile("`((?:trace|verify|mode|status|resolve|diff|dump|program|cleanup|explain) [^`\\n]+)`")
)

// Every command line of this program that a document shows is one that it takes: there are such a command and such
// flags. What the commands do is tested elsewhere, of README.md, docs/getting-started.md and docs/runbook.md as shown.
func TestDocumentedCommandsAreTaken(t *testing.T) {
	taken := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "node_modules" || name == "testdata" || len(name) > 2 && name[0] == '.'):
			return filepath.SkipDir
		case filepath.Ext(path) != ".md" || name == "CHANGELOG.md":
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, form := range []*regexp.Regexp{shownCommand, shownAlone} {
			for _, m := range form.FindAllStringSubmatch(string(data), -1) {
				taken++
				if wrong := notTaken(m[1]); wrong != "" {
					t.Errorf("%s: %s: %s", strings.TrimPrefix(path, "../../"), m[1], wrong)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if taken < 100 {
		t.Errorf("%d command lines were found", taken)
	}
}

// notTaken says why a command line is refused, whatever its arguments are; "" where it is not.
func notTaken(line string) string {
	line, _, _ = strings.Cut(line, " # ")
	words := strings.Fields(strings.TrimRight(line, ".,:"))
	for i, word := range words {
		if word == "N" || word == "…" {
			words[i] = "5"
		}
	}
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	root := newRoot(newEnvironment(streams, System{}))
	c, rest, err := root.Find(words)
	if err != nil {
		return err.Error()
	}
	if c == root {
		return "there is no command " + words[0]
	}
	// "`trace --compare`" in a sentence is without its value.
	if err := c.ParseFlags(rest); err != nil && !strings.HasPrefix(err.Error(), "flag needs an argument: --") {
		return err.Error()
	}
	return ""
}
