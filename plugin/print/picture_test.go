// SPDX-License-Identifier: Apache-2.0

package print

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// drawnGolden are the reports of which mermaid is kept.
var drawnGolden = []string{
	"good", "missing", "dropped", "bydesign", "unknown", "nodes", "fleet", "verify", "crowd-250",
	"hostile", "long", "observed", "affinity", "end-to-end", "end-to-end-client", "end-to-end-answer", "end-to-end-250",
}

func TestDrawnGolden(t *testing.T) {
	all := drawnReports()
	for _, name := range drawnGolden {
		golden(t, name+".mermaid", render(t, "mermaid", all[name], view(80)))
	}
}

// What the lines of a flowchart may be (https://mermaid.js.org/syntax/flowchart.html). A label holds nothing that could
// end it.
var mermaidLine = regexp.MustCompile(`^(flowchart LR` +
	`|  subgraph p\d+\["[^"]*"\]` +
	`|    direction LR` +
	`|    \w+(\["[^"]*"\]|\(\["[^"]*"\]\)|\("[^"]*"\)|\{\{"[^"]*"\}\}):::(plain|right|intended|unsure|off|broken)` +
	`|    \w+ (-->|-\.->)(\|"[^"]*"\|)? \w+` +
	`|  more\["[^"]*"\]:::plain` +
	`|  end` +
	`|  classDef \w+ [-#:,\w]+)$`)

func TestMermaid(t *testing.T) {
	tags := strings.NewReplacer("<br>", "")
	for name, r := range drawnReports() {
		out := render(t, "mermaid", r, view(80))
		vertices := map[string]bool{}
		for line := range strings.SplitSeq(strings.TrimSuffix(out, "\n"), "\n") {
			if !mermaidLine.MatchString(line) {
				t.Errorf("%s: %q is not a line of a flowchart", name, line)
			}
			if m := regexp.MustCompile(`^ {4}(\w+)[\[({]`).FindStringSubmatch(line); m != nil {
				if vertices[m[1]] {
					t.Errorf("%s: two vertices are called %s", name, m[1])
				}
				vertices[m[1]] = true
			}
			if m := regexp.MustCompile(`^ {4}(\w+) -.*> ?(?:\|.*\| )?(\w+)$`).FindStringSubmatch(line); len(m) == 3 &&
				(!vertices[m[1]] || !vertices[m[2]]) {
				t.Errorf("%s: %q leads from or to nothing", name, line)
			}
			for _, label := range regexp.MustCompile(`"[^"]*"`).FindAllString(line, -1) {
				if strings.ContainsAny(tags.Replace(label), "<>`%&\\") {
					t.Errorf("%s: in the label %s is something that is not text", name, label)
				}
			}
		}
	}
}

// The formats that draw are for the reports that have something to draw.
func TestFor(t *testing.T) {
	for _, format := range []string{"html", "mermaid"} {
		p, err := NewPrinter(format, "", true)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{report.KindTrace, report.KindVerify, report.KindMode, KindResolve, ""} {
			err := p.For(kind)
			if listed := slices.Contains(FormatsOf(kind), format); listed != (err == nil) {
				t.Errorf("-o %s for %q: listed %t, error %v", format, kind, listed, err)
			}
			if err != nil && !strings.Contains(err.Error(), "it may be table, wide, json") {
				t.Errorf("-o %s for %q: the error does not name what may be given: %v", format, kind, err)
			}
		}
	}
}
