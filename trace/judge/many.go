// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// nextHopIsMany: the node takes the next hop for a broadcast or multicast address, and asks nobody for its link-layer
// address (arp_constructor in net/ipv4/arp.c): the frame goes to all hosts of the link. None passes such a packet on
// (ip_forward in net/ipv4/ip_forward.c), nor takes a segment of TCP from it (tcp_v4_rcv in net/ipv4/tcp_ipv4.c).
func (p *pathCase) nextHopIsMany(o *expect.Origin, end *netfilter.Outcome) *obstacle {
	for _, h := range p.hopsOut(o, end) {
		to := end.Packet.Dst
		if h.dev != end.Packet.Out || h.ip != end.Packet.Hop() {
			to = o.Address
		}
		if !p.manyHosts(h, to, end.Packet.Proto) {
			continue
		}
		evidence, fix := p.taken(h.ip)
		s := stoppedBy(evidence...)
		if e, ok := p.net.Neighbour(h.dev, h.ip); ok {
			s.evidence = append(s.evidence, fmt.Sprintf("ip neigh: %s dev %s lladdr %s %s", h.ip, h.dev, e.MAC, e.State))
		}
		s.message = "the node treats the next hop as an address that many hosts have: frames go to all hosts of the link, " +
			"and none accepts the packets"
		s.remedy = report.Remedy{Text: removeIt, Commands: fix}
		return s
	}
	return nil
}

// manyHosts tells whether frames to a next hop go to all hosts of the link, and none accepts what is in them for an
// address. A datagram for the next hop itself it may.
func (p *pathCase) manyHosts(h hop, to netip.Addr, proto uint8) bool {
	if !h.ip.Is4() || !p.net.Resolves(h.dev) || proto != netfilter.TCP && h.ip == to {
		return false
	}
	if e, ok := p.net.Neighbour(h.dev, h.ip); ok && e.MAC != "" {
		// The lowest bit of the first byte is that of a group's address (IEEE 802).
		return e.State == "NOARP" && len(e.MAC) > 1 && strings.ContainsAny(e.MAC[1:2], "13579bdfBDF")
	}
	return p.isForMany(h.ip)
}

// isForMany tells whether an address is a broadcast address of the node.
func (p *pathCase) isForMany(a netip.Addr) bool {
	t, _ := p.net.AddrType(a)
	return t == host.RouteBroadcast
}

// takenFromClient says why the node keeps an answer to a client that is not the node itself; "" where it does not. Of
// an address that merely stands for clients nothing is said, nor of one that an interface of the node has: whether it
// is another host that asks is not known (clientsOwn). An answer to another address is one whose translation was not
// taken back.
func (p *pathCase) takenFromClient(o *expect.Origin, back *netfilter.Outcome) string {
	if back.End != netfilter.Delivered || back.Packet.Dst != o.Address || o.Kind == expect.FromNode || o.Sample {
		return ""
	}
	if dev, _ := p.net.HasAddress(o.Address); dev != "" && p.cluster.podNames[o.Address] == "" {
		return ""
	}
	return "the node takes " + back.Packet.Dst.String() + ", the client's address, for one of its own, and keeps it"
}

// clientsOwn says that an interface of the node has the address of a client outside: a host elsewhere that has it, too,
// gets no answer (fib_validate_source in net/ipv4/fib_frontend.c refuses its packets).
func (p *pathCase) clientsOwn() *netfilter.Uncertain {
	o := &p.want.Origin
	dev, prefix := p.net.HasAddress(o.Address)
	if o.Kind != expect.FromExternal || o.Sample || dev == "" {
		return nil
	}
	return &netfilter.Uncertain{
		What: "who the client is", Why: "ip addr: " + prefix.String() + " dev " + dev + " is the node's own: what the node " +
			"itself sends is asked for by --from node, and another host with this address gets no answer",
	}
}
