// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// recordedPods are the pods of the topology: the namespace and the name of that on each node.
var recordedPods = map[string]struct{ namespace, name string }{
	"node1": {"client", "shop/client"}, "node2": {"endpoint", "shop/web"},
}

// file is the name of a fault's snapshot.
func (c *fault) file() string {
	words := strings.FieldsFunc(strings.ToLower(c.name), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	return strings.Join(words, "-") + ".tar.gz"
}

// What was recorded of each fault, as it was made for real with connections that were measured, gives the same answer
// again (testdata/endtoend/README.md).
func TestRecordedTopologies(t *testing.T) {
	const dir = "../../testdata/endtoend/topologies"
	known := map[string]bool{}
	all := slices.Concat(faults, moreFaults, podFaults, vxlanFaults, cniFaults, tunnelFaults, furtherFaults)
	for i := range all {
		c := &all[i]
		if notRecorded[c.name] || c.only6 {
			continue
		}
		known[c.file()] = true
		t.Run(c.name, func(t *testing.T) {
			s, err := snapshot.Open(filepath.Join(dir, c.file()))
			if err != nil {
				t.Fatal(err)
			}
			states := map[string]*nodestate.State{}
			for node, pod := range recordedPods {
				n, err := s.Node(node)
				if err != nil {
					t.Fatal(err)
				}
				if states[node], err = nodestate.Load(n); err != nil {
					t.Fatal(err)
				}
				if states[pod.namespace], err = nodestate.Load(n.Pod(pod.name)); err != nil {
					t.Fatal(err)
				}
			}
			v := &view{read: func(name string) *nodestate.State { return states[name] }}
			c.check(t, v.segments(c))
		})
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !known[filepath.Base(f)] {
			t.Errorf("%s is of no fault", f)
		}
	}
}

// Peers of WireGuard that have agreed on keys, and of which one has sent packets and received none, need not understand
// one another any more.
func TestASilentPeerIsUnknown(t *testing.T) {
	s, err := snapshot.Open("../../testdata/endtoend/topologies/wireguard-healthy.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	for received, want := range map[string]report.SegmentVerdict{
		"  transfer: 0 B received, 1.45 KiB sent": report.SegmentUnknown,
		"  transfer: 92 B received, 0 B sent":     report.SegmentRight,
		"  transfer: 180 B received, 148 B sent":  report.SegmentRight,
	} {
		states := map[string]*nodestate.State{}
		for node, pod := range recordedPods {
			n, err := s.Node(node)
			if err != nil {
				t.Fatal(err)
			}
			files := snap.Files(t, n)
			files[snapshot.WireGuardFile] = regexp.MustCompile(`(?m)^ {2}transfer: .*$`).
				ReplaceAll(files[snapshot.WireGuardFile], []byte(received))
			for at, of := range map[string]*snapshot.Node{node: snapshot.NewNode(node, files), pod.namespace: n.Pod(pod.name)} {
				if states[at], err = nodestate.Load(of); err != nil {
					t.Fatal(err)
				}
			}
		}
		v := &view{read: func(name string) *nodestate.State { return states[name] }}
		got := v.segments(&fault{})
		i := slices.IndexFunc(got, func(s report.Segment) bool { return s.Segment == report.SegmentNetwork })
		if i < 0 || got[i].Verdict != want {
			t.Errorf("%s: %+v", received, got)
		}
	}
}
