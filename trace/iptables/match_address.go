// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

func source(p *netfilter.Packet) netip.Addr      { return p.Src }
func destination(p *netfilter.Packet) netip.Addr { return p.Dst }

// addrIn reads ADDRESS[/MASK].
func addrIn(of func(*netfilter.Packet) netip.Addr) reader {
	return withArg(func(arg string) (cond, bool) {
		n, _, ok := readNetwork(arg)
		return func(c *netfilter.Context) truth { return n.has(of(c.Packet)) }, ok
	})
}

// ipRange reads FIRST-LAST.
func ipRange(of func(*netfilter.Packet) netip.Addr) reader {
	return withArg(func(arg string) (cond, bool) {
		lo, hi, isRange := strings.Cut(arg, "-")
		if !isRange {
			hi = lo
		}
		a, err1 := netip.ParseAddr(lo)
		b, err2 := netip.ParseAddr(hi)
		return func(c *netfilter.Context) truth {
			x := of(c.Packet)
			return op.Known(a.Compare(x) <= 0 && x.Compare(b) <= 0, x.IsValid())
		}, err1 == nil && err2 == nil
	})
}

// addrTypes are the types of addrtype. No address has one without a RouteType (ANYCAST: none that the walk knows).
var addrTypes = map[string]host.RouteType{
	"LOCAL": host.RouteLocal, "UNICAST": host.RouteUnicast, "BROADCAST": host.RouteBroadcast,
	"MULTICAST": host.RouteMulticast,
	"BLACKHOLE": host.RouteBlackhole, "UNREACHABLE": host.RouteUnreachable, "PROHIBIT": host.RouteProhibit,
	"ANYCAST": "anycast", "UNSPEC": "unspec", "THROW": "throw", "NAT": "nat", "XRESOLVE": "xresolve",
}

// addrType is net/netfilter/xt_addrtype.c.
func addrType(s *ruleSpec, opts []option, text string) (netfilter.Op, bool) {
	var dev func(p *netfilter.Packet) string
	var conds []cond
	for i := range opts {
		switch opts[i].name {
		case "--limit-iface-in":
			dev = func(p *netfilter.Packet) string { return p.In }
		case "--limit-iface-out":
			dev = func(p *netfilter.Packet) string { return p.Out }
		}
	}
	for i := range opts {
		o := &opts[i]
		of := source
		switch o.name {
		case "--limit-iface-in", "--limit-iface-out":
			if o.not || len(o.args) != 0 {
				return nil, false
			}
			continue
		case "--dst-type":
			of = destination
		case "--src-type":
		default:
			return nil, false
		}
		f, ok := typeOf(s.family, o, of, dev)
		if !ok {
			return nil, false
		}
		if o.not {
			f = f.Not()
		}
		conds = append(conds, f)
	}
	return op.Conditions(conds, notInSnapshot(text)+" (ip-addr.json, ip6-route.json)"), true
}

func typeOf(
	family netfilter.Family, o *option, of func(*netfilter.Packet) netip.Addr, dev func(*netfilter.Packet) string,
) (cond, bool) {
	arg, ok := o.arg()
	var types []host.RouteType
	for s := range strings.SplitSeq(arg, ",") {
		t, known := addrTypes[s]
		if !known {
			return nil, false
		}
		types = append(types, t)
	}
	ask := anyType
	if family == netfilter.IPv6 {
		ask = everyType
	}
	return func(c *netfilter.Context) truth {
		a, on := of(c.Packet), ""
		if dev != nil {
			on = dev(c.Packet)
		}
		if !a.IsValid() {
			return maybe
		}
		return ask(c, a, on, types)
	}, ok
}

// anyType is match_type: the address's only type is in the list.
func anyType(c *netfilter.Context, a netip.Addr, dev string, types []host.RouteType) truth {
	if len(types) == 1 && types[0] == host.RouteLocal {
		return op.LocalOn(c, a, dev)
	}
	t, ok := c.Host.AddrType(a)
	if ok && t == host.RouteLocal {
		// Where the address is on another interface than dev, it is not local but unicast (__inet_dev_addr_type in
		// net/ipv4/fib_frontend.c).
		switch op.LocalOn(c, a, dev) {
		case no:
			t = host.RouteUnicast
		case maybe:
			ok = slices.Contains(types, host.RouteLocal) == slices.Contains(types, host.RouteUnicast)
		case yes:
		}
	}
	return op.Known(slices.Contains(types, t), ok)
}

// everyType is match_type6: each type of the list is a condition of its own, but LOCAL, ANYCAST and UNREACHABLE are
// one.
func everyType(c *netfilter.Context, a netip.Addr, dev string, types []host.RouteType) truth {
	asked, found := false, no
	for _, t := range types {
		switch t {
		case host.RouteUnicast:
			if a.IsMulticast() {
				return no
			}
		case host.RouteMulticast:
			if !a.IsMulticast() {
				return no
			}
		case "unspec":
			if !a.IsUnspecified() {
				return no
			}
		case host.RouteLocal:
			asked, found = true, found.Or(op.LocalOn(c, a, dev))
		case host.RouteUnreachable, "anycast":
			asked, found = true, found.Or(maybe)
		default: // not of IPv6: addrtype_mt_checkentry_v1 refuses it
			return maybe
		}
	}
	if asked {
		return found
	}
	return yes
}

// rpfilter matches by the route back to the packet's source (net/ipv4/netfilter/ipt_rpfilter.c,
// net/ipv6/netfilter/ip6t_rpfilter.c).
func rpfilter(_ *ruleSpec, opts []option, text string) (netfilter.Op, bool) {
	var back op.Back
	var invert bool
	for i := range opts {
		o := &opts[i]
		switch o.name {
		case "--loose":
			back.Loose = true
		case "--accept-local":
			back.Local = true
		case "--invert":
			invert = true
		case "--validmark":
			back.Mark = true
		default:
			return nil, false
		}
		if o.not || len(o.args) != 0 {
			return nil, false
		}
	}
	f := cond(func(c *netfilter.Context) truth { return op.RouteBack(c, back) })
	if invert {
		f = f.Not()
	}
	return op.Conditions([]cond{f}, notInSnapshot(text)), true
}
