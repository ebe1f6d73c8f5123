// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What a line of the pictures may be (https://mermaid.js.org/syntax/flowchart.html): a part of the language in which no
// line can be misread. Labels contain nothing that could end them or that is drawn as something else.
var (
	pictureStart = regexp.MustCompile(`^flowchart (?:LR|TD)$`)
	pictureGroup = regexp.MustCompile(`^ {2}subgraph (\w+)\["[^"<>&#;]+"\]$`)
	pictureBox   = regexp.MustCompile(`^ {4}(\w+)\["[^"<>&#;]+"\]$`)
	pictureArrow = regexp.MustCompile(`^ {2}(\w+) --> (\w+)$`)
)

// faults lists what is wrong with a picture.
func faults(text string) []string {
	var out []string
	boxes, drawn, used := map[string]bool{}, map[string]bool{}, map[string]bool{}
	inside := false
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		fault := ""
		switch {
		case i == 0:
			if !pictureStart.MatchString(line) {
				fault = "is not a beginning"
			}
		case line == "  end" && inside:
			inside = false
		case !inside && pictureGroup.MatchString(line):
			name := pictureGroup.FindStringSubmatch(line)[1]
			if inside = true; drawn[name] {
				fault = "is there twice"
			}
			drawn[name] = true
		case inside && pictureBox.MatchString(line):
			name := pictureBox.FindStringSubmatch(line)[1]
			if drawn[name] {
				fault = "is there twice"
			}
			drawn[name], boxes[name] = true, true
		case !inside && pictureArrow.MatchString(line):
			for _, name := range pictureArrow.FindStringSubmatch(line)[1:] {
				if used[name] = true; !boxes[name] {
					fault = "starts or ends at no node"
				}
			}
		default:
			fault = "is not a line of a picture"
		}
		if fault != "" {
			out = append(out, line+" "+fault)
		}
	}
	if inside {
		out = append(out, "a group does not end")
	}
	for name := range boxes {
		if !used[name] {
			out = append(out, name+" has no arrow")
		}
	}
	return out
}

// Every picture is well formed.
func TestPictures(t *testing.T) {
	files, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range append(files, filepath.Join(root, "README.md")) {
		for _, m := range regexp.MustCompile("(?s)\n```mermaid\n(.*?)```\n").FindAllStringSubmatch(read(t, file), -1) {
			found++
			for _, fault := range faults(m[1]) {
				t.Errorf("%s: %s", file, fault)
			}
		}
	}
	if found == 0 {
		t.Error("there is no picture")
	}
}

func TestFaultsOfPicturesAreFound(t *testing.T) {
	const good = "flowchart LR\n  subgraph g[\"G\"]\n    a[\"A: x\"]\n    b[\"B?\"]\n  end\n  a --> b\n"
	if f := faults(good); len(f) > 0 {
		t.Errorf("a good picture: %v", f)
	}
	for from, to := range map[string]string{
		"flowchart LR": "flowchart", "  end\n": "", "a --> b": "a --> c", "  a --> b": "a -> b", "B?\"": "B? <b>\"",
		"    b[": "    a[", "  a --> b\n": "",
	} {
		if len(faults(strings.Replace(good, from, to, 1))) == 0 {
			t.Errorf("%q in place of %q: nothing was found", to, from)
		}
	}
}
