// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// TestFaultsOfASilentNode: no fault is right because kube-proxy's words are missing: what is a mismatch with them is
// one without, or is Unknown and names the value that it depends on.
func TestFaultsOfASilentNode(t *testing.T) {
	testutil.Long(t)
	lists := map[string][]fault{
		"iptables": faults(openCaptured(t, "iptables")), "nftables": nftFaults(), "ipvs": ipvsFaults(),
	}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		for _, f := range lists[name] {
			if f.name == "another pod network in the configuration" {
				continue // without it nothing is wrong
			}
			t.Run(name+"/"+f.name, func(t *testing.T) { silentFault(t, name, &f) })
		}
	}
}

// silentFault judges a node with a fault as it is, and without some of kube-proxy's words.
func silentFault(t *testing.T, name string, f *fault) {
	t.Helper()
	if f.base != "" {
		name = f.base
	}
	run := func(t *testing.T, hush func(*capturedNode)) report.NodeReport {
		t.Helper()
		w := openCaptured(t, name)
		f.do(w)
		hush(w)
		return w.run()
	}
	with := run(t, func(*capturedNode) {})
	for _, s := range silences {
		t.Run(s.name, func(t *testing.T) {
			without := run(t, s.hush)
			sameFault(t, &with, &without)
		})
	}
}

// sameFault compares the reports of a fault: with kube-proxy's words, and without.
func sameFault(t *testing.T, with, without *report.NodeReport) {
	t.Helper()
	now := map[string]*report.Path{}
	for i := range without.Paths {
		now[pathKey(&without.Paths[i])] = &without.Paths[i]
	}
	unknown := map[string]int{}
	for i := range with.Paths {
		p := &with.Paths[i]
		q := now[pathKey(p)]
		switch {
		case p.Verdict != report.Mismatch && (q == nil || q.Verdict != report.Mismatch):
		case p.Verdict != report.Mismatch && q.Verdict == report.Mismatch:
			t.Errorf("%s was %s, and is a Mismatch without kube-proxy's words: %+v", pathKey(p), p.Verdict, q.Findings)
		case q == nil:
			t.Errorf("%s was a Mismatch (%s), and is not judged without kube-proxy's words", pathKey(p), codesOf(p.Findings))
		case q.Verdict == report.Unknown:
			i := slices.IndexFunc(q.Findings, func(f report.Finding) bool { return f.Code == ConfigUnknown })
			if i < 0 {
				t.Errorf("%s is Unknown and names no value: %+v", pathKey(p), q.Findings)
				continue
			}
			unknown[strings.Join(codesOf(p.Findings), ", ")+" → "+q.Findings[i].Subject]++
		case q.Verdict != report.Mismatch:
			t.Errorf("%s was a Mismatch (%s), and is %s without kube-proxy's words: %+v", pathKey(p), codesOf(p.Findings),
				q.Verdict, q.Findings)
		}
	}
	before, after := facts(*with)["node"], facts(*without)["node"]
	for _, f := range without.Findings {
		if f.Severity == report.Error && !strings.Contains(before, f.Code) {
			t.Errorf("the node has %s without kube-proxy's words: %s", f.Code, f.Message)
		}
	}
	for _, f := range with.Findings {
		if f.Severity == report.Error && !strings.Contains(after, f.Code) {
			t.Errorf("%s of the node is not found without kube-proxy's words: %s", f.Code, f.Message)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(unknown)) {
		t.Logf("%d paths are Unknown: %s", unknown[what], what)
	}
}
