// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// PacketLost says that real connections are lost behind the client's node, by what the kernels of the nodes saw.
const PacketLost = "PacketLost"

var _ = register(kind{
	code: PacketLost, severity: mismatch, scope: onPath, by: segments,
	remedy: advice("look for what the kernel names, on the node or in the pod that the finding names: a rule " +
		"(nft list ruleset, iptables-save), the routes, neighbours and settings of the interface, or the process; if only " +
		"the last place is known, capture packets (tcpdump) there and at the next one"),
})

// Followed is what the kernels of nodes saw of the connections of one run.
type Followed struct {
	Servers []snapshot.FollowTarget // whose connections were followed
	Clients []netip.Addr            // from which addresses
	Nodes   map[string]*snapshot.Followed
	Flows   []snapshot.Flow // which the sights are of
	// Tunnels are, by node, the ports of UDP at which it takes packets of VXLAN.
	Tunnels map[string][]uint16

	of []probeOf // of each flow
}

// probeOf is the connection that a flow is.
type probeOf struct {
	target snapshot.ProbeTarget // without what is done there
	probe  snapshot.Probe
	to     netip.AddrPort // the endpoint
}

// Limits of what is followed.
const (
	maxServers   = 64
	maxClients   = 16
	flowsOfEach  = 6 // connections to one endpoint
	maxFlowsSeen = 200
	maxTunnels   = 8
)

// Follow says which connections to have the nodes' kernels follow while targets are connected to: to the frontends and
// to the endpoints that are followed, from the client, whose address its node may translate to its own.
func Follow(ends *Ends, targets []snapshot.ProbeTarget) *Followed {
	out := &Followed{Nodes: map[string]*snapshot.Followed{}, Tunnels: map[string][]uint16{}}
	v := ends.Visited[ends.Client]
	if v == nil || v.State == nil {
		return out
	}
	client := func(a netip.Addr) {
		if a.IsValid() && !slices.Contains(out.Clients, a) && len(out.Clients) < maxClients {
			out.Clients = append(out.Clients, a)
		}
	}
	for i := range targets {
		t := &targets[i]
		client(t.From)
		proto, known := protocolNumbers[t.Protocol]
		server := snapshot.FollowTarget{Protocol: t.Protocol, At: t.To}
		straight := !t.Trace // of frontends some are traced, of endpoints none
		left := straight && ends.Follow != nil && !ends.Follow(t.To.Addr())
		if !known || left || slices.Contains(out.Servers, server) || len(out.Servers) == maxServers {
			continue
		}
		out.Servers = append(out.Servers, server)
		client(netfilter.SourceFor(v.State.Host, proto, t.To))
	}
	for name, v := range ends.Visited {
		if v.State != nil {
			out.Tunnels[name] = tunnelPorts(v.State)
		}
	}
	return out
}

// tunnelPorts are the ports of UDP at which a node takes packets of VXLAN.
func tunnelPorts(s *nodestate.State) (ports []uint16) {
	for _, dev := range s.Host.VXLANs() {
		v, _ := s.Host.VXLAN(dev)
		if v.Port != 0 && !slices.Contains(ports, v.Port) && len(ports) < maxTunnels {
			ports = append(ports, v.Port)
		}
	}
	return ports
}

// protocolNumbers are those of protocols that connections are made by.
var protocolNumbers = map[string]uint8{"TCP": netfilter.TCP, "UDP": netfilter.UDP, "SCTP": netfilter.SCTP}

// Choose chooses, of connections that were made, those that the nodes are asked about: to each endpoint some, those
// that failed first.
func (f *Followed) Choose(done *snapshot.Probing) {
	for i := range done.Targets {
		t := &done.Targets[i]
		count := map[netip.AddrPort]int{}
		for _, failed := range []bool{true, false} {
			for k := range t.List {
				x := &t.List[k]
				to := x.SentTo(t.To)
				if succeeded(x) == failed || !to.IsValid() || !x.Local.IsValid() || count[to] == flowsOfEach ||
					len(f.Flows) == maxFlowsSeen {
					continue
				}
				count[to]++
				flow := snapshot.Flow{
					Protocol: t.Protocol, Clients: []netip.AddrPort{x.Local}, Servers: []netip.AddrPort{t.To},
				}
				if x.Source.IsValid() && x.Source != x.Local {
					flow.Clients = append(flow.Clients, x.Source)
				}
				if to != t.To {
					flow.Servers = append(flow.Servers, to)
				}
				f.Flows = append(f.Flows, flow)
				f.of = append(f.of, probeOf{t.Bare(), *x, to})
			}
		}
	}
}

// succeeded tells whether a connection has been accepted, and what was sent over it answered.
func succeeded(x *snapshot.Probe) bool {
	return x.Result == snapshot.ProbeConnected && (x.Data == "" || x.Data == snapshot.ProbeAnswered)
}

// fate is what became of a connection, by what the kernels saw.
type fate struct {
	passed int    // how many of behindNode it has passed
	lost   bool   // it did not pass the next one, for certain
	place  string // where it was last seen
	text   string // what was seen of it there
	// discarded: the kernel says that it discarded a packet; else it is missed at the next place.
	discarded bool
	rule      report.Evidence               // the rule that did so, by the kernel's trace; zero where none is named
	owner     string                        // who owns it
	around    []string                      // what else was read there
	seen      map[string]report.SegmentSeen // by segment: how far its packets came through rules
}

// behindNode are the segments behind the client's node, in their order.
var behindNode = []string{
	report.SegmentNetwork, report.SegmentEndpointNode, report.SegmentEndpointPod, report.SegmentAnswer,
}

// watched is what was seen of one connection to an endpoint.
type watched struct {
	*Followed

	client     string // node
	clientPod  string
	to         *endtoend.Endpoint
	flow       int
	nodes      map[string]*endtoend.Node // what was read of them
	clientSaw  *snapshot.Followed
	clientPart []snapshot.Sight
	serverPart []snapshot.Sight
}

// pod is the network namespace of the endpoint, as sights name it.
func (w *watched) pod() string {
	if w.to.HostNetwork {
		return ""
	}
	return w.to.Pod
}

// sameNode tells whether the endpoint is on the client's node.
func (w *watched) sameNode() bool { return w.to.Node == w.client }

// first is the first sight that is as wanted; nil for none.
func first(list []snapshot.Sight, is func(*snapshot.Sight) bool) *snapshot.Sight {
	if k := slices.IndexFunc(list, func(s snapshot.Sight) bool { return is(&s) }); k >= 0 {
		return &list[k]
	}
	return nil
}

// last is the last sight that is as wanted; nil for none.
func last(list []snapshot.Sight, is func(*snapshot.Sight) bool) *snapshot.Sight {
	for i := len(list) - 1; i >= 0; i-- {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// placeOf names a node, or the pod on it.
func placeOf(node, pod string) string {
	if pod != "" {
		return "pod " + pod
	}
	return "node " + node
}

// fate says what became of the connection.
func (w *watched) fate() (f fate, ok bool) {
	x := &w.of[w.flow].probe
	if succeeded(x) {
		return fate{passed: len(behindNode)}, true
	}
	server := w.Nodes[w.to.Node]
	// The addresses of a connection that is followed are known before: one from another address is not seen.
	known := slices.Contains(w.Clients, cmp.Or(x.Source, x.Local).Addr())
	if server == nil || w.clientSaw == nil || !known || x.Data != "" {
		return f, false // what is discarded of a connection that was accepted may be its end
	}
	if f, ok := w.discarded(); ok {
		return f, true
	}
	if f, ok := w.discardedByRule(); ok {
		return f, true
	}
	if server.Partial || w.clientSaw.Partial {
		return f, false // what was not kept is no evidence
	}
	return w.missed()
}

// discarded finds the packet that a kernel says to have discarded.
func (w *watched) discarded() (f fate, ok bool) {
	at := func(node, segment string, s *snapshot.Sight) (fate, bool) {
		f := fate{passed: slices.Index(behindNode, segment), lost: true, place: placeOf(node, s.Pod), discarded: true}
		l := report.Lost{Reason: s.Reason, Function: s.Function, Interface: s.Interface, Packet: requestPacket}
		if s.Answer {
			l.Packet = answerPacket
		}
		after := ""
		if slices.Contains(netfilterDropped, s.Reason) {
			if by := w.dropper(node, s.Pod, s.Answer); by != nil {
				w.byRule(&f, node, by)
				l.Where = f.rule.Where
			} else if last := w.lastLegacy(node, s.Pod, s.Answer); last != nil {
				w.byRule(&f, node, last)
				after = "; the last rule that it met is " + f.rule.Where.String()
			}
		}
		f.text = lostText(&l) + after
		return f, true
	}
	isLost := func(s *snapshot.Sight) bool { return s.How == snapshot.SightDropped && !s.Answer }
	if s := first(w.serverPart, isLost); s != nil {
		segment := report.SegmentEndpointNode
		atSocket := s.Reason == reasonNoSocket || strings.HasPrefix(s.Reason, "TCP_") ||
			strings.HasPrefix(s.Reason, "SOCKET_")
		if s.Pod != "" || w.to.HostNetwork && atSocket {
			segment = report.SegmentEndpointPod
		}
		switch {
		case s.Pod != w.pod() && s.Pod != "": // the client's pod: on the same node
		case s.Pod == "" && w.sameNode() && !atSocket: // the client's node, whose own findings say so
		default:
			return at(w.to.Node, segment, s)
		}
	}
	isAnswer := func(s *snapshot.Sight) bool { return s.How == snapshot.SightDropped && s.Answer && !s.Reset }
	if s := first(w.serverPart, isAnswer); s != nil {
		return at(w.to.Node, report.SegmentAnswer, s)
	}
	if s := first(w.clientPart, isAnswer); s != nil {
		return at(w.client, report.SegmentAnswer, s)
	}
	return f, false
}

// missed finds the place where the connection's packets were last seen, and did not come to the next one.
func (w *watched) missed() (f fate, ok bool) {
	request := func(pod string) func(*snapshot.Sight) bool {
		return func(s *snapshot.Sight) bool { return s.Pod == pod && !s.Answer }
	}
	answer := func(pod string) func(*snapshot.Sight) bool {
		return func(s *snapshot.Sight) bool { return s.Pod == pod && s.Answer }
	}
	sentAnswer := func(s *snapshot.Sight) bool { return answer(w.pod())(s) && s.How == snapshot.SightOut }
	lost := func(segment, place, format string, args ...any) (fate, bool) {
		return fate{
			passed: slices.Index(behindNode, segment), lost: true, place: place, text: fmt.Sprintf(format, args...),
		}, true
	}
	x := &w.of[w.flow].probe
	server := w.Nodes[w.to.Node]
	refused := x.Result == snapshot.ProbeRefused
	if why, there := server.Pods[w.pod()]; !w.to.HostNetwork && (!there || why != "") {
		return f, false // what the pod saw is not known
	}
	left := last(w.clientPart, func(s *snapshot.Sight) bool { return request("")(s) && s.How == snapshot.SightOut })
	came := last(w.serverPart, request(""))
	entered := last(w.serverPart, request(w.pod()))
	out := first(w.serverPart, sentAnswer)
	switch {
	case out != nil && out.Reset && refused:
		return lost(report.SegmentEndpointPod, placeOf(w.to.Node, w.pod()), "the request was answered with a reset (RST)")
	case out != nil && refused || x.Result == snapshot.ProbeNoRoute:
		return f, false
	case out != nil:
		node, s := w.to.Node, last(w.serverPart, func(s *snapshot.Sight) bool { return s.Answer })
		if c := last(w.clientPart, func(s *snapshot.Sight) bool { return s.Answer }); c != nil && !w.sameNode() {
			node, s = w.client, c
		}
		if s.Pod == w.clientPod && w.clientPod != "" && s.How == snapshot.SightIn {
			return f, false // it has come back: too late, or another one
		}
		if f, ok := w.answerInTunnel(); ok && node == w.to.Node {
			return f, true
		}
		return lost(report.SegmentAnswer, placeOf(node, s.Pod), "the answer was last seen %s", sightText(s))
	case entered != nil && x.Result == snapshot.ProbeSent:
		return fate{passed: len(behindNode)}, true // UDP: nothing has to answer
	case entered != nil && refused:
		return f, false
	case entered != nil:
		return lost(report.SegmentEndpointPod, placeOf(w.to.Node, w.pod()),
			"the request came here %s, and no answer was sent", sightText(entered))
	case refused || w.sameNode():
		return f, false
	case came != nil:
		return lost(report.SegmentEndpointNode, placeOf(w.to.Node, ""),
			"the request was last seen %s, and did not come to the pod", sightText(came))
	case left != nil:
		if f, ok := w.beforeTunnelEnd(); ok {
			return f, true
		}
		return lost(report.SegmentNetwork, placeOf(w.client, "")+" to "+placeOf(w.to.Node, ""),
			"the request left %s %s, and did not come to %s%s", w.client, sightText(left), w.to.Node,
			w.noTunnelPacket(left.Interface))
	}
	return f, false // it did not leave the client's node
}

// sightText says how a packet was seen.
func sightText(s *snapshot.Sight) string {
	switch {
	case s.Interface == "":
		return "without an interface"
	case s.How == snapshot.SightIn:
		return "coming in by " + s.Interface
	}
	return "going out by " + s.Interface
}

// seenOf is what was seen of the connections of a path to an endpoint, by the latest run that made some.
func (t *tour) seenOf(p *report.Path, to *endtoend.Endpoint) (out []fate) {
	f, o, ok := asked(p)
	if !ok {
		return nil
	}
	by, ok := target(&f, &o, netip.AddrPortFrom(f.Address, f.Port))
	if !ok {
		return nil
	}
	straight := by
	straight.To = to.At
	for _, run := range slices.Backward(t.ends.Followed) {
		for _, want := range []snapshot.ProbeTarget{by, straight} {
			for i := range run.of {
				if x := &run.of[i]; x.target != want || x.to != to.At {
					continue
				}
				w := &watched{
					Followed: run, client: t.ends.Client, clientPod: t.ends.Pod, to: to, flow: i,
					clientSaw: run.Nodes[t.ends.Client], nodes: t.nodes,
				}
				w.clientPart, w.serverPart = run.sights(t.ends.Client, i), run.sights(to.Node, i)
				if got, ok := w.fate(); ok {
					if got.lost {
						got.around = w.around(behindNode[got.passed])
					}
					got.seen = w.rulesSeen(len(out) == 0)
					out = append(out, got)
				}
			}
			if len(out) > 0 {
				return out
			}
		}
	}
	return nil
}

// sights are those of one flow on a node.
func (f *Followed) sights(node string, flow int) (out []snapshot.Sight) {
	if saw := f.Nodes[node]; saw != nil {
		for _, s := range saw.Sights {
			if s.Flow == flow {
				out = append(out, s)
			}
		}
	}
	return out
}
