// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// need is a file that decides, beside the rules, what becomes of a connection in a network namespace.
type need struct {
	part    string // what it holds, as people are told
	file    string
	command string           // that shows it
	family  netfilter.Family // whose packets it is about
	asked   asked
	// always: every network namespace has it, so that one that is missing was not read.
	always bool
	// since is a file that every helper writes which looks for this one; "" for one that all helpers look for.
	since string
	// ofNodes: a pod's network namespace does not have it.
	ofNodes bool
	// at tells whether it is about what comes in or leaves by an interface; nil: by any.
	at func(h *host.Network, dev string) bool
}

// asked is what asks for a file.
type asked uint8

const (
	byRoutes  asked = iota // a route lookup: without it there is no certainty of a route, and none of its lack
	byPackets              // every packet that passes the namespace
	bySockets              // who takes it, in the namespace of the endpoint
)

// needs are those of every network namespace that a connection passes: of the nodes at both ends, and of their pods.
var needs = []need{
	{part: "addresses", file: snapshot.AddrFile, command: "ip addr", family: netfilter.Inet, always: true},
	{part: "interfaces", file: snapshot.LinkFile, command: "ip -d link", family: netfilter.Inet, always: true},
	{
		part: "routes", file: snapshot.RouteFile, command: "ip route show table all", family: netfilter.IPv4, always: true,
	},
	{
		part: "routes", file: snapshot.Route6File, command: "ip -6 route show table all", family: netfilter.IPv6,
		always: true,
	},
	{part: "routing policy", file: snapshot.RuleFile, command: "ip rule", family: netfilter.IPv4, always: true},
	{part: "routing policy", file: snapshot.Rule6File, command: "ip -6 rule", family: netfilter.IPv6, always: true},
	{
		part: "neighbours", file: snapshot.NeighbourFile, command: "ip neigh show nud all", family: netfilter.Inet,
		asked: byPackets, always: true,
	},
	{
		part: "settings", file: snapshot.SysctlFile, command: "sysctl net", family: netfilter.Inet, asked: byPackets,
		always: true,
	},
	{
		part: "programs of tc and BPF", file: snapshot.ProgramsFile, command: "bpftool net", family: netfilter.Inet,
		asked: byPackets, since: snapshot.ProgramsFile,
	},
	{
		part: "IPsec policies", file: snapshot.XfrmFile, command: "ip xfrm policy", family: netfilter.Inet,
		asked: byPackets,
	},
	{
		part: "rules of ebtables-legacy", file: snapshot.EbtablesFile, command: "ebtables-legacy -t filter -L",
		family: netfilter.Inet, asked: byPackets, ofNodes: true, at: (*host.Network).MayBridge,
	},
	{
		part: "forwarding tables of bridges and tunnels", file: snapshot.BridgeFDBFile, command: "bridge fdb show",
		family: netfilter.Inet, asked: byPackets, always: true, ofNodes: true, at: func(h *host.Network, dev string) bool {
			return h.MayBridge(dev) || h.MayForwardFrames(dev)
		},
	},
	{
		part: "stopped processes", file: snapshot.StoppedFile, command: "ps -e -o pid,stat,comm",
		family: netfilter.Inet, asked: bySockets, since: snapshot.StoppedFile,
	},
}

// absent tells whether a file that is not there does not exist, as far as its absence can tell.
func (n *need) absent(s *nodestate.State) bool {
	return s.ListsUnread() && !n.always && (n.since == "" || s.Has(n.since))
}

// Gap is something of a network namespace that a verdict does not cover: a snapshot made by hand, or by an older
// helper, does not tell whether there is such a thing.
type Gap struct{ Part, File string }

// Gaps are those of a network namespace for the packets of a family. What cannot be read is none: that makes a segment
// unknown.
func Gaps(s *nodestate.State, isNode bool, f netfilter.Family) (out []Gap) {
	for i := range needs {
		n := &needs[i]
		if n.family&f == 0 || n.ofNodes && !isNode || n.asked == bySockets && isNode || n.always {
			continue
		}
		r := s.Reading(n.file)
		if r.State == nodestate.Absent && !n.absent(s) || r.Empty() {
			out = append(out, Gap{n.part, n.file})
		}
	}
	return out
}

// unread returns the first need of a network namespace whose file is there, or has to be, and was not read, with why;
// nil where there is none. devs are the interfaces that the packet comes in and leaves by.
func (c *Connection) unread(s *nodestate.State, f netfilter.Family, by asked, devs ...string) (n *need, why string) {
	isNode := c.isNode(s)
	for i := range needs {
		n := &needs[i]
		if n.family&f == 0 || n.asked != by || n.ofNodes && !isNode ||
			n.at != nil && !slices.ContainsFunc(devs, func(dev string) bool { return n.at(s.Host, dev) }) {
			continue
		}
		switch r := s.Reading(n.file); {
		case r.State == nodestate.Absent && n.always:
			why = "it was not collected"
		case r.State == nodestate.Unreadable && (n.always || !r.Empty()), r.State == nodestate.Partial:
			why = r.Reason
		default:
			continue
		}
		return n, n.file + ", which has the " + n.part + ", was not read: " + why
	}
	return nil, ""
}

// isNode tells whether a state is that of a node, and not that of a pod.
func (c *Connection) isNode(s *nodestate.State) bool {
	for _, n := range c.Nodes {
		if n.State == s {
			return true
		}
	}
	return c.Client.State == s
}
