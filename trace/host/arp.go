// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
)

// AnswersARP tells whether the node answers where another host on an interface asks by ARP for one of the node's own
// addresses, and why not, with the settings. It is what arp_process in net/ipv4/arp.c asks of the settings: arp_ignore
// (the larger of the interface's and of all counts; inet_confirm_addr in net/ipv4/devinet.c), then arp_filter (either
// of the two turns it on), by which the route to the asker has to be by the interface; arp_rcv answers on no interface
// without ARP. known is false where that was not collected, or is not certain. A setting that is missing is not taken
// for 0.
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
