// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
)

// The packets by which a link-layer address is found: the type of ICMPv6 (RFC 4861, section 4.3 and 4.4), the operation
// of ARP (RFC 826).
const (
	Solicitation  uint8 = 135
	Advertisement uint8 = 136
	ARPRequest    uint8 = 1
	ARPReply      uint8 = 2
)

// Resolves tells whether a packet is one by which a link-layer address is found.
func (p *Packet) Resolves() bool {
	return p.Family == ARP || p.Proto == ICMPv6 && (p.Type == Solicitation || p.Type == Advertisement)
}

// Resolution is a packet by which a neighbour's link-layer address is found, or the node's own: it comes in by Dev, or
// leaves by it. An address of it that is not known is the zero Addr.
type Resolution struct {
	Dev       string
	Neighbour netip.Addr // that has the address, or asks
	Src, Dst  netip.Addr // of ARP those of the protocol in it
	Answer    bool       // and not the question
	Leaves    bool       // the node sends it
	// Between are the two hosts of one that a bridge, Dev, forwards from one to the other: the node has no part in it.
	Between [2]netip.Addr
}

// packet makes it. Connection tracking leaves it out (nf_conntrack_icmpv6_error in
// net/netfilter/nf_conntrack_proto_icmpv6.c).
func (r *Resolution) packet() Packet {
	p := Packet{Family: ARP, Type: ARPRequest, Src: r.Src, Dst: r.Dst, OrigSrc: r.Src, OrigDst: r.Dst}
	if r.Answer {
		p.Type = ARPReply
	}
	if !r.Neighbour.Is4() {
		p.Family, p.Proto, p.Type, p.Untracked = IPv6, ICMPv6, p.Type-ARPRequest+Solicitation, true
	}
	if p.In = r.Dev; r.Leaves {
		p.In, p.Out, p.Local = "", r.Dev, true
		p.route = routed{known: true, out: r.Dev, src: r.Src}
	}
	return p
}

// ResolutionName names the packet that asks for an address, or answers.
func ResolutionName(of netip.Addr, answer bool) string {
	names := [2]string{"the neighbour solicitation for " + of.String(), "the neighbour advertisement of " + of.String()}
	if of.Is4() {
		names = [2]string{"the ARP request for " + of.String(), "the ARP reply of " + of.String()}
	}
	if answer {
		return names[1]
	}
	return names[0]
}

// Passing is what becomes of packets by which a link-layer address is found.
type Passing struct {
	Lost   *Outcome // one that ends them; nil where they may pass
	Unsure []Uncertain
}

// ResolutionPasses walks a packet by which a link-layer address is found, and says whether it may pass.
func (w *Walker) ResolutionPasses(r *Resolution) (x Passing) {
	res := w.Resolve(r)
	passes, open := false, false
	for i := range res.Outcomes {
		switch o := &res.Outcomes[i]; o.End {
		case Sent, Delivered:
			passes = true
			open = open || !o.Certain
		case Taken, Lost:
			open = true
			if len(res.Uncertain) == 0 {
				x.Unsure = append(x.Unsure, Uncertain{Where: o.Where, What: o.Where.String(), Why: o.Why})
			}
		default:
			if x.Lost == nil {
				end := *o
				x.Lost = &end
			}
		}
	}
	switch {
	case passes && !open:
		x = Passing{}
	case passes || open:
		x.Lost, x.Unsure = nil, append(x.Unsure, res.Uncertain...)
	}
	return x
}

// Resolve walks a packet by which a link-layer address is found. Those of IPv6 meet PREROUTING and INPUT, or OUTPUT and
// POSTROUTING (ndisc_send_skb in net/ipv6/ndisc.c), those of ARP INPUT or OUTPUT of its own tables (arp_rcv and
// arp_xmit in net/ipv4/arp.c), and both what is at the devices and bridges. The chains that it comes to belong to the
// classes of a Trail.
func (w *Walker) Resolve(r *Resolution) Result {
	w.reset(Options{})
	w.trail, w.classTrail = w.classTrail, w.trail
	defer func() { w.trail, w.classTrail = w.classTrail, w.trail }()
	p := r.packet()
	w.start = p
	alive := []branch{{pkt: p, p: 1}}
	if r.Between[0].IsValid() {
		w.across(r, alive)
		return w.result()
	}
	if !r.Leaves {
		w.finish(w.hook(Input, w.comeIn(alive, r.Neighbour), true), Delivered)
		return w.result()
	}
	alive = w.hook(Postrouting, w.hook(Output, alive, true), true)
	if len(alive) > 0 && w.linked[p.Family] {
		alive = w.outBy(alive, r.Dev, r.Neighbour)
	}
	w.finish(alive, Sent)
	return w.result()
}

// across takes a packet that is for another host through a bridge to its end. What br_netfilter runs in the middle are
// the chains of IPv6; those of ARP are only the tables of arptables (br_nf_forward_arp in
// net/bridge/br_netfilter_hooks.c).
func (w *Walker) across(r *Resolution, alive []branch) {
	from, to := w.below(r.Dev, r.Between[0]), w.below(r.Dev, r.Between[1])
	if len(from) == 0 || len(to) == 0 {
		w.finish(alive, Sent)
		return
	}
	in, out := w.nameOf(from[0].Devs), w.nameOf(to[0].Devs)
	alive = setIfaces(w.atDevice(Ingress, &from[0], alive), in, "")
	var with, without []branch
	for _, b := range alive {
		on, known := w.host.BridgeCalls(r.Dev, false)
		switch {
		case b.pkt.Family == ARP || known && !on:
			without = append(without, b)
		case known:
			with = append(with, b)
		default:
			yes, no := w.fork(b, callsKey{r.Dev}, Uncertain{
				What: "whether " + r.Dev + " runs iptables on what it forwards",
				Why:  "net.bridge.bridge-nf-call-ip6tables was not collected (sysctl.txt)",
			})
			with, without = append(with, yes), append(without, no)
		}
	}
	slots := w.slots[w.start.Family]
	for i, bs := range [][]branch{with, without} {
		for _, h := range []Hook{BridgePrerouting, BridgeForward, BridgePostrouting} {
			if len(bs) == 0 {
				break
			}
			port := out
			switch h {
			case BridgePrerouting:
				port = in
				bs = setIfaces(bs, in, "")
			case BridgeForward:
				bs = setIfaces(bs, in, out)
			default:
				bs = setIfaces(bs, "", out)
			}
			at := slots[h]
			if i == 0 {
				at = w.calling(at, h, &host.Layer{Devs: from[0].Devs, Bridge: r.Dev}, port)
			}
			bs = slices.Clone(w.through(h, at, bs, true))
		}
		if len(bs) > 0 {
			w.finish(w.atDevice(Egress, &to[0], bs), Sent)
		}
	}
}
