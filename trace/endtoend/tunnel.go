// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// form is how a kind of tunnel puts packets into others.
type form struct {
	name  string
	proto uint8 // of the outer packets
	adds  int   // bytes to a packet, without options
	// frames: what it carries are frames, to the link-layer address of the next hop.
	frames bool
	// fallback is the interface that takes what no other one does (ip_tunnel_lookup in net/ipv4/ip_tunnel.c); "" for
	// none.
	fallback string
	// toHop returns where a packet to a next hop goes if the interface has no other end set; the zero Addr where that is
	// not known.
	toHop func(h *host.Network, dev string, hop netip.Addr) netip.Addr
}

// The protocols that tunnels use (RFC 2003, RFC 2784).
const (
	protoIPIP = 4
	protoGRE  = 47
)

// greKey is how many bytes a key adds.
const greKey = 4

// forms are by the kind of interface.
var forms = map[string]*form{
	// Without another end the packet goes to its next hop (ip_tunnel_xmit).
	"ipip": {name: "IPIP", proto: protoIPIP, adds: 20, fallback: "tunl0", toHop: toIPv4},
	// GRE takes it from the neighbour entry, whose link-layer address is one of IP (ipgre_header in net/ipv4/ip_gre.c).
	"gre":    {name: "GRE", proto: protoGRE, adds: 24, fallback: "gre0", toHop: toNeighbour},
	"geneve": {name: "Geneve", proto: netfilter.UDP, adds: 30, frames: true}, // and the outer IP header
}

func toIPv4(_ *host.Network, _ string, hop netip.Addr) netip.Addr {
	if hop.Is4() {
		return hop
	}
	return netip.Addr{}
}

func toNeighbour(h *host.Network, dev string, hop netip.Addr) netip.Addr {
	e, _ := h.Neighbour(dev, hop)
	a, err := netip.ParseAddr(e.MAC)
	if err != nil || a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}

// encapsulated judges a tunnel whose interface says where packets go: its other end, and the outer packet.
func (x *crossing) encapsulated(place string) (s report.Segment, in string) {
	const segment = report.SegmentNetwork
	t, ok := x.from.Host.Tunnel(x.out)
	show := "ip -d link show " + x.out
	if !ok || t.External {
		return unknown(segment, place, x.from.Name, show,
			"where %s sends packets is decided by a route or a program, and not by the interface", x.out), ""
	}
	f := forms[t.Kind]
	e := f.envelope(&t, x.mark)
	end, line := t.Remote, fmt.Sprintf("ip -d link: %s remote %s", x.out, t.Remote)
	if !end.IsValid() && f.toHop != nil {
		end, line = f.toHop(x.from.Host, x.out, x.hop), fmt.Sprintf("ip route get %s: %s dev %s", x.dst, x.hop, x.out)
	}
	if !end.IsValid() {
		return unknown(segment, place, x.from.Name, show, "%s has no other end, and where it sends packets for %s is not "+
			"known", x.out, x.hop), ""
	}
	if f.frames {
		e.adds += ipHeader(end)
	}
	if s, ok := x.atNode(place, "packets for "+x.hop.String(), show, line, end); !ok {
		return s, ""
	}
	arrival, s, ok := x.outer(place, e, end)
	if !ok {
		return s, ""
	}
	in, s = x.receiver(place, &t, e, &arrival)
	if in == "" {
		return s, ""
	}
	if f.frames {
		if s, own := x.ownFrames(place, in); own {
			return s, ""
		}
		if s, ok := x.neighbour(place, in); !ok {
			return s, in
		}
	}
	if s, ok := x.tunnelSizes(place, e, end, arrival.In); !ok {
		return s, in
	}
	return right(segment, place, "%s by %s to %s (%s of %s)", e.name, x.out, end, in, x.to.Name), in
}

// ipHeader is how many bytes the IP header of a packet to an address has, without options.
func ipHeader(a netip.Addr) int {
	if a.Is4() {
		return 20
	}
	return 40
}

// envelope is what an interface puts a packet into. The outer packet keeps the mark of the inner one (iptunnel_xmit in
// net/ipv4/ip_tunnel_core.c scrubs it only between namespaces).
func (f *form) envelope(t *host.Tunnel, mark uint32) *envelope {
	e := &envelope{
		name: f.name, proto: f.proto, port: t.Port, src: t.Local, mark: mark, tos: t.TOS, adds: f.adds, ttl: t.TTL,
	}
	switch {
	case t.Kind == "geneve":
		e.name = fmt.Sprintf("Geneve %d", t.ID)
	case t.OutKey != "":
		e.name, e.adds = "GRE with the key "+t.OutKey, e.adds+greKey
	}
	return e
}

// receiver finds the interface of the other node that takes the outer packet; "" and a segment where none does.
func (x *crossing) receiver(place string, t *host.Tunnel, e *envelope, p *netfilter.Packet) (
	dev string, s report.Segment,
) {
	const segment = report.SegmentNetwork
	if _, known := x.to.Host.Kind("lo"); !known {
		return "", unknown(segment, place, x.to.Name, "ip -d link", "the interfaces of %s were not read (%s)", x.to.Name,
			snapshot.LinkFile)
	}
	best, other := -1, []string(nil)
	for _, d := range x.to.Host.Devs() {
		if kind, _ := x.to.Host.Kind(d); kind != t.Kind {
			continue
		}
		o, ok := x.to.Host.Tunnel(d)
		up, known := x.to.Host.Up(d)
		switch fit := fits(&o, t, p); {
		case !ok || o.External || !known:
			return "", unknown(segment, place, x.to.Name, "ip -d link show "+d,
				"whether %s of %s takes the packets of %s is not known", d, x.to.Name, e.name)
		case !up:
			other = append(other, fmt.Sprintf("ip link on %s: %s is not UP", x.to.Name, d))
		case d == forms[t.Kind].fallback && best < 0:
			best, dev = 0, d
		case d != forms[t.Kind].fallback && fit > best:
			best, dev = fit, d
		default:
			other = append(other, fmt.Sprintf("ip -d link on %s: %s %s", x.to.Name, d, endsOf(&o)))
		}
	}
	if o, _ := x.to.Host.Tunnel(dev); dev != "" && discards(&o, t, p) {
		return "", with(wrong(TunnelPeerMissing, segment, place, ownerOfDevice(x.out),
			"%s of %s takes other packets of %s than those that %s of %s sends", dev, x.to.Name, e.name, x.out, x.from.Name),
			fmt.Sprintf("ip -d link on %s: %s %s", x.from.Name, x.out, sendsOf(t)),
			fmt.Sprintf("ip -d link on %s: %s %s", x.to.Name, dev, endsOf(&o)))
	}
	if dev != "" {
		return dev, s
	}
	return "", with(wrong(TunnelPeerMissing, segment, place, ownerOfDevice(x.out),
		"no interface of %s takes the packets of %s that come from %s", x.to.Name, e.name, p.Src), other...)
}

// fits tells how well an interface of a node fits a packet that one of another node has sent: -1 if it does not take
// it. The kernel prefers one with both ends, then the other end alone, then its own (ip_tunnel_lookup).
func fits(o, sent *host.Tunnel, p *netfilter.Packet) int {
	const own, other = 1, 2
	fit := 1
	switch {
	case o.InKey != sent.OutKey, o.ID != sent.ID, o.Port != sent.Port,
		o.Remote.IsValid() && o.Remote != p.Src, o.Local.IsValid() && o.Local != p.Dst:
		return -1
	}
	if o.Local.IsValid() {
		fit += own
	}
	if o.Remote.IsValid() {
		fit += other
	}
	return fit
}

// discards tells whether an interface discards a packet that is for it: GRE wants a checksum just if packets are to
// have one, and a number if they are (ip_tunnel_rcv in net/ipv4/ip_tunnel.c); of Geneve see [crossing.sameSums].
func discards(o, sent *host.Tunnel, p *netfilter.Packet) bool {
	return o.InSum != sent.OutSum || o.InSeq && !sent.OutSeq || sent.NoSum6 && !o.WithoutSum6 && p.Dst.Is6()
}

// sendsOf says what of an interface's packets decides whether another one takes them.
func sendsOf(t *host.Tunnel) string {
	return flagged([]string{t.Kind}, flag{t.OutSum, "ocsum"}, flag{t.OutSeq, "oseq"}, flag{t.NoSum6, "udp6zerocsumtx"})
}

// endsOf says what an interface takes.
func endsOf(t *host.Tunnel) string {
	text := []string{t.Kind}
	if t.Kind == "geneve" {
		text = append(text, fmt.Sprintf("id %d dstport %d", t.ID, t.Port))
	}
	if t.Remote.IsValid() {
		text = append(text, "remote "+t.Remote.String())
	}
	if t.Local.IsValid() {
		text = append(text, "local "+t.Local.String())
	}
	if t.InKey != "" {
		text = append(text, "ikey "+t.InKey)
	}
	return flagged(text, flag{t.InSum, "icsum"}, flag{t.InSeq, "iseq"}, flag{t.WithoutSum6, "udp6zerocsumrx"})
}

// flag is a word of ip -d link that an interface may have.
type flag struct {
	set  bool
	text string
}

// flagged is a text in words, with the flags that are set.
func flagged(words []string, flags ...flag) string {
	for _, f := range flags {
		if f.set {
			words = append(words, f.text)
		}
	}
	return strings.Join(words, " ")
}
