// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// object is one of a list that ip or bridge prints.
type object = map[string]any

// edited changes the objects of a list; where do is false for one, it is left out.
func (c *capturedEnds) edited(node, file string, do func(object) bool) *capturedEnds {
	c.t.Helper()
	var list []object
	if err := json.Unmarshal(c.files[node][file], &list); err != nil {
		c.t.Fatal(err)
	}
	list = slices.DeleteFunc(list, func(o object) bool { return !do(o) })
	data, err := json.Marshal(list)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.change(node, map[string][]byte{file: data})
}

// set sets something of an interface.
func (c *capturedEnds) set(node, file, dev, key string, value any) *capturedEnds {
	return c.edited(node, file, func(o object) bool {
		if o["ifname"] == dev {
			o[key] = value
		}
		return true
	})
}

func (c *capturedEnds) with(node, file, lines string) *capturedEnds {
	return c.change(node, map[string][]byte{file: append(slices.Clone(c.files[node][file]), lines...)})
}

// asked leaves out the neighbours that a node has for an address.
func (c *capturedEnds) asked(node, address string) *capturedEnds {
	return c.edited(node, snapshot.NeighbourFile, func(o object) bool { return o["dst"] != address })
}

// What is wrong behind the client's node, put into files that were read there, is found in its segment; and what is no
// fault is a Match.
func TestFaultsBehindTheClientsNode(t *testing.T) {
	const (
		pod1 = "pods/shop_web-76bbf6d6cc-rjf7z/"
		pod3 = "pods/shop_web-76bbf6d6cc-m4dxw/"
	)
	base := openEnds(t)
	tunnel := func(key string, value any) *capturedEnds {
		return base.edited("node3", snapshot.BridgeFDBFile, func(o object) bool {
			if o["dst"] != nil {
				o[key] = value
			}
			return true
		})
	}
	vxlan := func(node, key string, value any) *capturedEnds {
		return base.edited(node, snapshot.LinkFile, func(o object) bool {
			if o["ifname"] == "flannel.1" {
				o["linkinfo"].(object)["info_data"].(object)[key] = value
			}
			return true
		})
	}
	local := func(node string) *capturedEnds { return vxlan(node, "local", "10.79.0.99") }
	veth1 := ""
	base.edited("node1", snapshot.LinkFile, func(o object) bool {
		if name, _ := o["ifname"].(string); strings.HasPrefix(name, "veth") {
			veth1 = name
		}
		return true
	})
	down := []string{"BROADCAST", "MULTICAST"}
	for _, c := range []struct {
		name    string
		of      *capturedEnds
		verdict report.Verdict
		segment string
		says    string
		code    string
	}{
		{
			name: "an entry of the tunnel's table has another port", of: tunnel("port", 9999), verdict: report.Mismatch,
			segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing, says: "VXLAN 1 (port 9999)",
		},
		{
			name: "an entry of the tunnel's table has another network", of: tunnel("vni", 77), verdict: report.Mismatch,
			segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing, says: "VXLAN 77",
		},
		{
			name: "an entry of the tunnel's table has another interface", of: tunnel("viaIf", "eth1"),
			verdict: report.Unknown, segment: report.SegmentNetwork, says: "leave by eth1, and the route to it is by eth0",
		},
		{
			name: "an entry of the tunnel's table is a group of next hops", of: tunnel("nhid", 7).edited("node3",
				snapshot.BridgeFDBFile, func(o object) bool { delete(o, "dst"); return true }),
			verdict: report.Unknown, segment: report.SegmentNetwork, says: "a group of next hops",
		},
		{
			name: "one end has the headers of VXLAN-GPE", of: vxlan("node1", "gpe", true), verdict: report.Mismatch,
			segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing, says: "VXLAN-GPE",
		},
		{
			name: "one end sends marks along", of: vxlan("node3", "gbp", true), verdict: report.Unknown,
			segment: report.SegmentNetwork, says: "gbp",
		},
		{name: "trap: an entry has the route's interface", of: tunnel("viaIf", "eth0"), verdict: report.Match},
		{
			name: "the tunnel's source is not an address of the client's node", of: local("node3"), verdict: report.Mismatch,
			segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing, says: "10.79.0.99, which is not one of its",
		},
		{
			name: "the tunnel's source is not an address of the endpoint's node", of: local("node1"), verdict: report.Mismatch,
			segment: report.SegmentAnswer, code: endtoend.TunnelPeerMissing, says: "10.79.0.99, which is not one of its",
		},
		{
			name: "the neighbours of the client's node were not read", of: base.change("node3", map[string][]byte{
				snapshot.NeighbourFile: nil, snapshot.UnreadFile: []byte(`{"ip-neigh.json":"permission denied"}`),
			}), verdict: report.Unknown, segment: report.SegmentNetwork, says: "the neighbours of node3 were not read",
		},
		{
			name: "the routes of the endpoint's node were not read", of: base.change("node1", map[string][]byte{
				snapshot.RouteFile: nil, snapshot.UnreadFile: []byte(`{"ip-route.json":"permission denied"}`),
			}), verdict: report.Unknown, segment: report.SegmentEndpointNode, says: "ip-route.json, which has the routes",
		},
		{
			name: "programs.txt of the endpoint's node has a line that is none", of: base.change("node1", map[string][]byte{
				snapshot.ProgramsFile: []byte("netfilter ip FORWARD 0 prog 7\n"),
			}), verdict: report.Unknown, segment: report.SegmentEndpointNode, says: "netfilter ip FORWARD 0 prog 7",
		},
		{
			name: "the endpoint's pod has an empty list of routes",
			of:   base.change("node1", map[string][]byte{pod1 + snapshot.RouteFile: []byte("[]")}), verdict: report.Unknown,
			segment: report.SegmentEndpointPod, says: "it has no route",
		},
		{
			name: "the connection table of the endpoint's node is full", of: base.with("node1", snapshot.SysctlFile,
				"net/netfilter/nf_conntrack_max=100\nnet/netfilter/nf_conntrack_count=100\n"), verdict: report.Mismatch,
			segment: report.SegmentEndpointNode, code: ConntrackFull, says: "connection table is full",
		},
		{
			name: "the endpoint's node does not answer ARP, and has not been asked", of: base.asked("node3", "10.79.0.12").with(
				"node2", snapshot.SysctlFile, "net/ipv4/conf/all/arp_ignore=8\n"), verdict: report.Unknown,
			segment: report.SegmentNetwork, says: "node2 does not answer ARP",
		},
		{
			name: "the endpoint's pod does not answer ARP, and has not been asked", of: base.asked("node1", "10.245.1.2").with(
				"node1", pod1+snapshot.SysctlFile, "net/ipv4/conf/all/arp_ignore=8\n"), verdict: report.Unknown,
			segment: report.SegmentEndpointNode, says: "the pod does not answer ARP",
		},
		{name: "trap: the endpoint's pod has not been asked", of: base.asked("node1", "10.245.1.2"), verdict: report.Match},
		{
			name: "a program of the pods' control group sees what comes in", of: base.with("node1", snapshot.ProgramsFile,
				"cgroup ingress /kubepods bpf prog id 5\n"), verdict: report.Unknown, segment: report.SegmentEndpointPod,
			says: "decides at ingress",
		},
		{
			name: "trap: a program of the pods' control group sees what they connect to", of: base.with("node1",
				snapshot.ProgramsFile, "cgroup connect4 /kubepods bpf prog id 5\n"), verdict: report.Match,
		},
		{
			name: "the link of the endpoint's node is down, and its routes are gone", of: base.set("node2", snapshot.LinkFile,
				"eth0", "flags", down).edited("node2", snapshot.RouteFile, func(o object) bool { return o["dev"] != "eth0" }),
			verdict: report.Mismatch, segment: report.SegmentNetwork, code: endtoend.InterfaceDown,
			says: "eth0 of node2 is down",
		},
		{
			name: "the interface below the tunnel is down", of: base.set("node1", snapshot.LinkFile, "eth0", "flags", down).
				edited("node1", snapshot.RouteFile, func(o object) bool { return o["dev"] != "eth0" }),
			verdict: report.Mismatch, segment: report.SegmentNetwork, code: endtoend.InterfaceDown,
			says: "eth0 of node1 is down",
		},
		{
			name: "the endpoint's pod has set its interface down", of: base.set("node1", pod1+snapshot.LinkFile, "eth0",
				"flags", down), verdict: report.Mismatch, segment: report.SegmentEndpointNode,
			code: endtoend.EndpointNodeNoRoute, says: "own interface eth0 is down",
		},
		{
			name: "the node's end of the pod's interface takes less than the bridge sends", of: base.set("node1",
				snapshot.LinkFile, veth1, "mtu", 1300), verdict: report.Unknown, segment: report.SegmentEndpointNode,
			code: endtoend.LinkMTUDiffers, says: "1300",
		},
		{
			name: "pods send more than their nodes take", of: base.set("node1", pod1+snapshot.LinkFile, "eth0", "mtu", 9000).
				set("node3", pod3+snapshot.LinkFile, "eth0", "mtu", 9000), verdict: report.Unknown,
			segment: report.SegmentAnswer, code: endtoend.LinkMTUDiffers, says: "9000",
		},
		{
			name: "trap: the endpoint's pod takes less, and says so", of: base.set("node1", pod1+snapshot.LinkFile, "eth0",
				"mtu", 1300), verdict: report.Match,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.of.judged()
			if len(r.Paths) != 1 || r.Verdict != c.verdict {
				t.Fatalf("%s %s, want %s", r.Verdict, r.Error, c.verdict)
			}
			at := slices.IndexFunc(r.Paths[0].Segments, func(s report.Segment) bool {
				return s.Segment == c.segment && s.Code == c.code && strings.Contains(s.Message, c.says) &&
					(s.Verdict == report.SegmentWrong) == (c.verdict == report.Mismatch)
			})
			if c.segment != "" && at < 0 {
				t.Errorf("no segment is as expected: %+v", r.Paths[0].Segments)
			}
			for _, f := range r.Paths[0].Findings {
				for _, command := range f.Commands {
					if f.Severity == report.Error && command.Node == endsClient && c.segment == report.SegmentNetwork &&
						f.Code == endtoend.InterfaceDown {
						t.Errorf("the command is for another node: %+v", command)
					}
				}
			}
		})
	}
}

// Sockets that take a packet are as the kernel chooses from them: the most specific one, and of one group any.
func TestTheKernelChoosesTheSocket(t *testing.T) {
	const (
		full    = "tcp LISTEN 129 128 %s:8080 [::]:* users:((\"echo\",pid=424,fd=5))\n"
		idle    = "tcp LISTEN 0 128 %s:8080 [::]:* users:((\"echo\",pid=425,fd=5))\n"
		stopped = "tcp LISTEN 0 128 %s:8080 [::]:* users:((\"echo\",pid=426,fd=5))\n"
		untold  = "tcp LISTEN 129 0 %s:8080 [::]:* users:((\"echo\",pid=427,fd=5))\n"
		all4    = "0.0.0.0"
		own     = "10.245.1.2"
		pod1    = "pods/shop_web-76bbf6d6cc-rjf7z/"
	)
	at := func(line, address string) string { return strings.Replace(line, "%s", address, 1) }
	base := openEnds(t)
	for _, c := range []struct {
		name, listen string
		verdict      report.Verdict
		code, says   string
	}{
		{"one of two of a group is full", at(full, "*") + at(idle, "*"), report.Mismatch, endtoend.BacklogFull, "50%"},
		{"both are full", at(full, "*") + at(full, "*"), report.Mismatch, endtoend.BacklogFull, "is full"},
		{
			"one of a group is full, and another one's process is stopped", at(full, "*") + at(stopped, "*") + at(idle, "*") +
				at(idle, "*"), report.Mismatch, endtoend.ProcessStopped, "about 50%",
		},
		{"the pod's own address is full", at(idle, "*") + at(full, own), report.Mismatch, endtoend.BacklogFull, "is full"},
		{"trap: all addresses are full, and the pod's own is not", at(full, "*") + at(idle, own), report.Match, "", ""},
		{"trap: that of both families is full, and IPv4's is not", at(full, "*") + at(idle, all4), report.Match, "", ""},
		{
			"the process at the pod's own address is stopped", at(idle, "*") + at(stopped, own), report.Mismatch,
			endtoend.ProcessStopped, "is stopped",
		},
		{
			"one process of a group is stopped", at(idle, "*") + at(stopped, "*"), report.Mismatch, endtoend.ProcessStopped,
			"50%",
		},
		{"how many may wait is not known", at(untold, "*"), report.Unknown, "", "how many may is not known"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := base.change("node1", map[string][]byte{
				pod1 + snapshot.ListenFile: []byte(c.listen), pod1 + snapshot.StoppedFile: []byte("426 T\n"),
			}).judged()
			found := slices.ContainsFunc(r.Paths[0].Segments, func(s report.Segment) bool {
				return s.Segment == report.SegmentEndpointPod && s.Code == c.code && strings.Contains(s.Message, c.says)
			})
			if r.Verdict != c.verdict || !found {
				t.Errorf("%s: %+v", r.Verdict, r.Paths[0].Segments)
			}
		})
	}
}
