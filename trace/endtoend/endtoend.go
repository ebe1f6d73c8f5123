// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// The codes of what is wrong in a segment: kinds of finding.
const (
	EndpointNotListening   = "EndpointNotListening"
	EndpointListensElse    = "EndpointListensElsewhere"
	BacklogFull            = "BacklogFull"
	ProcessStopped         = "ProcessStopped"
	PodDrops               = "PodDrops"
	PodNoRoute             = "PodNoRoute"
	EndpointNodeDrops      = "EndpointNodeDrops"
	EndpointNodeNoRoute    = "EndpointNodeNoRoute"
	TunnelPeerMissing      = "TunnelPeerMissing"
	TunnelDropped          = "TunnelDropped"
	EndToEndAnswerLost     = "EndToEndAnswerLost"
	EndToEndWrongNeighbour = "EndToEndWrongNeighbour"
	LinkMTUDiffers         = "LinkMTUDiffers"
	PMTUBlackHole          = "PMTUBlackHole" // also of the client's node alone
	InterfaceDown          = "InterfaceDown"
	NoCarrier              = "NoCarrier"        // likewise
	ConntrackFull          = "ConntrackFull"    // likewise
	NeighbourBlocked       = "NeighbourBlocked" // likewise
)

// Node is what was read of a node, and of the pods on it.
type Node struct {
	*nodestate.State

	Pods map[string]*Pod // by namespace/name
}

// Pod is what was read of a pod's network namespace.
type Pod struct {
	*nodestate.State // nil where it was not read

	Why string // why it was not read
	// Packets are how many sockets take frames before IP does; -1 where that was not read.
	Packets int
}

// Endpoint is where a connection may be sent to.
type Endpoint struct {
	At          netip.AddrPort
	Pod, Node   string // namespace/name of its pod, and its node; "" where that is not told
	HostNetwork bool   // the pod has its node's network namespace
}

// Connection is what is followed.
type Connection struct {
	// Start is how the packet enters the client's node; its Src is the client's address, its Dst the frontend.
	Start netfilter.Start
	// Client is the client's node; that by which packets of a client outside of the cluster come in.
	Client *Node
	// Pod is the client's pod; "" where the client is a process in the node's own namespace, or Outside.
	Pod string
	// Outside: the client is outside of the cluster. Enters: its packets are certain to come in by Start's interface.
	Outside, Enters bool
	Endpoints       []Endpoint
	// Nodes are those of the endpoints, by name, and Unread says why others were not read.
	Nodes  map[string]*Node
	Unread map[string]string
	// Walker makes a walker of a state.
	Walker func(*nodestate.State) *netfilter.Walker
	// NodeAt names the node that has an address; "" for none, and for several.
	NodeAt func(netip.Addr) string
	// Cite quotes a rule.
	Cite func(netfilter.Ref) report.Evidence
}

// Segments follows the connection. judged is the segment of the client's node, which the caller has judged; where the
// packet ends there, or does not leave the client's pod, it is the last one.
func (c *Connection) Segments(judged *report.Segment) []report.Segment {
	own := *c // Start gets what the client's pod makes of the packet
	c = &own
	c.Start.Packet.Ports = c.clientPorts()
	segments := []report.Segment{*judged}
	var out *passed
	if !c.Outside {
		var first report.Segment
		first, out = c.clientPod()
		segments = []report.Segment{first, *judged}
		if first.Verdict == report.SegmentWrong {
			MarkLost(segments)
			return segments
		}
		if out != nil {
			segments[1] = c.withTOS(judged, &out.end.Packet)
		}
	}
	w := c.Walker(c.Client.State)
	res := w.Walk(c.Start, netfilter.Options{Enters: c.enters()})
	ends := slices.Clone(res.Outcomes)
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		var merged []report.Segment
		var seen []netfilter.Packet
		for k := range ends {
			end := &ends[k]
			p := &end.Packet
			if end.End != netfilter.Sent && end.End != netfilter.Delivered || netip.AddrPortFrom(p.Dst, p.DstPort) != e.At {
				continue
			}
			if end.End == netfilter.Delivered && !e.HostNetwork && judged.Verdict == report.SegmentWrong {
				continue // the node has taken the pod's address: its own sockets say nothing of the pod
			}
			// What differs by a mark alone is the same beyond the node, unless a tunnel carries it.
			like := netfilter.Packet{Src: p.Src, Out: p.Out, NextHop: p.NextHop}
			if v, _ := c.Client.Host.VXLAN(p.Out); v.GBP {
				like.Mark = p.Mark & gbpMask
			}
			if slices.Contains(seen, like) {
				continue
			}
			seen = append(seen, like)
			var lists [][]report.Segment
			for _, by := range byHop(end) {
				f := &follower{Connection: c, to: e, end: &by, fromPod: out}
				lists = append(lists, f.segments())
			}
			merged = worseOf(merged, mergedHops(lists))
		}
		segments = append(segments, merged...)
	}
	MarkLost(segments)
	return segments
}

// enters tells whether the packet is certain to come in to the client's node by the interface of Start.
func (c *Connection) enters() bool {
	return c.Start.Hook == netfilter.Prerouting && (!c.Outside || c.Enters)
}

// worseOf takes of each segment the worse of two.
func worseOf(a, b []report.Segment) []report.Segment {
	if a == nil {
		return b
	}
	rank := []report.SegmentVerdict{report.SegmentRight, report.SegmentUnknown, report.SegmentWrong}
	for i := range b {
		k := slices.IndexFunc(a, func(s report.Segment) bool { return s.Segment == b[i].Segment })
		switch {
		case k < 0:
			a = append(a, b[i])
		case slices.Index(rank, b[i].Verdict) > slices.Index(rank, a[k].Verdict):
			a[k] = b[i]
		}
	}
	return a
}

// MarkLost marks, for each endpoint, the first segment that is wrong; one that all have in common is the first of all.
// What is wrong on the client's node loses nothing where the packet goes on to an endpoint all the same.
func MarkLost(segments []report.Segment) {
	lost := map[string]bool{}
	for i := range segments {
		s := &segments[i]
		goesOn := s.OfFirstNode() && i+1 < len(segments)
		s.Lost = false
		if s.Verdict != report.SegmentWrong || goesOn || lost[""] || lost[s.Endpoint] {
			continue
		}
		s.Lost, lost[s.Endpoint] = true, true
	}
}

// follower follows a connection from what the client's node has made of it to one endpoint.
type follower struct {
	*Connection

	to      *Endpoint
	end     *netfilter.Outcome // of the client's node
	fromPod *passed            // of the client's pod; nil where it has none, or its walk is not known

	node    *Node        // the endpoint's
	arrival *passed      // of the endpoint's node; nil where the packet does not come there
	inPod   *passed      // of the endpoint's pod
	carried uint32       // the mark that the answer has as it comes out of a tunnel to the client's node
	socket  *host.Socket // that takes the packet there, or on the node; nil where that is not known
}

// passed is a walk that has come to its end in a namespace.
type passed struct {
	walker *netfilter.Walker
	start  netfilter.Start
	end    netfilter.Outcome

	answers netfilter.Options // of the walks of its answers
}

// device is the interface that the socket is bound to which takes the packet; "" for none.
func (f *follower) device() string {
	if f.socket == nil {
		return ""
	}
	return f.socket.Device
}

// segments judges those behind the client's node, up to the first that is wrong.
func (f *follower) segments() []report.Segment {
	var out []report.Segment
	for _, judge := range []func() report.Segment{f.network, f.endpointNode, f.endpointPod, f.answer} {
		s := judge()
		s.Endpoint = f.to.At.String()
		out = append(out, s)
		if s.Verdict == report.SegmentWrong {
			break // the packet does not come any further
		}
	}
	return out
}

// sameNode tells whether the endpoint is on the client's node.
func (f *follower) sameNode() bool {
	return f.end.End == netfilter.Delivered || f.to.Node == f.Client.Name
}

// first is what the node is called that the client's packets come to first.
func (c *Connection) first() string {
	if c.Outside {
		return "the entry node"
	}
	return "the client's node"
}

func nodePlace(name string) string { return "node " + name }
func podPlace(name string) string  { return "pod " + name }

func right(segment, place, format string, args ...any) report.Segment {
	return report.Segment{
		Segment: segment, Place: place, Verdict: report.SegmentRight, Message: fmt.Sprintf(format, args...),
	}
}

// unknown is a segment that cannot be judged: command, run on node, tells what is missing.
func unknown(segment, place, node, command, format string, args ...any) report.Segment {
	return report.Segment{
		Segment: segment, Place: place, Verdict: report.SegmentUnknown, Message: fmt.Sprintf(format, args...),
		Command: command, Node: node,
	}
}

func wrong(code, segment, place, owner, format string, args ...any) report.Segment {
	return report.Segment{
		Segment: segment, Place: place, Verdict: report.SegmentWrong, Code: code, Owner: owner,
		Message: fmt.Sprintf(format, args...),
	}
}

// with adds evidence that names no rule.
func with(s report.Segment, texts ...string) report.Segment {
	for _, t := range texts {
		if t != "" {
			s.Evidence = append(s.Evidence, report.Evidence{Text: t})
		}
	}
	return s
}
