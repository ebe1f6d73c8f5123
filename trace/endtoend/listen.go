// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// protocols are the names that ss has for protocols whose sockets are listed.
var protocols = map[uint8]string{netfilter.TCP: "tcp", netfilter.UDP: "udp"}

// listeners are the sockets of a network namespace that have a protocol, by what they have to do with an address and
// port.
type listeners struct {
	taking []*host.Socket // they receive what is sent there
	maybe  []*host.Socket // they may: at any address of IPv6, and whether they receive IPv4, too, is not told
	same   []*host.Socket // at that port of another address, or interface
	other  []*host.Socket // at other ports
	all    []host.Socket  // in the order in which they were listed
}

// and are the sockets that take a packet with one more that may, in the order in which they were listed.
func (l *listeners) and(m *host.Socket) (out []*host.Socket) {
	for i := range l.all {
		if s := &l.all[i]; s == m || slices.Contains(l.taking, s) {
			out = append(out, s)
		}
	}
	return out
}

// listenersAt sorts the sockets of a namespace. in is the interface that packets come in by; "" where that is not
// known.
func listenersAt(s *nodestate.State, proto string, at netip.AddrPort, in string) listeners {
	out := listeners{all: s.Sockets}
	for i := range s.Sockets {
		x := &s.Sockets[i]
		switch {
		case x.Protocol != proto:
		case x.Accepts(proto, at) && x.Device != "" && x.Device != in:
			// A socket that is bound to a VRF takes what comes in by its interfaces (inet_sk_bound_dev_eq).
			if in == "" || s.Host.Master(in) != "" {
				out.maybe = append(out.maybe, x)
			} else {
				out.same = append(out.same, x)
			}
		case x.Accepts(proto, at):
			out.taking = append(out.taking, x)
		case x.MayAccept(proto, at):
			out.maybe = append(out.maybe, x)
		case x.Port == at.Port():
			out.same = append(out.same, x)
		default:
			out.other = append(out.other, x)
		}
	}
	return out
}

// OnNode is the segment of an endpoint whose address is the node's own: wrong, with its code, where the node's sockets
// show that nothing receives what is sent there, or that what does so does not serve it. ok is false where something
// does, or may, and where the sockets were not read, or not all of them.
func OnNode(s *nodestate.State, protocol uint8, at netip.AddrPort) (seg report.Segment, ok bool) {
	proto, listed := protocols[protocol]
	if !listed || !s.SocketsRead || s.Reading(snapshot.ListenFile).State != nodestate.Whole {
		return seg, false
	}
	l := listenersAt(s, proto, at, "")
	if len(l.maybe) > 0 {
		return seg, false
	}
	if len(l.taking) > 0 {
		list, other := winners(l.taking, at.Addr())
		if other != nil && unserved(other) == 0 {
			return seg, false
		}
		seg = notServed(list, at, nodePlace(s.Name))
		return with(seg, textsOf(list)...), seg.Code != ""
	}
	return l.nobody(proto, at, nodePlace(s.Name)), true
}

// nobody is the segment where nothing receives what is sent to an address and port of a node.
func (l *listeners) nobody(proto string, at netip.AddrPort, place string) report.Segment {
	if len(l.same) > 0 {
		return l.elsewhere(proto, at, place)
	}
	return wrong(EndpointNotListening, report.SegmentEndpointPod, place, "the workload",
		"nothing listens at %s for %s: connections are refused", at, strings.ToUpper(proto))
}

// elsewhere is the segment where only sockets of other addresses have the port.
func (l *listeners) elsewhere(proto string, at netip.AddrPort, place string) report.Segment {
	return with(wrong(EndpointListensElse, report.SegmentEndpointPod, place, "the workload",
		"nothing accepts %s connections to %s: at that port, %s", strings.ToUpper(proto), at, elsewhere(l.same, at)),
		textsOf(l.same)...)
}
