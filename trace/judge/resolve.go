// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Findings about rules that drop the packets by which link-layer addresses are found: ARP, and neighbour discovery.
const (
	// NeighbourBlocked says that the kernel cannot find the next hop's link-layer address.
	NeighbourBlocked = endtoend.NeighbourBlocked
	// NeighbourLapses says that it has one which it cannot confirm, or that it may not find it.
	NeighbourLapses = "NeighbourLapses"
)

var letResolve = advice("find who owns {where}, and make it allow the packets that find link-layer addresses: ARP " +
	"for IPv4, for IPv6 ICMPv6 of the types 135 and 136 (in nftables nd-neighbor-solicit and nd-neighbor-advert)")

var (
	_ = register(kind{
		code: NeighbourBlocked, severity: mismatch, scope: onPath, remedy: letResolve,
		by: &detector{stage: stageSettings, path: func(p *pathCase) []issue { return p.unresolvable(stageSettings) }},
	})
	_ = register(kind{
		code: NeighbourLapses, severity: note, scope: onPath, remedy: letResolve,
		by: &detector{stage: stageOnward, path: func(p *pathCase) []issue { return p.unresolvable(stageOnward) }},
	})
)

// blocked is why the link-layer address of a next hop may not be found.
type blocked struct {
	certain  bool // and is not
	where    netfilter.Ref
	message  string
	evidence []report.Evidence
	fix      report.Remedy // where no rule is at fault
}

// passes walks a packet, once for all paths.
func (p *pathCase) passes(r netfilter.Resolution) netfilter.Passing {
	if x, ok := p.resolved[r]; ok {
		return x
	}
	x := p.walker.ResolutionPasses(&r)
	if p.resolved == nil {
		p.resolved = map[netfilter.Resolution]netfilter.Passing{}
	}
	p.resolved[r] = x
	return x
}

// ownAddress is what the node's questions on an interface come from, as arp_solicit in net/ipv4/arp.c and
// ndisc_send_ns in net/ipv6/ndisc.c choose it; the zero Addr where it may be one of several.
func (p *pathCase) ownAddress(dev string, v4 bool) netip.Addr {
	var own, link []netip.Addr
	for _, a := range p.net.AddressesOn(dev) {
		switch {
		case a.Is4() != v4:
		case !v4 && a.IsLinkLocalUnicast():
			link = append(link, a)
		default:
			own = append(own, a)
		}
	}
	switch {
	case v4 && len(own) == 1:
		return own[0]
	case !v4 && len(link) == 1 && (p.want.Origin.Kind != expect.FromNode || len(own) == 0):
		return link[0]
	}
	return netip.Addr{}
}

// asks are the packets by which the node finds a next hop's link-layer address: the question and the answer. again: it
// has an address, and asks for that one whether it is still so (neigh_probe in net/core/neighbour.c).
func (p *pathCase) asks(h hop, again bool) [2]netfilter.Resolution {
	own := p.ownAddress(h.dev, h.ip.Is4())
	to := h.ip
	if !to.Is4() && !again {
		to = host.SolicitedNode(to)
	}
	return [2]netfilter.Resolution{
		{Dev: h.dev, Neighbour: h.ip, Src: own, Dst: to, Leaves: true},
		{Dev: h.dev, Neighbour: h.ip, Src: h.ip, Dst: own, Answer: true},
	}
}

// asksOf are those by which a neighbour finds the node's: which address it asks for is known where the node has one
// there beside that of the link. A question of IPv6 goes to a group.
func (p *pathCase) asksOf(h hop) [2]netfilter.Resolution {
	from := h.ip
	if !from.Is4() {
		from = netip.Addr{} // another router asks from an address of the link
	}
	to := p.net.OnlyAddress(h.dev, h.ip.Is4())
	if to.IsValid() && !to.Is4() {
		to = host.SolicitedNode(to)
	}
	return [2]netfilter.Resolution{
		{Dev: h.dev, Neighbour: h.ip, Src: from, Dst: to},
		{Dev: h.dev, Neighbour: h.ip, Dst: from, Answer: true, Leaves: true},
	}
}

// blockedAt says why the kernel may not find the link-layer address of a next hop of the path that ends there; nil
// where nothing keeps it from that.
func (p *pathCase) blockedAt(h hop, end *netfilter.Outcome) *blocked {
	if !p.net.Resolves(h.dev) {
		return nil
	}
	e, has := p.net.Neighbour(h.dev, h.ip)
	if has && e.Static {
		return nil
	}
	valid := has && !e.Failed
	if b := p.neverAsks(h); b != nil && !valid {
		b.evidence = append(b.evidence, say(p.entry(h, &e, has))...)
		return b
	}
	if !h.ip.Is4() && p.net.NoLinkLocal(h.dev) {
		if b := p.nobodyAsks(h, end, valid); b != nil {
			b.evidence = append(b.evidence, say(p.entry(h, &e, has))...)
			return b
		}
	}
	for i, r := range p.asks(h, valid) {
		x := p.passes(r)
		if x.Lost == nil && (len(x.Unsure) == 0 || valid) {
			continue // an entry shows that it was found
		}
		b := &blocked{evidence: say(p.entry(h, &e, has))}
		what := netfilter.ResolutionName(h.ip, i == 1)
		if x.Lost == nil {
			u := &x.Unsure[0]
			b.where = u.Where
			b.message = "whether " + what + " gets through is not known: " + u.Why
			b.evidence = append(evidenceOf(u), b.evidence...)
			return b
		}
		b.where = x.Lost.Where
		b.evidence = append([]report.Evidence{cite(b.where)}, b.evidence...)
		b.message = b.where.String() + " drops " + what
		switch {
		case !p.net.HasNeighbours():
			b.message += ", and which neighbours the kernel knows was not collected (" + snapshot.NeighbourFile + ")"
		case valid:
			b.message += ": the entry that there is works until the kernel asks again, some seconds after it is used next"
		case h.ip == p.want.Origin.Address && p.passes(p.asksOf(h)[0]).Lost == nil:
			b.message += ": the kernel learns the client's address only when the client asks for its own"
		default:
			b.certain = true
			b.message += ": the kernel does not find the next hop's link-layer address, and discards packets to it"
		}
		return b
	}
	return nil
}

// neverAsks: the kernel is set to ask for no neighbour on an interface. The client asks for the node, which learns its
// address so.
func (p *pathCase) neverAsks(h hop) *blocked {
	never := p.net.NeverAsks(h.dev, h.ip.Is4())
	if never == nil {
		return nil
	}
	b := &blocked{
		certain:  p.net.HasNeighbours() && h.ip != p.want.Origin.Address,
		evidence: say(never...),
		message: "the kernel asks for no neighbour on " + h.dev + ": it does not find the next hop's link-layer address, " +
			"and discards packets to it",
	}
	if !b.certain {
		b.message = "the kernel asks for no neighbour on " + h.dev + ": it finds the next hop's link-layer address only " +
			"when that one asks for the node's own"
	}
	r, commands, _ := ofSetting(b.evidence, p.Name)
	b.fix = p.advise(r, &issue{})
	b.fix.Commands = commands
	return b
}

// nobodyAsks: on an interface without an address of the link the kernel asks for a neighbour only when the packet that
// waits for it is from another address of that interface (ndisc_solicit and ndisc_ns_create in net/ipv6/ndisc.c).
// valid: it has an entry, which it has to confirm some time after it is used. The client asks for the node, which
// learns its address so.
func (p *pathCase) nobodyAsks(h hop, end *netfilter.Outcome, valid bool) *blocked {
	src := p.want.Frontend.Address
	request := end.Packet.Out == h.dev && (end.Packet.NextHop == h.ip || end.Packet.Dst == h.ip)
	if request {
		src = end.Packet.Src
	}
	if !src.IsValid() || p.net.UsableOn(h.dev, src) {
		return nil
	}
	b := &blocked{
		certain:  request && !valid,
		evidence: say("ip -6 addr: " + h.dev + " has no address of the link that is in use (fe80::/10)"),
		message: h.dev + " has no IPv6 address of the link, from which the kernel asks for neighbours when it forwards: it " +
			"does not find the next hop's link-layer address",
		fix: report.Remedy{Text: "give the interface such an address, and find what has removed it (ip -6 addr flush) or " +
			"keeps the kernel from making one (addr_gen_mode)"},
	}
	if !b.certain {
		b.message += " when it has to confirm the entry that there is"
	}
	if own := host.LinkLocal(p.net.MAC(h.dev)); own.IsValid() {
		b.fix.Commands = []report.Command{p.onNode("", "ip", "-6", "addr", "add", own.String()+"/64", "dev", h.dev)}
	}
	return b
}

// between says why an endpoint on the same bridge may not find the client that it answers as its neighbour; the zero
// Ref where nothing keeps it from that.
func (p *pathCase) between(end *netfilter.Outcome) netfilter.Ref {
	o := &p.want.Origin
	if !p.neighbours(o, end) || end.Packet.Dst == o.Address {
		return netfilter.Ref{}
	}
	asks, tells := end.Packet.Dst, o.Address
	to := tells
	if !to.Is4() {
		to = host.SolicitedNode(to)
	}
	for _, r := range []netfilter.Resolution{
		{Dev: o.Iface, Neighbour: asks, Src: asks, Dst: to, Between: [2]netip.Addr{asks, tells}},
		{Dev: o.Iface, Neighbour: asks, Src: tells, Dst: asks, Answer: true, Between: [2]netip.Addr{tells, asks}},
	} {
		if x := p.passes(r); x.Lost != nil {
			return x.Lost.Where
		}
	}
	return netfilter.Ref{}
}

// entry is what the neighbour table has of a next hop.
func (p *pathCase) entry(h hop, e *host.Neighbour, has bool) string {
	switch {
	case !p.net.HasNeighbours():
		return ""
	case !has:
		return p.routeBy(h) + fmt.Sprintf("ip neigh has no entry of %s dev %s", h.ip, h.dev)
	case e.MAC == "":
		return p.routeBy(h) + fmt.Sprintf("ip neigh: %s dev %s %s", h.ip, h.dev, e.State)
	}
	return p.routeBy(h) + fmt.Sprintf("ip neigh: %s dev %s lladdr %s %s", h.ip, h.dev, e.MAC, e.State)
}

// unresolvable finds the next hops whose link-layer address the kernel does not find, or may not find; for the latter
// the path is Unknown.
func (p *pathCase) unresolvable(st stage) []issue {
	if p.want.Action != expect.DNAT || st == stageOnward && p.verdict == report.Mismatch {
		return nil
	}
	var out []issue
	for i, hops := range p.everyHop(false) {
		if len(hops) == 0 {
			continue
		}
		end := &p.res.Outcomes[i]
		if st == stageSettings {
			if !end.Certain {
				continue
			}
			hops = p.hops(&p.want.Origin, end)
		}
		for _, h := range hops {
			b := p.blockedAt(h, end)
			if b == nil || b.certain != (st == stageSettings) {
				continue
			}
			out = p.addBlocked(out, b, netip.AddrPortFrom(end.Packet.Dst, end.Packet.DstPort))
		}
	}
	if len(out) > 0 && st == stageOnward {
		p.verdict = report.Unknown
	}
	return out[:min(len(out), maxEvidence)]
}

// addBlocked adds what keeps the kernel from sending to an endpoint, to the issue of the same rule where there is one.
func (p *pathCase) addBlocked(out []issue, b *blocked, to netip.AddrPort) []issue {
	at := slices.IndexFunc(out, func(is issue) bool {
		return is.where == b.where && (is.code == NeighbourBlocked) == b.certain
	})
	if at < 0 {
		is := issue{
			code: NeighbourBlocked, where: b.where, message: b.message, evidence: b.evidence, expected: describe(p.want),
			actual: "does not arrive",
		}
		if !b.certain {
			is.code, is.actual = NeighbourLapses, mayNotArrive
		}
		if is.remedy = b.fix; is.remedy.IsZero() {
			is.remedy = p.advise(letResolve, &is)
			is.remedy.Commands = append(is.remedy.Commands, p.objectAt(b.where, familyOf(p.want.Frontend))...)
		}
		at, out = len(out), append(out, is)
	}
	is := &out[at]
	if text := addressText(to); !slices.Contains(is.endpoints, text) {
		is.endpoints = append(is.endpoints, text)
		is.subject = cut(is.endpoints, 4)
	}
	for _, e := range b.evidence {
		if !slices.Contains(is.evidence, e) && len(is.evidence) < maxEvidence {
			is.evidence = append(is.evidence, e)
		}
	}
	return out
}
