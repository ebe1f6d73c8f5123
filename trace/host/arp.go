// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"
)

// AnswersARP tells whether the node answers where another host on an interface asks by ARP for one of the node's own
// addresses, and why not, with the settings. It is what arp_process in net/ipv4/arp.c asks of the settings: arp_ignore
// (the larger of the interface's and of all counts; inet_confirm_addr in net/ipv4/devinet.c), rp_filter, then
// arp_filter (either of the two turns it on), by which the route to the asker has to be by the interface; arp_rcv
// answers on no interface without ARP. known is false where that was not collected, or is not certain. A setting that
// is missing is not taken for 0.
func (n *Network) AnswersARP(dev string, address, asker netip.Addr) (answers bool, why string, known bool) {
	address, asker = address.Unmap(), asker.Unmap()
	if !address.Is4() || !asker.Is4() || n.addrs == nil {
		return false, "", false
	}
	if l := n.links[dev]; l.flags && l.noARP {
		return false, "ip link: " + dev + " has NOARP", true
	}
	if n.Unrouted(address) {
		return false, "table local has no route to " + address.String() + ", so that the kernel does not take it for the " +
			"node's own", true
	}
	ignore, ok := n.larger(dev, "arp_ignore")
	if !ok {
		// The largest mode of all interfaces is that of each, whatever its own is.
		if ignore.text = "net/ipv4/conf/all/arp_ignore"; n.sysctl[ignore.text] != "8" {
			return false, "", false
		}
		ignore.value, ignore.text = answersNone, ignore.text+"=8"
	}
	if why, known := n.arpIgnored(ignore.value, dev, address, asker); why != "" || !known {
		return false, ignore.text + ": " + why, known
	}
	if why, known := n.arpUnroutable(dev, address, asker); why != "" || !known {
		return false, why, known
	}
	filter, ok := n.larger(dev, "arp_filter")
	if !ok {
		return false, "", false
	}
	if filter.value == 0 {
		return true, "", true
	}
	r := n.Lookup(Query{Dst: asker, Src: address, Local: true, Bare: true})
	if !r.Known || len(r.Hops) > 0 {
		return false, "", false
	}
	if r.Unusable() || r.Dev != dev {
		return false, filter.text + ": the route to " + asker.String() + " is not by " + dev + decided(r.By), true
	}
	return true, "", true
}

// routeText is what a lookup has found, in brackets.
func routeText(l *Lookup) string {
	if l.By.HasRule() {
		return decided(l.By)
	}
	return " (" + cmp.Or(l.By.String(), string(l.Type)) + ")"
}

// AnswersForOthers tells whether the node may answer by ARP on an interface for an address that is not its own, if its
// route to that is by another interface, with proxy_arp_pvlan also by the same (arp_process, arp_fwd_proxy and
// arp_fwd_pvlan in net/ipv4/arp.c); by what it does. known is false where that was not collected; by then says what is
// missing, as a person would ask for it.
func (n *Network) AnswersForOthers(dev string, ip netip.Addr) (may bool, by string, known bool) {
	for _, name := range []string{proxyARP, "proxy_arp_pvlan"} {
		if name == proxyARP && n.sameMedium(dev, ip) {
			continue
		}
		for _, of := range []string{"all", dev} { // either of the two turns it on; before Linux 5.10.4 not for pvlan
			key := "net/ipv4/conf/" + of + "/" + name
			switch value, there := n.Sysctl(key); {
			case there && value != "0":
				return true, key + "=" + value, true
			case !there && by == "":
				by = "sysctl " + key
			}
		}
	}
	ip = ip.Unmap()
	if n.answersInPlaceOf(dev, ip) {
		return true, "ip neigh: proxy " + ip.String() + " dev " + dev, true
	}
	if n.proxied == nil && by == "" {
		by = "ip neigh show proxy"
	}
	return false, by, by == ""
}

// answersInPlaceOf tells whether there is an entry by which the node answers for an address on an interface, or on all.
func (n *Network) answersInPlaceOf(dev string, ip netip.Addr) bool {
	return n.proxied[neighbourKey{dev, ip}] || n.proxied[neighbourKey{"", ip}]
}

const proxyARP = "proxy_arp"

// sameMedium tells whether proxy_arp does not answer on an interface as medium_id says that who asks and who is asked
// for share a link: -1, or that of the interface to which the route leads (arp_fwd_proxy in net/ipv4/arp.c).
func (n *Network) sameMedium(dev string, ip netip.Addr) bool {
	medium := func(dev string) string { return n.sysctl["net/ipv4/conf/"+dev+"/medium_id"] }
	own := medium(dev)
	if own == "" || own == "0" {
		return false
	}
	l := n.Lookup(Query{Dst: ip, AnyMark: true, AnyUID: true})
	return own == "-1" || l.Known && (medium(l.Dev) == own || medium(l.Dev) == "-1")
}

// NoProxy says why the kernel does not answer on an interface for an address of others, though a setting or an entry
// lets it: it routes the question as a packet from the asker, and answers where that route is usable and by another
// interface, or with proxy_arp_pvlan by the same; and medium_id may say that both share a link (arp_process and
// arp_fwd_proxy in net/ipv4/arp.c). by is the route. "" where it may answer, and where nothing lets it.
func (n *Network) NoProxy(dev string, ip, asker netip.Addr) (why string, by Decision) {
	all, _ := n.Sysctl("net/ipv4/conf/all/" + proxyARP)
	own, _ := n.Sysctl("net/ipv4/conf/" + dev + "/" + proxyARP)
	may, _, _ := n.AnswersForOthers(dev, ip)
	if !may {
		if medium := "net/ipv4/conf/" + dev + "/medium_id"; (all == "1" || own == "1") && n.sameMedium(dev, ip) {
			return medium + "=" + n.sysctl[medium], by
		}
		return "", by
	}
	l := n.Lookup(Query{Dst: ip, Src: asker, In: dev, Bare: true})
	switch {
	case !l.Known:
		return "", by
	case l.Type == RouteNone:
		return "there is no usable route to " + ip.String() + " for what comes in by " + dev, l.By
	case l.Unusable():
		return "no usable route to " + ip.String() + " for what comes in by " + dev + routeText(&l), l.By
	case l.Type == RouteUnicast && l.Dev == dev && !n.answersByPVLAN(dev):
		return "the route to " + ip.String() + routeText(&l) + " is by " + dev + " itself", l.By
	}
	return "", by
}

// answersByPVLAN tells whether the node may answer on an interface for what its route leads back there to.
func (n *Network) answersByPVLAN(dev string) bool {
	for _, of := range []string{"all", dev} {
		if value, there := n.Sysctl("net/ipv4/conf/" + of + "/proxy_arp_pvlan"); !there || value != "0" {
			return true
		}
	}
	return false
}

// isSilent tells whether the node is certain not to answer for an address that is not its own.
func (n *Network) isSilent(dev string, ip netip.Addr) bool {
	may, _, known := n.AnswersForOthers(dev, ip)
	return known && !may
}

// arpUnroutable says why the kernel does not answer a question whose asker the reverse path filter would not let send
// to the node by the interface: arp_process has it routed as a packet from the asker to the address
// (ip_route_input_noref in net/ipv4/route.c, fib_validate_source in net/ipv4/fib_frontend.c). "" where it may answer.
func (n *Network) arpUnroutable(dev string, address, asker netip.Addr) (why string, known bool) {
	q := Query{Dst: address, Src: asker, In: dev, Bare: true}
	if l := n.Lookup(q); l.Known && l.Type != RouteLocal && (l.Unusable() || n.isSilent(dev, address)) {
		return "the route to " + address.String() + " for what comes in by " + dev + " is not that of the node's own " +
			"addresses" + routeText(&l) + ", so that the kernel does not answer", true
	}
	drop, known := n.ReversePath(q)
	switch {
	case drop.Drops():
		return drop.Setting + ": " + drop.Route + ", so that the kernel does not answer", true
	case drop.Unsure != "":
		return "", known
	}
	return "", true
}

// answersNone is the mode of arp_ignore in which no request is answered.
const answersNone = 8

// Unused says why the node takes no packets for any IPv6 address that it has on an interface beside those of the link:
// duplicate address detection has found each of them with another host, or goes on (ndisc_recv_ns in
// net/ipv6/ndisc.c answers for no such address). "" where it has none there, where one is in use, and where that is not
// known.
func (n *Network) Unused(dev string) (why string) {
	for _, i := range n.devs[dev] {
		a := &n.addrs[i]
		switch {
		case a.ip.Is4() || a.scope >= scopeLink:
		case a.awaitsDAD == "":
			return ""
		default:
			why = "ip -6 addr: " + netip.PrefixFrom(a.ip, a.prefix.Bits()).String() + " dev " + dev + " " + a.awaitsDAD +
				": duplicate address detection does not let the node use it"
		}
	}
	return why
}

// RefusesSolicitation says why a question of a neighbour for one of the node's IPv6 addresses does not reach it: a
// routing rule refuses the group that it goes to (ip6_route_input in net/ipv6/route.c). "" where none does.
func (n *Network) RefusesSolicitation(dev string, asker netip.Addr) string {
	if n.family(asker).rules == nil {
		return ""
	}
	const icmp6 = 58
	for _, i := range n.devs[dev] {
		a := &n.addrs[i]
		if a.ip.Is4() || a.scope >= scopeLink {
			continue
		}
		group := SolicitedNode(a.ip)
		l := n.Lookup(Query{Dst: group, Src: asker, In: dev, Proto: icmp6})
		if !l.Known || !l.Unusable() || !l.By.HasRule() {
			return ""
		}
		return l.By.String() + ": what asks for " + a.ip.String() + " goes to " + group.String()
	}
	return ""
}

// SolicitedNode is the group that a question for an address of IPv6 is sent to (RFC 4291, section 2.7.1).
func SolicitedNode(a netip.Addr) netip.Addr {
	b := a.As16()
	return netip.AddrFrom16([16]byte{0xff, 0x02, 11: 1, 12: 0xff, 13: b[13], 14: b[14], 15: b[15]})
}

// NoLinkLocal tells whether an interface has no IPv6 address of the link that is in use. It is false where that was not
// collected, and where no interface has one, as in a list of others alone.
func (n *Network) NoLinkLocal(dev string) bool {
	others := false
	for i := range n.addrs {
		a := &n.addrs[i]
		if !a.ip.Is6() || !a.ip.IsLinkLocalUnicast() {
			continue
		}
		if a.dev == dev && a.awaitsDAD == "" {
			return false
		}
		others = true
	}
	return others
}

// AwaitsDAD is how ip names the state of duplicate address detection by which none of the interfaces with an IPv6
// address uses it: tentative or dadfailed; "" where one does, and where none has it.
func (n *Network) AwaitsDAD(ip netip.Addr) (state string) {
	for i := range n.addrs {
		if a := &n.addrs[i]; a.ip == ip {
			if a.awaitsDAD == "" {
				return ""
			}
			state = a.awaitsDAD
		}
	}
	return state
}

// UsableOn tells whether an interface has an address that is in use.
func (n *Network) UsableOn(dev string, ip netip.Addr) bool {
	for i := range n.addrs {
		if a := &n.addrs[i]; a.dev == dev && a.ip == ip {
			return a.awaitsDAD == ""
		}
	}
	return false
}

// LinkLocal is the address of the link that the kernel makes of an interface's link-layer address (addrconf_ifid_eui48
// in include/net/addrconf.h); the zero Addr where that is none of Ethernet.
func LinkLocal(mac string) netip.Addr {
	const universal, octets = 2, 6
	parts := strings.Split(mac, ":")
	if len(parts) != octets {
		return netip.Addr{}
	}
	var m [octets]byte
	for i, part := range parts {
		b, err := strconv.ParseUint(part, 16, 8)
		if err != nil {
			return netip.Addr{}
		}
		m[i] = byte(b)
	}
	return netip.AddrFrom16([16]byte{
		0xfe, 0x80, 8: m[0] ^ universal, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5],
	})
}

// arpIgnored says why an address is not told in a mode of arp_ignore; "" where it is.
func (n *Network) arpIgnored(mode int, dev string, target, asker netip.Addr) (why string, known bool) {
	var has, shares, host bool
	for i := range n.addrs {
		a := &n.addrs[i]
		host = host || a.ip == target && a.scope == scopeHost
		if a.dev == dev && a.ip.Is4() {
			has = has || a.ip == target
			shares = shares || a.prefix.Contains(target) && a.prefix.Contains(asker)
		}
	}
	switch {
	case mode == 1 && !has:
		return target.String() + " is not an address of " + dev, true
	case mode == 2 && !(has && shares):
		return dev + " has no subnet with " + target.String() + " and " + asker.String(), true
	case mode == 3:
		return "", !host // it depends on route_localnet, too
	case mode == answersNone:
		return "no request is answered", true
	}
	return "", true
}
