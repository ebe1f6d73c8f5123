// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"fmt"
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// side is a network namespace at one end of a link, with the interface that IP has there.
type side struct {
	state *nodestate.State
	dev   string
	place string
	node  string // that it is, or is on
}

// discovery is how one end of a link finds the link-layer address of an address of the other end, if its table has
// none: by ARP, or neighbour discovery of IPv6.
type discovery struct {
	*Connection

	asker, owner side
	address      netip.Addr // of the owner
	waits, dst   netip.Addr // the source and the destination of the packet that waits for it
	// back: the packet is of the answer. The request that came from the owner's end may have had that one ask first,
	// and the kernel notes who asks (arp_process in net/ipv4/arp.c, ndisc_recv_ns in net/ipv6/ndisc.c).
	back bool
}

// hop is a packet by which an address is found, where one of the two ends walks it.
type hop struct {
	at *side
	netfilter.Resolution
}

// source is the address that the question comes from, as arp_solicit in net/ipv4/arp.c and ndisc_solicit in
// net/ipv6/ndisc.c choose it; the zero Addr where it may be one of several.
func (d *discovery) source() (src netip.Addr) {
	own, dev := d.asker.state.Host, d.asker.dev
	if own.UsableOn(dev, d.waits) {
		return d.waits
	}
	if d.address.Is4() {
		local, known := own.Local(d.waits)
		announce, read := own.Sysctl("net/ipv4/conf/all/arp_announce")
		switch {
		case known && !local, read && announce != "0":
			return own.MasqueradeAddress(dev, d.address)
		case known && read:
			return d.waits
		}
		return src
	}
	for _, a := range own.AddressesOn(dev) {
		if a.Is4() || !a.IsLinkLocalUnicast() || !own.UsableOn(dev, a) {
			continue
		}
		if src.IsValid() {
			return netip.Addr{}
		}
		src = a
	}
	return src
}

// question is the packet that asks, as both ends walk it.
func (d *discovery) question(src netip.Addr) []hop {
	to, near := d.address, src
	if !to.Is4() {
		to = host.SolicitedNode(to)
	}
	if !near.IsValid() { // of the same family
		if near = netip.IPv6Unspecified(); d.address.Is4() {
			near = netip.IPv4Unspecified()
		}
	}
	return []hop{
		{&d.asker, netfilter.Resolution{Dev: d.asker.dev, Neighbour: d.address, Src: src, Dst: to, Leaves: true}},
		{&d.owner, netfilter.Resolution{Dev: d.owner.dev, Neighbour: near, Src: src, Dst: to}},
	}
}

// reply is the packet that answers.
func (d *discovery) reply(src netip.Addr) []hop {
	asked := d.question(src)
	for i := range asked {
		r := &asked[i].Resolution
		r.Src, r.Dst, r.Answer, r.Leaves = d.address, src, true, !r.Leaves
	}
	return []hop{asked[1], asked[0]}
}

// fails judges whether the asker finds the address. An entry that there is needs no question; ok is true where the
// asker has one, where it finds the address, and where the interface asks for none.
func (d *discovery) fails(segment, place string) (s report.Segment, ok bool) {
	own := d.asker.state.Host
	e, there := own.Neighbour(d.asker.dev, d.address)
	if !own.HasNeighbours() || there && !e.Failed || !own.Resolves(d.asker.dev) || d.owner.dev == "" {
		return s, true
	}
	s, ok = d.lost(segment, place)
	if ok {
		return s, true
	}
	if s.Verdict == report.SegmentWrong {
		switch first, may := d.askedFirst(); {
		case first:
			return report.Segment{}, true
		case may:
			s.Verdict, s.Code, s.Command, s.Node = report.SegmentUnknown, "", d.show(), d.asker.node
			s.Message += ", unless the other end asks for its own address before"
		}
	}
	line := fmt.Sprintf("ip neigh has no entry of %s dev %s (%s)", d.address, d.asker.dev, d.asker.place)
	if there {
		line = fmt.Sprintf("ip neigh: %s dev %s %s (%s)", d.address, d.asker.dev, e.State, d.asker.place)
	}
	return with(s, line), false
}

// show is the command that shows the asker's entry.
func (d *discovery) show() string {
	show := "ip neigh show " + d.address.String() + " dev " + d.asker.dev
	if d.asker.place != nodePlace(d.asker.node) {
		return enter(show)
	}
	return show
}

// lost is fails for an asker that nobody has asked.
func (d *discovery) lost(segment, place string) (s report.Segment, ok bool) {
	own, dev := d.asker.state.Host, d.asker.dev
	if never := own.NeverAsks(dev, d.address.Is4()); never != nil {
		return with(wrong(NeighbourBlocked, segment, place, "a setting of the kernel",
			"the kernel of %s asks for no neighbour on %s: it does not find the link-layer address of %s, and discards "+
				"packets to it", d.asker.place, dev, d.address), never...), false
	}
	if !d.address.Is4() && !own.UsableOn(dev, d.waits) && own.NoLinkLocal(dev) { // ndisc_send_ns in net/ipv6/ndisc.c
		return with(wrong(NeighbourBlocked, segment, place, "the network configuration",
			"%s of %s has no IPv6 address of the link, from which the kernel asks for neighbours when it forwards: it does "+
				"not find the link-layer address of %s, and discards packets to it", dev, d.asker.place, d.address),
			"ip -6 addr: "+dev+" has no address of the link that is in use (fe80::/10)"), false
	}
	src := d.source()
	for i, h := range append(d.question(src), d.reply(src)...) {
		x := d.Walker(h.at.state).ResolutionPasses(&h.Resolution)
		what := netfilter.ResolutionName(d.address, i > 1)
		switch {
		case x.Lost != nil && x.Lost.Where.Chain != nil:
			cited := d.Cite(x.Lost.Where)
			s = wrong(NeighbourBlocked, segment, place, OwnerOf(x.Lost.Where),
				"%s drops %s (%s): %s does not find its link-layer address, and discards packets to it", cited.Where.String(),
				what, h.at.place, d.asker.place)
			s.Node, s.Evidence = h.at.node, []report.Evidence{cited}
			return s, false
		case x.Lost == nil && len(x.Unsure) > 0:
			u := &x.Unsure[0]
			command := "nft list ruleset; arptables-legacy -L"
			if h.at.place != nodePlace(h.at.node) {
				command = enter(command)
			}
			s = with(unknown(segment, place, h.at.node, command, "%s has no link-layer address of %s, and whether %s gets "+
				"through (%s) is not known: %s", d.asker.place, d.address, what, h.at.place, u.Why), u.What)
			if u.Where.Chain != nil {
				s.Evidence[0].Where = d.Cite(u.Where).Where
			}
			return s, false
		}
	}
	return s, true
}

// askedFirst tells whether the owner has asked for an address of the asker before the asker needs its own, so that the
// asker knows it: first where it is certain to, may where it may, as it has to confirm an entry some time.
func (d *discovery) askedFirst() (first, may bool) {
	if !d.back {
		return false, false
	}
	// The request is from where the answer goes.
	other := &discovery{Connection: d.Connection, asker: d.owner, owner: d.asker, waits: d.dst}
	var entry *host.Neighbour
	for _, a := range d.asker.state.Host.AddressesOn(d.asker.dev) {
		if a.Is4() != d.address.Is4() {
			continue
		}
		if e, there := d.owner.state.Host.Neighbour(d.owner.dev, a); there && !e.Failed {
			entry = &e
		}
		if !other.address.IsValid() || !a.IsLinkLocalUnicast() {
			other.address = a
		}
	}
	if !other.address.IsValid() || entry != nil && entry.Static {
		return false, false
	}
	src := other.source()
	switch {
	case !src.IsValid():
		return false, true
	case src != d.address:
		return false, false
	}
	for _, h := range other.question(src) {
		if x := d.Walker(h.at.state).ResolutionPasses(&h.Resolution); x.Lost != nil {
			return false, false
		} else if len(x.Unsure) > 0 {
			return false, true
		}
	}
	return entry == nil, true
}

// nodeSide is a node as the end of a link.
func nodeSide(n *Node, dev string) side { return side{n.State, dev, nodePlace(n.Name), n.Name} }

// finds judges whether a node finds the link-layer address of an address of the other one, whose IP has it on in.
func (x *crossing) finds(place, in string) (s report.Segment, ok bool) {
	d := &discovery{
		Connection: x.Connection, asker: nodeSide(x.from, x.dev()), owner: nodeSide(x.to, in), address: x.hop, waits: x.src,
		dst: x.dst, back: x.from.State != x.Client.State,
	}
	return d.fails(report.SegmentNetwork, place)
}

// podSide is the pod as the end of its pair.
func (v *veth) podSide() side { return side{v.pod, v.dev, v.podPlace, v.node.Name} }

// findsPod judges whether the node finds the pod's link-layer address.
func (v *veth) findsPod(p *netfilter.Packet) (s report.Segment, ok bool) {
	d := &discovery{
		Connection: v.Connection, asker: nodeSide(v.node, p.Out), owner: v.podSide(), address: p.Hop(), waits: p.Src,
		dst: p.Dst, back: v.segment == report.SegmentAnswer,
	}
	return d.fails(v.segment, v.place)
}

// findsNode judges whether the pod finds the link-layer address of its next hop, for which the node answers.
func (v *veth) findsNode() (s report.Segment, ok bool) {
	d := &discovery{
		Connection: v.Connection, asker: v.podSide(), owner: nodeSide(v.node, v.bridge()), address: v.hop, waits: v.from,
		dst: v.dst, back: v.segment == report.SegmentAnswer,
	}
	return d.fails(v.segment, v.place)
}
