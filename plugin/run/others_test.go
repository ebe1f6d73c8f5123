// SPDX-License-Identifier: Apache-2.0

package run

import (
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// The nodes and pods of a snapshot say of themselves what it holds; those that it does not hold say nothing.
func TestOthersOfASnapshot(t *testing.T) {
	s, err := Open(Config{Snapshot: "../../testdata/faults/iptables-neighbours/healthy"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		of    judge.Owner
		there bool
	}{
		{judge.Owner{Node: "node1"}, true},
		{judge.Owner{Node: "node9"}, false},
		{judge.Owner{Node: "node1", Pod: "no/pod"}, false},
	} {
		n, err := s.told(t.Context(), c.of)
		if err != nil || (n != nil) != c.there {
			t.Errorf("%+v: %v, %v", c.of, n != nil, err)
		}
		if n != nil && (!n.Has(snapshot.LinkFile) || n.Has(snapshot.SysctlFile)) {
			t.Errorf("%+v: other files than those that were asked for", c.of)
		}
	}
}

// Of a cluster nothing is read for this; a node that asked before the other one was read is judged again.
func TestOthersOfACluster(t *testing.T) {
	s := &Session{live: true, others: &others{}}
	of := judge.Owner{Node: "b"}
	if n, err := s.told(t.Context(), of); n != nil || err != nil {
		t.Fatalf("%v, %v", n, err)
	}
	asks := report.NodeReport{Paths: []report.Path{{Findings: []report.Finding{{Code: judge.StaticNeighbour}}}}}
	withdrawn := report.NodeReport{Paths: append([]report.Path{{Findings: []report.Finding{{Code: judge.Changing}}}},
		asks.Paths...)}
	files := func(node string) *snapshot.Node {
		return snapshot.NewNode(node, map[string][]byte{snapshot.LinkFile: []byte("[]"), snapshot.SysctlFile: nil})
	}
	s.others.note(files("a"), nil, &asks)
	s.others.note(files("b"), nil, &report.NodeReport{})
	s.others.note(files("c"), nil, &withdrawn)
	n, err := s.told(t.Context(), of)
	if err != nil || n == nil || !n.Has(snapshot.LinkFile) || n.Has(snapshot.SysctlFile) {
		t.Errorf("%v, %v", n, err)
	}
	if _, ok := s.others.again["a"]; !ok || len(s.others.again) != 1 {
		t.Errorf("judged again: %v", s.others.again)
	}
}
