// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// This file lists what was collected, as text, for those who compare nodes.

// Sysctls yields the settings that were collected, by their paths below /proc/sys.
func (n *Network) Sysctls() iter.Seq2[string, string] { return maps.All(n.sysctl) }

// anycastBits: of a longer prefix than one of 126 bits, a router has no anycast address for all routers of the subnet
// (addrconf_join_anycast in net/ipv6/addrconf.c; RFC 4291, section 2.6.1). The kernel makes it while it forwards.
const anycastBits = 127

// Routes yields the routes of a family with their table, as ip route prints them, in no order; of those of the table
// local only the addresses and prefixes that the kernel has not made of the interfaces' addresses.
func (n *Network) Routes(v4 bool) iter.Seq2[string, string] {
	return func(yield func(table, text string) bool) {
		f := n.family(anyAddr(v4))
		own := make(map[netip.Addr]bool, len(n.addrs)) // kube-ipvs0 has one for each frontend
		for i := range n.addrs {
			own[n.addrs[i].ip] = true
			if p := n.addrs[i].prefix; p.Addr().Is6() && p.Bits() < anycastBits {
				own[p.Masked().Addr()] = true
			}
		}
		for a := range f.local {
			if n.addrs != nil && !own[a] && !a.IsLoopback() && !yield(tableLocal, "local "+a.String()) {
				return
			}
		}
		for i := range f.localNets {
			if p := f.localNets[i].prefix; !p.Addr().IsLoopback() && !yield(tableLocal, "local "+p.String()) {
				return
			}
		}
		for name, t := range f.tables {
			if name == tableLocal {
				continue
			}
			for _, es := range t.at {
				for i := range es {
					e := &es[i]
					text := e.text()
					if e.prefSrc.IsValid() {
						text += " src " + e.prefSrc.String()
					}
					if !yield(name, text) {
						return
					}
				}
			}
		}
	}
}

// RoutingRules returns the rules of policy routing, in their order, as ip rule prints them; nil where they were not
// collected.
func (n *Network) RoutingRules(v4 bool) []string {
	var list []string
	f := n.family(anyAddr(v4))
	if f.rules == nil && f.rulesKnown {
		list = []string{"0: from all lookup local", "32766: from all lookup main", "32767: from all lookup default"}
		if !v4 {
			list = list[:2]
		}
	}
	for i := range f.rules {
		if r := &f.rules[i]; r.unread == "" && !r.implied {
			list = append(list, r.text())
		}
	}
	return list
}

// anyAddr is the address of a family that stands for all.
func anyAddr(v4 bool) netip.Addr {
	if v4 {
		return netip.IPv4Unspecified()
	}
	return unspecified6
}

// LinkText describes an interface: its kind, whether it is up, what it belongs to, and its MTU and program. Link-layer
// addresses and numbers are left out: interfaces of pods have others each time.
func (n *Network) LinkText(dev string) string {
	l := n.links[dev]
	var words []string
	if l.kind != "" {
		words = append(words, l.kind)
	}
	switch {
	case l.flags && !l.up:
		words = append(words, "down")
	case l.flags && l.noCarrier:
		words = append(words, "up, no carrier")
	case l.flags:
		words = append(words, "up")
	}
	if l.noARP {
		words = append(words, "noarp")
	}
	if m := n.master[dev]; m != "" {
		words = append(words, "master "+m)
	}
	if l.lower != "" {
		words = append(words, "on "+l.lower)
	}
	if l.mtu > 0 {
		words = append(words, fmt.Sprintf("mtu %d", l.mtu))
	}
	if l.xdp != "" {
		words = append(words, "xdp")
	}
	if b := n.bridges[n.master[dev]]; b != nil {
		words = append(words, b.port(dev).words()...)
	}
	return strings.Join(words, " ")
}

// words are the flags of a bridge's port that are not what a port has by itself.
func (p *port) words() (out []string) {
	if p == nil {
		return nil
	}
	for _, x := range []struct {
		is   bool
		word string
	}{
		{p.hairpin != nil && *p.hairpin, "hairpin"},
		{p.isolated != nil && *p.isolated, "isolated"},
		{p.locked, "locked"},
		{off(p.floods[0]), "flood off"},
		{off(p.floods[1]), "bcast_flood off"},
		{off(p.floods[2]), "mcast_flood off"},
		{p.state != "" && p.state != "forwarding", p.state},
	} {
		if x.is {
			out = append(out, x.word)
		}
	}
	return out
}

func off(flag *bool) bool { return flag != nil && !*flag }

// TunnelText describes the parameters of a tunnel's interface, as ip -d link names them; "" where it is none, and where
// they were not collected.
func (n *Network) TunnelText(dev string) string {
	var words []string
	add := func(is bool, word string, value any) {
		if is {
			words = append(words, strings.TrimSpace(fmt.Sprint(word, " ", value)))
		}
	}
	if v, ok := n.vxlans[dev]; ok {
		add(true, "vxlan id", v.ID)
		add(v.Port != 0, "port", v.Port)
		add(v.Local.IsValid(), "local", v.Local)
		add(v.Remote.IsValid(), "remote", v.Remote)
		add(v.Lower != "", "on", v.Lower)
		add(v.External, "external", "")
		add(v.Proxy, "proxy", "")
	}
	if t, ok := n.tunnels[dev]; ok {
		add(true, t.Kind, "")
		add(t.ID != 0, "id", t.ID)
		add(t.Port != 0, "port", t.Port)
		add(t.Local.IsValid(), "local", t.Local)
		add(t.Remote.IsValid(), "remote", t.Remote)
		add(t.InKey != "", "ikey", t.InKey)
		add(t.OutKey != "", "okey", t.OutKey)
		add(t.TTL != 0, "ttl", t.TTL)
		add(t.External, "external", "")
	}
	return strings.Join(words, " ")
}

// SetForwardings describes the entries of a bridge that somebody has set, and those that are sticky or of the bridge
// itself with an address that is not its own: what a bridge learns comes and goes.
func (n *Network) SetForwardings(bridge string) []string {
	var out []string
	for what, list := range map[string][]learned{
		"static": n.set[bridge], "sticky": n.fixed[bridge], "of the bridge itself": n.bridgeOwn[bridge],
	} {
		for _, x := range list {
			if x.port != bridge || !strings.EqualFold(x.mac, n.links[bridge].mac) {
				out = append(out, x.mac+" at "+x.port+" "+what)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// LinkAddresses returns the addresses of an interface with their prefixes; not those of IPv6 that the kernel makes by
// itself (link-local).
func (n *Network) LinkAddresses(dev string) []string {
	var out []string
	for _, i := range n.devs[dev] {
		if a := &n.addrs[i]; !(a.ip.Is6() && a.ip.IsLinkLocalUnicast()) {
			out = append(out, netip.PrefixFrom(a.ip, a.prefix.Bits()).String())
		}
	}
	slices.Sort(out)
	return out
}

// EachNeighbour yields the entries of the neighbour table, with the interface and the address, in no order.
func (n *Network) EachNeighbour(f func(dev string, ip netip.Addr, e Neighbour)) {
	for k, e := range n.neighbours {
		f(k.dev, k.ip, e)
	}
}

// EachProxied yields the addresses for which the node answers in place of others, with the interface, in no order.
func (n *Network) EachProxied(f func(dev string, ip netip.Addr)) {
	for k := range n.proxied {
		f(k.dev, k.ip)
	}
}
