// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"bytes"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
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
	testutil.Long(t)
	const dir = "../../testdata/endtoend/topologies"
	known := map[string]bool{}
	all := slices.Concat(faults, moreFaults, podFaults, vxlanFaults, cniFaults, tunnelFaults, furtherFaults,
		linkFaults, packetFaults, neighbourFaults, interfaceFaults, gatewayFaults, sizeFaults,
		uplinkFaults, socketFaults, bridgeFaults)
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

// edited reads a recorded topology whose files were changed.
func edited(t *testing.T, name string, edit func(node string, files map[string][]byte)) []report.Segment {
	t.Helper()
	s, err := snapshot.Open("../../testdata/endtoend/topologies/" + name + ".tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]*nodestate.State{}
	for node, pod := range recordedPods {
		n, err := s.Node(node)
		if err != nil {
			t.Fatal(err)
		}
		files := snap.Files(t, n)
		edit(node, files)
		for at, of := range map[string]*snapshot.Node{node: snapshot.NewNode(node, files), pod.namespace: n.Pod(pod.name)} {
			if states[at], err = nodestate.Load(of); err != nil {
				t.Fatal(err)
			}
		}
	}
	v := &view{read: func(name string) *nodestate.State { return states[name] }}
	return v.segments(&fault{})
}

// Peers of WireGuard that have agreed on keys, and of which one has sent packets and received none, need not understand
// one another any more.
func TestASilentPeerIsUnknown(t *testing.T) {
	for received, want := range map[string]report.SegmentVerdict{
		"  transfer: 0 B received, 1.45 KiB sent": report.SegmentUnknown,
		"  transfer: 92 B received, 0 B sent":     report.SegmentRight,
		"  transfer: 180 B received, 148 B sent":  report.SegmentRight,
	} {
		got := edited(t, "wireguard-healthy", func(_ string, files map[string][]byte) {
			files[snapshot.WireGuardFile] = regexp.MustCompile(`(?m)^ {2}transfer: .*$`).
				ReplaceAll(files[snapshot.WireGuardFile], []byte(received))
		})
		i := slices.IndexFunc(got, func(s report.Segment) bool { return s.Segment == report.SegmentNetwork })
		if i < 0 || got[i].Verdict != want {
			t.Errorf("%s: %+v", received, got)
		}
	}
}

// An interface discards packets of the tunnel that are not of the form that it takes, and the kernel's own one does not
// get them in its place (ip_tunnel_rcv in net/ipv4/ip_tunnel.c).
func TestTunnelsOfAnotherForm(t *testing.T) {
	for _, c := range []struct {
		sends, takes string
		segment      string // that is wrong; "" for none
	}{
		{"", "", ""},
		{`"ocsum":true,`, "", report.SegmentNetwork},
		{"", `"icsum":true,`, report.SegmentNetwork},
		{`"ocsum":true,`, `"icsum":true,`, ""},
		{"", `"iseq":true,`, report.SegmentNetwork},
		{`"oseq":true,`, "", ""},
		{`"oseq":true,`, `"iseq":true,`, ""},
		{`"icsum":true,`, "", report.SegmentAnswer},
		{"", `"ocsum":true,`, report.SegmentAnswer},
	} {
		got := edited(t, "gre-healthy-with-a-key", func(node string, files map[string][]byte) {
			flags := map[string]string{"node1": c.sends, "node2": c.takes}[node]
			files[snapshot.LinkFile] = bytes.ReplaceAll(files[snapshot.LinkFile], []byte(`"ikey":`), []byte(flags+`"ikey":`))
		})
		i := slices.IndexFunc(got, func(s report.Segment) bool { return s.Verdict != report.SegmentRight })
		switch {
		case c.segment == "" && i >= 0, c.segment != "" && (i < 0 || got[i].Segment != c.segment ||
			got[i].Verdict != report.SegmentWrong || got[i].Code != endtoend.TunnelPeerMissing):
			t.Errorf("%s at node1, %s at node2: %+v", c.sends, c.takes, got)
		}
	}
}

// A pod that has no link-layer address of its gateway may get that of the node's bridge or of a macvlan on it: what
// holds for one of them alone is unknown.
func TestTwoInterfacesAnswerForTheGateway(t *testing.T) {
	for setting, want := range map[string]report.SegmentVerdict{
		"net/ipv4/conf/vrrp.1/rp_filter=0\n": report.SegmentRight,
		"net/ipv4/conf/cni0/forwarding=0\n":  report.SegmentUnknown,
	} {
		key, _, _ := strings.Cut(setting, "=")
		found := false
		got := edited(t, "trap-the-pod-s-gateway-is-on-a-macvlan-of-the-bridge-and-nobody-has-asked",
			func(_ string, files map[string][]byte) {
				line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(key) + `=.*\n`)
				found = found || line.Match(files["sysctl.txt"])
				files["sysctl.txt"] = line.ReplaceAll(files["sysctl.txt"], []byte(setting))
			})
		if s := got[len(got)-1]; !found || s.Verdict != want || s.Segment != report.SegmentAnswer {
			t.Errorf("%s (found: %v): %+v", setting, found, s)
		}
	}
}
