// SPDX-License-Identifier: Apache-2.0

package print

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

func renderDiff(t *testing.T, format string, d *report.Diff) string {
	t.Helper()
	p, err := NewPrinter(format, "", true)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := p.Diff(streamTo(&b), d, View{}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// endpointsMoved is a capture after twenty endpoints of a Service have got other addresses.
func endpointsMoved() *report.Diff {
	n := report.NodeDiff{
		Before: report.ComparedNode{Node: "worker-1", Verdict: report.Match, Mode: nftMode},
		After:  report.ComparedNode{Node: "worker-1", Verdict: report.Match, Mode: nftMode},
	}
	var gained, lost []string
	for i := range 20 {
		gained, lost = append(gained, fmt.Sprintf("10.244.9.%d:8080", i)), append(lost, fmt.Sprintf("10.244.1.%d:8080", i))
		n.Changes = append(n.Changes,
			report.Change{
				Part: "rules", Place: fmt.Sprintf("IPv4 nat KUBE-SEP-OLD%d", i), Change: report.Removed, Before: "-j DNAT",
				Entries: 2,
			},
			report.Change{
				Part: "rules", Place: fmt.Sprintf("IPv4 nat KUBE-SEP-NEW%d", i), Change: report.Added, After: "-j DNAT",
				Entries: 2,
			},
			report.Change{
				Part: "rules", Place: "IPv4 nat KUBE-SVC-WEB", Change: report.Added, Rule: i,
				After: fmt.Sprint("-j KUBE-SEP-NEW", i),
			},
		)
	}
	for _, o := range origins {
		n.Paths = append(n.Paths, report.PathChange{
			Service: &report.ObjectRef{Namespace: "shop", Name: "web"}, Frontend: clusterIP, Origin: o,
			Before: &report.PathSide{Verdict: report.Match}, After: &report.PathSide{Verdict: report.Match},
			Gained: gained, Lost: lost,
		})
	}
	return &report.Diff{
		APIVersion: report.APIVersion, Kind: report.KindDiff, Compares: report.ComparesCaptures,
		Before: &report.Source{Snapshot: "a", MadeAt: "2026-11-20T19:38:00Z"}, After: &report.Source{Snapshot: "b"},
		Nodes: []report.NodeDiff{n}, Summary: report.DiffSummary{Nodes: 1, Paths: 2, Rules: 60},
	}
}

// Twenty endpoints that changed are a few lines, and wide has them all.
func TestDiffIsFolded(t *testing.T) {
	const want = `Before   snapshot a  made 2026-11-20T19:38:00Z
After    snapshot b  it does not say when it was made

Node     worker-1  Match, iptables (nft) v1.36.3

PATHS
  Match → Match  shop/web: ClusterIP 10.96.21.191:80 from pod, ClusterIP 10.96.21.191:80 from node
      + connections to 10.244.9.0:8080, 10.244.9.1:8080, 10.244.9.2:8080 and 17 more
      - connections to 10.244.1.0:8080, 10.244.1.1:8080, 10.244.1.2:8080 and 17 more

RULES
  IPv4 nat KUBE-SVC-WEB
  + -j KUBE-SEP-NEW0
  + rule 1: -j KUBE-SEP-NEW1
  + rule 2: -j KUBE-SEP-NEW2
  + rule 3: -j KUBE-SEP-NEW3
  + rule 4: -j KUBE-SEP-NEW4
  + rule 5: -j KUBE-SEP-NEW5
  - IPv4 nat KUBE-SEP-OLD0  (2) -j DNAT
  + IPv4 nat KUBE-SEP-NEW0  (2) -j DNAT
  - IPv4 nat KUBE-SEP-OLD1  (2) -j DNAT
  + IPv4 nat KUBE-SEP-NEW1  (2) -j DNAT
  - IPv4 nat KUBE-SEP-OLD2  (2) -j DNAT
  + IPv4 nat KUBE-SEP-NEW2  (2) -j DNAT
  … and 48 more (-o wide shows them)

DIFFERENT: 2 paths, 60 differences of rules
`
	d := endpointsMoved()
	if got := renderDiff(t, "table", d); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	wide := renderDiff(t, "wide", d)
	for _, text := range []string{"KUBE-SEP-OLD19", "KUBE-SEP-NEW19", "10.244.9.19:8080", "rule 19: -j KUBE-SEP-NEW19"} {
		if !strings.Contains(wide, text) {
			t.Errorf("-o wide has no %s", text)
		}
	}
	if got := renderDiff(t, "name", d); got != "node/worker-1\n" {
		t.Errorf("names: %q", got)
	}
}

// The last line says what the exit code says.
func TestDiffConclusion(t *testing.T) {
	for _, x := range []struct {
		d    report.Diff
		want string
	}{
		{report.Diff{Summary: report.DiffSummary{Nodes: 2}}, "SAME: nothing that is compared differs on 2 nodes"},
		{
			report.Diff{Summary: report.DiffSummary{Nodes: 1, Others: 3, Objects: 1}},
			"SAME: no path and no rule that is compared differs; 3 differences of settings, routes and the like, " +
				"1 difference of API objects",
		},
		{
			report.Diff{Summary: report.DiffSummary{
				Nodes: 1, Paths: 5, VerdictChanges: report.VerdictChanges{Broke: 2, Repaired: 1, Known: 1, Unclear: 1},
			}},
			"DIFFERENT: 5 paths (2 broke, 1 repaired, 1 now known, 1 no longer known)",
		},
		{
			report.Diff{
				Summary: report.DiffSummary{Nodes: 1},
				Nodes:   []report.NodeDiff{{NotCompared: []report.NotCompared{{Part: "pods", Why: "not collected"}}}},
			},
			"SAME: no path and no rule that is compared differs; 1 part not compared",
		},
		{report.Diff{OnlyAfter: []string{"worker-9"}}, "DIFFERENT: 1 node in one snapshot only"},
		{
			report.Diff{Summary: report.DiffSummary{NotJudged: 1}},
			"UNKNOWN: no path and no rule that is compared differs; 1 node not inspected",
		},
	} {
		got := strings.TrimSpace(renderDiff(t, "table", &x.d))
		if got = got[strings.LastIndexByte(got, '\n')+1:]; got != x.want {
			t.Errorf("got %q, want %q", got, x.want)
		}
	}
}

// Every text of a diff may come from a hostile node.
func TestDiffIsClean(t *testing.T) {
	const evil = "x\x1b[2J\ny\u202e"
	d := &report.Diff{
		APIVersion: report.APIVersion, Kind: report.KindDiff, Compares: report.ComparesCaptures,
		Before: &report.Source{Snapshot: evil}, After: &report.Source{Snapshot: evil},
		OnlyBefore: []string{evil},
		Objects:    []report.Change{{Part: "Services", Place: evil, Change: report.Added, After: evil}},
		Nodes: []report.NodeDiff{{
			Before:   report.ComparedNode{Node: evil, Error: evil, Mode: &report.Mode{Actual: evil, KubeProxyVersion: evil}},
			After:    report.ComparedNode{Node: evil},
			Findings: []report.FindingChange{{Change: report.Added, Code: evil, Subject: evil, Message: evil}},
			Paths: []report.PathChange{{
				Service: &report.ObjectRef{Namespace: evil, Name: evil}, Frontend: report.Frontend{Kind: evil, Address: evil},
				Came: []report.FindingChange{{Code: evil, Severity: report.Error, Subject: evil}}, Gained: []string{evil},
			}},
			Changes: []report.Change{
				{Part: "rules", Place: evil, Change: report.Added, After: evil, Entries: 1},
				{Part: "settings", Place: evil, Change: report.Changed, Before: evil, After: evil},
			},
			NotCompared: []report.NotCompared{{Part: evil, Why: evil}},
		}},
	}
	for _, format := range []string{"table", "wide", "name", "json", "yaml", "jsonpath={.nodes[*].changes[*].after}"} {
		got := renderDiff(t, format, d)
		if strings.ContainsAny(got, "\x1b\u202e") || strings.Contains(got, "\ny") {
			t.Errorf("-o %s prints %q", format, got)
		}
	}
}

// The last line of a comparison is as wide as the terminal, too.
func TestDiffConclusionFitsTheTerminal(t *testing.T) {
	p, err := NewPrinter("table", "", true)
	if err != nil {
		t.Fatal(err)
	}
	d := &report.Diff{Summary: report.DiffSummary{
		Nodes: 1, Paths: 3, VerdictChanges: report.VerdictChanges{Repaired: 1}, Rules: 4, Others: 1,
	}}
	var b bytes.Buffer
	if err := p.Diff(streamTo(&b), d, View{Style: terminal.Style{Width: 60}}); err != nil {
		t.Fatal(err)
	}
	const want = "DIFFERENT: 3 paths (1 repaired), 4 differences of rules, 1\n" +
		"  difference of settings, routes and the like"
	if got := strings.TrimSpace(b.String()); got != want {
		t.Errorf("got %q", got)
	}
}

// Which of two captures could not be inspected is said, and nodes for the same reason are one line.
func TestDiffSaysOnWhichSideANodeWasNotInspected(t *testing.T) {
	d := &report.Diff{Compares: report.ComparesCaptures, Summary: report.DiffSummary{NotJudged: 3}}
	for _, name := range []string{"worker-2", "worker-3", "worker-10"} {
		d.Nodes = append(d.Nodes, report.NodeDiff{
			Before: report.ComparedNode{Node: name},
			After:  report.ComparedNode{Node: name, Error: "nft-ruleset.json is cut off"},
		})
	}
	const want = "Nodes    worker-2, worker-3, worker-10 (3)  NOT INSPECTED after: nft-ruleset.json is cut off\n\n" +
		"UNKNOWN: no path and no rule that is compared differs; 3 nodes not inspected"
	if got := strings.TrimSpace(renderDiff(t, "table", d)); got != want {
		t.Errorf("got %q", got)
	}
	const line = "3 nodes (worker-2, worker-3, worker-10) were not inspected in the snapshot after: " +
		"nft-ruleset.json is cut off"
	if got := UninspectedIn(d); len(got) != 1 || got[0] != line {
		t.Errorf("got %q", got)
	}
}

// Two nodes that are wrong in the same manner do not differ: that the good one is wrong, too, is said.
func TestDiffOfNodesThatAreBothWrong(t *testing.T) {
	n := report.NodeDiff{
		Before: report.ComparedNode{Node: "worker-1", Verdict: report.Mismatch},
		After:  report.ComparedNode{Node: "worker-2", Verdict: report.Mismatch},
	}
	d := &report.Diff{
		Compares: report.ComparesNodes, Service: &report.ObjectRef{Namespace: "shop", Name: "web"},
		Nodes: []report.NodeDiff{n}, Summary: report.DiffSummary{Nodes: 1},
	}
	got := renderDiff(t, "table", d)
	for _, want := range []string{
		"worker-1 is Mismatch itself", "kubectl svcproxy trace web -n shop --node worker-1",
		"SAME: nothing that is compared differs between worker-1 and worker-2",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
}

// worker-10 comes behind worker-2.
func TestNamesOfADiffAreInNaturalOrder(t *testing.T) {
	d := &report.Diff{OnlyBefore: []string{"worker-10"}, OnlyAfter: []string{"worker-2"}}
	if got := renderDiff(t, "name", d); got != "node/worker-2\nnode/worker-10\n" {
		t.Errorf("got %q", got)
	}
}
