// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// netfilterDropped are the kernel's reasons of a packet that a rule may have dropped: older kernels tell none.
var netfilterDropped = []string{"NETFILTER_DROP", "NOT_SPECIFIED", ""}

// traced are the traces of the connection's packets on a node and in its pods, in one direction.
func (w *watched) traced(node string, answer bool) (out []snapshot.Traced) {
	if saw := w.Nodes[node]; saw != nil {
		for _, s := range saw.Traced {
			if !s.Outer && s.Flow == w.flow && s.Answer == answer {
				out = append(out, s)
			}
		}
	}
	return out
}

// inTunnel are the traces of a tunnel's packets that carry such ones, on the endpoint's node.
func (w *watched) inTunnel(answer bool) (out []snapshot.Traced) {
	if saw := w.Nodes[w.to.Node]; saw != nil && !w.sameNode() {
		for _, s := range saw.Traced {
			if s.Outer && s.Answer == answer {
				out = append(out, s)
			}
		}
	}
	return out
}

// dropper is the trace of packets in a network namespace that a rule has dropped; nil for none.
func (w *watched) dropper(node, pod string, answer bool) *snapshot.Traced {
	for _, s := range w.traced(node, answer) {
		if s.Pod == pod && s.Dropped && s.Last != nil {
			return &s
		}
	}
	return nil
}

// lastLegacy is the rule of iptables-legacy that the kernel reported last of packets that did not come to the end of
// their hook: it reports no verdicts of these.
func (w *watched) lastLegacy(node, pod string, answer bool) *snapshot.Traced {
	for _, s := range w.traced(node, answer) {
		if s.Pod == pod && !s.Passed && s.Last != nil && s.Last.Legacy {
			return &s
		}
	}
	return nil
}

// byRule is a fate with the rule that the kernel's trace names, and who owns it.
func (w *watched) byRule(f *fate, node string, s *snapshot.Traced) {
	at := w.refOf(node, s)
	f.rule, f.owner = w.cited(node, s), ""
	if at.Chain != nil {
		f.owner = endtoend.OwnerOf(at)
	}
}

// discardedByRule finds a packet that a rule has dropped, by the kernel's trace alone: its report of the packet's end
// may have been lost.
func (w *watched) discardedByRule() (f fate, ok bool) {
	for _, x := range []struct {
		node, pod, segment string
		answer             bool
	}{
		{w.to.Node, "", report.SegmentEndpointNode, false},
		{w.to.Node, w.pod(), report.SegmentEndpointPod, false},
		{w.to.Node, w.pod(), report.SegmentAnswer, true},
		{w.to.Node, "", report.SegmentAnswer, true},
		{w.client, w.clientPod, report.SegmentAnswer, true},
	} {
		if s := w.dropper(x.node, x.pod, x.answer); s != nil {
			return w.droppedBy(x.segment, x.node, s), true
		}
	}
	return f, false
}

// droppedBy is the fate of a connection of which a rule has dropped packets.
func (w *watched) droppedBy(segment, node string, s *snapshot.Traced) fate {
	f := fate{
		passed: slices.Index(behindNode, segment), lost: true, place: placeOf(node, s.Pod), discarded: true,
	}
	w.byRule(&f, node, s)
	f.text = lostText(&report.Lost{Packet: packetOf(s), Where: f.rule.Where})
	if f.rule.Where == (report.RuleRef{}) {
		f.text = "the " + packetOf(s) + " was dropped by " + f.rule.Text
	}
	if s.Outer {
		f.text += fmt.Sprintf(" (from %s to UDP port %d of %s)", s.From.Addr(), s.To.Port(), node)
	}
	return f
}

// packetOf names packets.
func packetOf(s *snapshot.Traced) string {
	name := requestPacket
	if s.Answer {
		name = answerPacket
	}
	if s.Outer {
		name = "tunnel's packet with the " + name
	}
	return name
}

// cameOut tells whether packets of any connection have come to the endpoint's node itself, or out of a tunnel there.
func (w *watched) cameOut() bool {
	saw := w.Nodes[w.to.Node]
	return saw.Others > 0 ||
		slices.ContainsFunc(saw.Sights, func(s snapshot.Sight) bool { return s.Pod == "" && !s.Answer }) ||
		slices.ContainsFunc(saw.Traced, func(s snapshot.Traced) bool { return s.Pod == "" && !s.Outer && !s.Answer })
}

// beforeTunnelEnd says what became of a request between the nodes, by the packets of the tunnel that carried it: those
// that the endpoint's node has seen. ok is false where there were none, and where they may be those of other
// connections: which one a packet of the tunnel is of is not told.
func (w *watched) beforeTunnelEnd() (f fate, ok bool) {
	list := w.inTunnel(false)
	if len(list) == 0 {
		return f, false
	}
	for i := range list {
		if list[i].Dropped && list[i].Last != nil {
			return w.droppedBy(report.SegmentNetwork, w.to.Node, &list[i]), true
		}
	}
	if w.cameOut() {
		return f, false
	}
	s := &list[len(list)-1]
	f = fate{passed: slices.Index(behindNode, report.SegmentNetwork), lost: true, place: placeOf(w.to.Node, "")}
	f.text = "the " + packetOf(s) + " came here"
	switch {
	case s.Passed && s.Hook == "input":
		f.text += " and passed the rules, and the request did not come out of the tunnel"
	case s.Passed:
		f.text += ", passed the hook " + s.Hook + ", and was not accepted"
	default:
		f.text += ", came to the hook " + s.Hook + " and not to its end"
		if s.Last != nil && s.Last.Legacy {
			w.byRule(&f, w.to.Node, s)
			f.text += "; the last rule that it met is " + f.rule.Where.String()
		}
	}
	return f, true
}

// noTunnelPacket says that the endpoint's node has seen no packet of a tunnel that carries the request, which left by
// an interface; "" where that is no tunnel, and where the node may have missed it.
func (w *watched) noTunnelPacket(by string) string {
	saw, client := w.Nodes[w.to.Node], w.stateOf(w.client, "")
	if client == nil || client.Host == nil || len(w.Tunnels[w.to.Node]) == 0 || saw.Untraced[""] != "" ||
		len(w.inTunnel(false)) > 0 {
		return ""
	}
	if v, ok := client.Host.VXLAN(by); !ok || !slices.Contains(w.Tunnels[w.to.Node], v.Port) {
		return ""
	}
	return ", nor did a packet of VXLAN that carries it"
}

// answerInTunnel finds a rule of the endpoint's node that has dropped the tunnel's packet with the answer.
func (w *watched) answerInTunnel() (f fate, ok bool) {
	for _, s := range w.inTunnel(true) {
		if s.Dropped && s.Last != nil {
			return w.droppedBy(report.SegmentAnswer, w.to.Node, &s), true
		}
	}
	return f, false
}

// familiesOf are those of nf_tables by their names.
var familiesOf = map[string]netfilter.Family{"ip": netfilter.IPv4, "ip6": netfilter.IPv6, "inet": netfilter.Inet}

// refOf finds the rule of a trace among those that were read of its place; its Chain is nil where it is not there.
func (w *watched) refOf(node string, s *snapshot.Traced) (at netfilter.Ref) {
	state := w.stateOf(node, s.Pod)
	if state == nil || state.Rules == nil || s.Last == nil {
		return at
	}
	for _, t := range state.Rules.Tables {
		legacy := t.Backend == netfilter.BackendLegacy
		if legacy != s.Last.Legacy || t.Family != familiesOf[s.Last.Family] || t.Name != s.Last.Table ||
			!legacy && t.Backend != netfilter.BackendNFT && t.Backend != netfilter.BackendNative {
			continue
		}
		c := t.Chain(s.Last.Chain)
		switch {
		case c == nil:
		case s.Last.Policy:
			return netfilter.Ref{Chain: c}
		case s.Last.Rule > 0 && s.Last.Rule <= len(c.Rules):
			return netfilter.Ref{Chain: c, Rule: c.Rules[s.Last.Rule-1]}
		}
	}
	return at
}

// stateOf is what was read of a node, or of a pod on it; nil for nothing.
func (w *watched) stateOf(node, pod string) *nodestate.State {
	n := w.nodes[node]
	switch {
	case n == nil:
		return nil
	case pod == "":
		return n.State
	case n.Pods[pod] == nil:
		return nil
	}
	return n.Pods[pod].State
}

// cited quotes the rule of a trace, as it was read before.
func (w *watched) cited(node string, s *snapshot.Traced) report.Evidence {
	if s.Last == nil {
		return report.Evidence{}
	}
	if at := w.refOf(node, s); at.Chain != nil {
		return cite(at)
	}
	if s.Last.Rule == 0 && !s.Last.Policy {
		chain := traceRef(s.Last).ChainText()
		return report.Evidence{Text: "a rule of " + chain + " that is not there any more"}
	}
	return report.Evidence{Where: traceRef(s.Last)}
}

// rulesSeen is, by segment, how far the connection's packets came through the rules there; with tunnel also how far a
// tunnel's packets did, which are of all connections of a run.
func (w *watched) rulesSeen(tunnel bool) map[string]report.SegmentSeen {
	out := map[string]report.SegmentSeen{}
	add := func(segment, node string, list ...snapshot.Traced) {
		seen := out[segment]
		for i := range list {
			s := &list[i]
			r := report.SegmentRules{
				Place: placeOf(node, s.Pod), Packet: requestPacket, Tunnel: s.Outer, Hook: strings.Clone(s.Hook), Passed: s.Passed,
				Dropped: s.Dropped, Last: w.cited(node, s), Packets: s.Count,
			}
			if s.Answer {
				r.Packet = answerPacket
			}
			seen.Rules = append(seen.Rules, r)
		}
		out[segment] = seen
	}
	for _, s := range w.traced(w.to.Node, false) {
		switch {
		case s.Pod == "" && !w.sameNode():
			add(report.SegmentEndpointNode, w.to.Node, s)
		case s.Pod == w.pod() && s.Pod != "":
			add(report.SegmentEndpointPod, w.to.Node, s)
		}
	}
	nodes := []string{w.to.Node, w.client}
	if w.sameNode() {
		nodes = nodes[:1]
	}
	for _, node := range nodes {
		add(report.SegmentAnswer, node, w.traced(node, true)...)
	}
	if tunnel {
		add(report.SegmentNetwork, w.to.Node, w.inTunnel(false)...)
		add(report.SegmentAnswer, w.to.Node, w.inTunnel(true)...)
	}
	for _, segment := range behindNode {
		seen := out[segment]
		seen.Untraced = w.untraced(segment)
		out[segment] = seen
	}
	return out
}

// addRules adds entries to a list of different ones.
func addRules(list []report.SegmentRules, more ...report.SegmentRules) []report.SegmentRules {
	for _, r := range more {
		k := slices.IndexFunc(list, func(o report.SegmentRules) bool {
			o.Packets = r.Packets
			return o == r
		})
		switch {
		case k >= 0:
			list[k].Packets += r.Packets
		case len(list) < maxEvidence:
			list = append(list, r)
		}
	}
	return list
}

// untraced says where rules were not traced on the endpoint's node and in its pod, or not all.
func (w *watched) untraced(segment string) (out []string) {
	saw := w.Nodes[w.to.Node]
	if saw == nil {
		return nil
	}
	pods := map[string][]string{
		report.SegmentNetwork: {""}, report.SegmentEndpointNode: {""}, report.SegmentEndpointPod: {w.pod()},
		report.SegmentAnswer: {w.pod(), ""},
	}
	for _, pod := range slices.Compact(pods[segment]) {
		if why := saw.Untraced[pod]; why != "" {
			out = append(out, placeOf(w.to.Node, pod)+": "+strings.Clone(why))
		}
	}
	return out
}
