// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
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
	asks := report.NodeReport{Asks: []string{"b"}}
	withdrawn := report.NodeReport{
		Asks: asks.Asks, Paths: []report.Path{{Findings: []report.Finding{{Code: judge.Changing}}}},
	}
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

// reading is a NodeReader that counts what is read of each node.
type reading struct {
	NodeReader

	read map[string][]string
}

func (r *reading) Known(*snapshot.Cluster) []string { return []string{"a", "b", "c", "d"} }
func (r *reading) Release(string)                   {}

func (r *reading) Read(_ context.Context, node string, want []string) (*snapshot.Node, error) {
	r.read[node] = append(r.read[node], want...)
	if node == "d" {
		return nil, errors.New("it cannot be read")
	}
	return snapshot.NewNode(node, map[string][]byte{snapshot.LinkFile: []byte("[]"), snapshot.SysctlFile: nil}), nil
}

// Of a cluster those nodes are read for what they say of their interfaces that judgements have asked in vain, each
// once; where none has, no pod is made, and none where nodes are not read by pods.
func TestNodesThatAreAskedForTheirInterfaces(t *testing.T) {
	r := &reading{read: map[string][]string{}}
	s := &Session{
		live: true, others: &others{}, nodes: r, pod: func(string) *corev1.Pod { return nil },
		Progress: NewProgress(terminal.NewStream(io.Discard, func(string) string { return "" })),
	}
	s.config.Parallel = 1
	s.others.tell(judge.Owner{Node: "c"}, nil)
	if s.readAsked(t.Context(), []report.NodeReport{{Node: "a"}, {Node: "c"}}) || len(r.read) > 0 {
		t.Errorf("nodes were read that nobody asks: %v", r.read)
	}
	reports := []report.NodeReport{{Node: "a", Asks: []string{"b", "c", "d", "gone"}}, {Node: "c", Asks: []string{"b"}}}
	if !s.readAsked(t.Context(), reports) || !slices.Equal(r.read["b"], judge.PeerFiles) || len(r.read["c"]) > 0 ||
		len(r.read["gone"]) > 0 {
		t.Errorf("read: %v", r.read)
	}
	if n, _ := s.told(t.Context(), judge.Owner{Node: "b"}); n == nil || n.Has(snapshot.SysctlFile) {
		t.Errorf("b has said %v", n)
	}
	if n, _ := s.told(t.Context(), judge.Owner{Node: "d"}); n != nil {
		t.Error("a node has answered that was not read")
	}
	s.pod = nil
	s.others = &others{}
	if s.readAsked(t.Context(), reports) {
		t.Error("nodes are read without pods")
	}
}
