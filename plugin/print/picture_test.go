// SPDX-License-Identifier: Apache-2.0

package print

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"encoding/json"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// drawnGolden are the reports of which mermaid and dot are kept.
var drawnGolden = []string{"good", "missing", "dropped", "bydesign", "unknown", "nodes", "fleet", "verify", "crowd-250", "hostile", "long", "observed", "affinity"}

func TestDrawnGolden(t *testing.T) {
	all := drawnReports()
	for _, name := range drawnGolden {
		golden(t, name+".mermaid", render(t, "mermaid", all[name], view(80)))
		golden(t, name+".dot", render(t, "dot", all[name], view(80)))
	}
}

// What the lines of a flowchart may be (https://mermaid.js.org/syntax/flowchart.html). A label holds nothing that could end it.
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
				t.Errorf("%s: %q is no line of a flowchart", name, line)
			}
			if m := regexp.MustCompile(`^ {4}(\w+)[\[({]`).FindStringSubmatch(line); m != nil {
				if vertices[m[1]] {
					t.Errorf("%s: two vertices are called %s", name, m[1])
				}
				vertices[m[1]] = true
			}
			if m := regexp.MustCompile(`^ {4}(\w+) -.*> ?(?:\|.*\| )?(\w+)$`).FindStringSubmatch(line); len(m) == 3 && (!vertices[m[1]] || !vertices[m[2]]) {
				t.Errorf("%s: %q leads from or to nothing", name, line)
			}
			for _, label := range regexp.MustCompile(`"[^"]*"`).FindAllString(line, -1) {
				if strings.ContainsAny(tags.Replace(label), "<>`%&\\") {
					t.Errorf("%s: in the label %s is something that is no text", name, label)
				}
			}
		}
	}
}

// Graphviz reads what is written, and reads in it the names that the report has.
func TestDot(t *testing.T) {
	if _, err := exec.LookPath("dot"); err != nil {
		t.Skip("Graphviz's dot is not installed (hack/install-test-deps.sh installs it)")
	}
	for name, r := range drawnReports() {
		cmd := exec.Command("dot", "-Tdot_json")
		cmd.Stdin = strings.NewReader(render(t, "dot", r, view(80)))
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil || stderr.Len() > 0 {
			t.Errorf("%s: dot says %v %s", name, err, stderr.String())
			continue
		}
		var g struct {
			Objects []struct{ Name, Label string }
			Edges   []struct{ Tail, Head int }
		}
		if err := json.Unmarshal(out, &g); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tx := &text{view: view(80), report: r}
		want := tx.graph()
		vertices, edges := 0, 0
		for i := range want.clusters {
			vertices += len(want.clusters[i].vertices) + 1 // the cluster itself
			edges += len(want.clusters[i].edges)
		}
		if want.more != "" {
			vertices++
		}
		if len(g.Objects) != vertices || len(g.Edges) != edges {
			t.Errorf("%s: dot reads %d objects and %d edges, want %d and %d", name, len(g.Objects), len(g.Edges), vertices, edges)
		}
	}
}

// Whatever is escaped reads as it was.
func TestDotEscapes(t *testing.T) {
	if _, err := exec.LookPath("dot"); err != nil {
		t.Skip("Graphviz's dot is not installed (hack/install-test-deps.sh installs it)")
	}
	for _, s := range []string{`plain`, `a "quoted" name`, `back\slash \N \l`, `&lt; &amp; <b>`, `[::1]:80 → {x|y}`, `\`} {
		// What dot draws in SVG is what a person reads.
		cmd := exec.Command("dot", "-Tsvg")
		cmd.Stdin = strings.NewReader("digraph { a [label=" + dotLabel(s) + "] }\n")
		drawn, err := cmd.Output()
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		if words := textOf(t, string(drawn)); !strings.Contains(strings.ReplaceAll(words, "\u00a0", " "), s) {
			t.Errorf("%q is drawn as %q", s, words)
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, tt := range []struct {
		in   []int
		want string
	}{
		{nil, ""}, {[]int{3}, "3"}, {[]int{2, 3}, "2,3"}, {[]int{1, 2, 3}, "1-3"}, {[]int{1, 3, 4, 5, 9}, "1,3-5,9"}, {[]int{1, 3, 5, 7, 9}, "1,3,5,7,…"},
	} {
		if got := numbers(tt.in); got != tt.want {
			t.Errorf("numbers(%v) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

// A chain is to blame if a finding points at one of its rules or its policy, and not if its name only begins with the same letters.
func TestBlame(t *testing.T) {
	p := &report.Path{
		Verdict: report.Mismatch, Expected: report.Expected{Action: "DNAT"},
		Actual: report.Actual{
			Outcomes:  []report.Outcome{{Action: "Drop", Share: 1, Where: "filter FORWARD policy"}},
			Uncertain: []report.Uncertain{{Where: "filter CNI-X rule 2"}},
		},
		Findings: []report.Finding{
			{Severity: report.Error, Evidence: []string{"nft ip kube-proxy services rule 3: x: y"}},
			{Severity: report.Warn, Evidence: []string{"nat KUBE-SVC-A"}},
			{Severity: report.Info, Evidence: []string{"nat KUBE-SVC-B rule 1: x"}},
		},
	}
	places := blamed(p)
	for chain, want := range map[string]state{
		"filter FORWARD": broken, "filter FORWARD2": right, "filter FORW": right, "filter CNI-X": unsure,
		"ip kube-proxy services": broken, "nat KUBE-SVC-A": off, "nat KUBE-SVC-AB": right, "nat KUBE-SVC-B": right,
	} {
		if got := blame(places, chain); got != want {
			t.Errorf("%s: state %d, want %d", chain, got, want)
		}
	}
}

// The formats that draw are for the reports that have something to draw.
func TestFor(t *testing.T) {
	for _, format := range []string{"html", "mermaid", "dot"} {
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
