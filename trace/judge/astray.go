// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// astray says why an endpoint's answer may not come back to the node: a rule has given the packet a source, or the
// kernel has, that is not the node's own address, and no pod network of it has. From another node the answer goes
// wherever the routes there lead. A pod on a bridge of the node sends it by the node, but for a source in the bridge's
// subnet, which it takes for a neighbour. Nor may it come back where the node does not have the address that the Node
// has in the API.
func (p *pathCase) astray(end *netfilter.Outcome) *netfilter.Uncertain {
	pkt := &end.Packet
	if end.End != netfilter.Sent {
		return nil
	}
	if !p.local(pkt.Dst) {
		const forPods = ", which other nodes send answers to, and those to its pods"
		own, gone := p.nodesAddress(pkt.Dst.Is4())
		if gone {
			return &netfilter.Uncertain{
				What: "the route that they take", Why: "no interface of the node has the Node's address " + own.String() + forPods,
			}
		}
		if why := p.untold(pkt, own); why != "" {
			return &netfilter.Uncertain{
				What: "the route that they take", Why: own.String() + " is the Node's address" + forPods + ", and " + why,
			}
		}
	}
	switch {
	case pkt.SNAT && !pkt.Src.IsValid():
		return p.oneAstray(pkt)
	case !pkt.Src.IsValid(), p.want.Origin.Kind != expect.FromNode && (!pkt.SNAT || pkt.Src == pkt.OrigSrc),
		!pkt.SNAT && p.placeOf(pkt.Dst).node == p.Name,
		!pkt.SNAT && pkt.Src == pkt.OrigDst && p.want.Reason == expect.ReasonNoLocalEndpoints:
		return nil // the last is expected in ipvs mode, and said
	}
	return p.astrayTo(pkt, pkt.Src)
}

// mostSources is how many addresses of a rule's range are looked at.
const mostSources = 64

// oneAstray is astray for a rule that gives packets one of several addresses.
func (p *pathCase) oneAstray(pkt *netfilter.Packet) *netfilter.Uncertain {
	from, to := op.Sources(pkt.SNATBy.Rule)
	n := 0
	for a := from; a.IsValid() && a.Compare(to) <= 0; a = a.Next() {
		if u := p.astrayTo(pkt, a); u != nil {
			return u
		}
		n++
		if n == mostSources {
			return &netfilter.Uncertain{
				Where: pkt.SNATBy, What: "the source that it gives packets", Why: "it is one of " + from.String() + " to " +
					to.String() + ": whether the node gets what is sent to each of them is not known",
			}
		}
	}
	return nil
}

// astrayTo is astray for a packet with a source.
func (p *pathCase) astrayTo(pkt *netfilter.Packet, src netip.Addr) *netfilter.Uncertain {
	out := &netfilter.Uncertain{Where: pkt.SNATBy, What: "the source " + src.String() + " that it gives packets"}
	if !pkt.SNAT {
		out.What = "the source " + src.String() + " that the kernel gives packets"
	}
	if src.IsLoopback() && pkt.Out != "lo" && pkt.SNAT {
		out.What, out.Why = "the source of the packet", "it is an address of loopback: no other host answers to it"
		return out
	}
	own, known := p.net.Local(src)
	if !known {
		return nil
	}
	if own && p.nodesOwn(pkt, src) {
		why := p.untold(pkt, src)
		if why == "" {
			return nil
		}
		out.Why = src.String() + " is the node's own, and " + why
		return out
	}
	out.Why = src.String() + " is not the node's own: whether the routes beyond the node lead answers to it back " +
		"here is not known"
	if own {
		out.Why = src.String() + " is the node's own, and neither the Node's address nor in a subnet of " + pkt.Out +
			" with the next hop: whether the routes beyond the node lead answers to it back here is not known"
	}
	switch {
	case p.local(pkt.Dst):
		if dev := p.net.Within(src); dev == "" || dev != pkt.Out {
			return nil
		}
		out.Why = src.String() + " is in the subnet of " + pkt.Out +
			", and not the node's own: the endpoint asks there who has it"
	case slices.ContainsFunc(p.podCIDRs, func(x netip.Prefix) bool { return x.Contains(src) }):
		return nil
	}
	return out
}

// nodesAddress is the address that the Node has in the API, the zero Addr for none; gone tells whether no interface of
// the node has it.
func (w *worker) nodesAddress(v4 bool) (own netip.Addr, gone bool) {
	x := w.own.once(v4, func() nodeAddress {
		own := w.internalIP(v4)
		if !own.IsValid() || w.net.Addresses() == nil {
			return nodeAddress{own: own}
		}
		dev, _ := w.net.HasAddress(own)
		return nodeAddress{own, dev == ""}
	})
	return x.own, x.gone
}

// nodeAddress is what nodesAddress returns.
type nodeAddress struct {
	own  netip.Addr
	gone bool
}

// nodesOwn tells whether answers to an address of the node come back as those to any other of its addresses do: it is
// the Node's, the only one of the outgoing interface, or in a subnet of it in which the next hop is, too; or the
// endpoint is on the node. A tunnel's address is known to the other nodes.
func (p *pathCase) nodesOwn(pkt *netfilter.Packet, src netip.Addr) bool {
	switch {
	case p.local(pkt.Dst), pkt.Out == "", netfilter.IsUnknown(pkt.Out), p.cluster.ofNode(src) == p.Name:
		return true
	case !p.asksFor(pkt.Out):
		return p.net.Reaches(pkt.Out, src)
	case p.net.OnlyAddress(pkt.Out, src.Is4()) == src:
		return true
	}
	next := pkt.Hop()
	if next.IsLinkLocalUnicast() {
		return p.net.Together(pkt.Out, src, src)
	}
	return p.net.Together(pkt.Out, src, next)
}

// untold says why a host on the outgoing link that asks for the link-layer address of the packet's source, an address
// of the node, gets no answer; "" where it gets one, where none asks there, and where that is not known. They ask for
// an address of a subnet of the link; and for any where the node has no other there, as its routes are then to that.
func (p *pathCase) untold(pkt *netfilter.Packet, src netip.Addr) string {
	if p.local(pkt.Dst) || pkt.Out == "" || netfilter.IsUnknown(pkt.Out) || !src.IsValid() {
		return ""
	}
	q := whoHas{pkt.Out, pkt.Hop(), src}
	return p.untolds.once(q, func() string { return p.untoldTo(q) })
}

// whoHas is what another host asks on a link of the node: who has an address.
type whoHas struct {
	dev       string
	asker, of netip.Addr
}

// mostUntold bounds what a worker remembers of that: most next hops are gateways, and few.
const mostUntold = 1 << 10

// untoldTo is untold, asked once. A router with an address of the link alone sends to the node's own of that kind, as
// BGP has it on links without other addresses.
func (w *worker) untoldTo(q whoHas) string {
	dev, src := q.dev, q.of
	if q.asker.IsLinkLocalUnicast() || !w.asksFor(dev) || w.net.Addresses() == nil {
		return ""
	}
	here := slices.Contains(w.net.AddressesOn(dev), src)
	if at, _ := w.net.HasAddress(src); !here && w.asksFor(at) && !w.net.PodsOnly(at, src.Is4()) {
		return "" // answers may come back by that link
	}
	if !here && w.net.HasAddressOf(dev, src.Is4()) && !w.net.Together(dev, src, src) {
		return "" // a router sends answers to another address of the node
	}
	if src.Is4() {
		if answers, why, known := w.net.AnswersARP(dev, src, q.asker); known && !answers {
			return "a host that asks on " + dev + " who has it gets no answer: " + why
		}
		return ""
	}
	may, why, known := w.net.ProxiesND(dev, src)
	if here || may || !known {
		return ""
	}
	// ndisc_recv_ns in net/ipv6/ndisc.c
	return "not an address of " + dev + ": " +
		cmp.Or(why, "the kernel answers neighbour solicitations there for no other")
}
