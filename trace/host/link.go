// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// link is what ip link and ip addr tell of an interface.
type link struct {
	up, noCarrier bool
	noARP         bool // it asks for no link-layer addresses (IFF_NOARP)
	toOne         bool // it leads to one other end (IFF_POINTOPOINT)
	away          bool // its other end, or what it is on top of, is in another network namespace
	flags         bool // they were collected
	mac           string
	mtu           int
	kind          string // as ip -d link names it; "" where it was not collected, and of an interface without one
	lower         string // the interface that it is on top of
	index, peer   int    // its number, and that of the other end in another network namespace; 0 where not collected
	// nfCall are the bridge's own settings nf_call_iptables and nf_call_ip6tables; nil where not collected.
	nfCall  [2]*int
	arpCall *int     // likewise nf_call_arptables
	xdp     string   // its program; "" for none
	vlans   bool     // of a bridge: it passes a frame to ports in the frame's VLAN alone
	sources []string // of macvlan in mode source: whose frames it takes; else nil
	takes   string   // of macvlan: which of the frames that come in by lower it takes away from that; "" for none
}

// setLink records what an interface's listing says; the latest file that tells something counts.
func (n *Network) setLink(l *ipLink) {
	x := n.links[l.Name]
	if l.Flags != nil {
		x.flags = true
		x.noARP, x.toOne = slices.Contains(l.Flags, "NOARP"), slices.Contains(l.Flags, "POINTOPOINT")
		x.up = slices.Contains(l.Flags, "UP")
		// ip prints NO-CARRIER of every interface that is not running (netif_oper_up in include/linux/netdevice.h), as of one
		// that waits for 802.1X (DORMANT); LOWER_UP is the carrier itself (dev_get_flags in net/core/dev.c).
		x.noCarrier = slices.Contains(l.Flags, "NO-CARRIER") && !slices.Contains(l.Flags, "LOWER_UP")
	}
	if l.MAC != "" {
		x.mac = l.MAC
	}
	if l.MTU > 0 {
		x.mtu = l.MTU
	}
	if l.Lower != "" {
		x.lower = l.Lower
	}
	x.away = x.away || l.Space != nil
	if l.Index != 0 {
		x.index = l.Index
	}
	if l.Peer != 0 {
		x.peer = l.Peer
	}
	if l.Info != nil {
		x.kind = l.Info.Kind
		x.nfCall = [2]*int{l.Info.Data.CallIPTables, l.Info.Data.CallIP6Tables}
		x.arpCall = l.Info.Data.CallARPTables
		x.vlans = l.Info.Data.VLANFiltering != 0
		n.vlans = n.vlans || x.vlans
		x.takes = l.Info.takes()
		x.sources = nil
		if l.Info.Kind == "macvlan" && string(l.Info.Data.Mode) == `"source"` {
			x.sources = append([]string{}, l.Info.Data.MACs...)
		}
	}
	if l.XDP != nil {
		x.xdp = strings.TrimSpace(fmt.Sprintf("program %d %s", l.XDP.Prog.ID, l.XDP.Prog.Name))
	}
	n.links[l.Name] = x
}

// NoCarrier tells whether an interface is up and has no carrier: the kernel takes its queue away, and drops what is
// sent by it (linkwatch_do_dev in net/core/link_watch.c, dev_deactivate in net/sched/sch_generic.c). It is false where
// that was not collected. Routes by an interface that is down are removed by the kernel (fib_disable_ip in
// net/ipv4/fib_frontend.c), so that nothing is sent by it.
func (n *Network) NoCarrier(dev string) bool {
	l := n.links[dev]
	return l.flags && l.up && l.noCarrier
}

// discarding are the kinds of interfaces that discard what is sent by them: dummy_xmit in drivers/net/dummy.c, ifb_xmit
// in drivers/net/ifb.c for what no filter of tc has sent there, nlmon_xmit in drivers/net/nlmon.c.
var discarding = map[string]bool{"dummy": true, "ifb": true, "nlmon": true}

// Discards says why nobody gets what is routed to another host by an interface; "" where that is not known. What is
// sent by lo comes in again by it. On an ordinary link without ARP the kernel does not ask for the next hop: frames
// that nothing else gives an address carry that of the interface itself (arp_constructor in net/ipv4/arp.c,
// ndisc_constructor in net/ipv6/ndisc.c), which its other end does not take.
func (n *Network) Discards(dev string, nextHop netip.Addr) (why string) {
	l := n.links[dev]
	switch {
	case dev == "lo":
		return "a packet that is sent through lo comes in through lo again, and the address is not one of the node's own"
	case discarding[l.kind]:
		return "ip -d link: " + dev + " is of the kind " + l.kind + ", which discards what is sent by it"
	case !l.flags || !l.noARP || !n.kindsKnown || !resolving[l.kind] || !n.HasNeighbours():
		return ""
	}
	e, ok := n.Neighbour(dev, nextHop)
	if !ok || l.mac == "" || !strings.EqualFold(e.MAC, l.mac) {
		return ""
	}
	return "ip link: " + dev + " has NOARP; ip neigh: " + nextHop.String() + " dev " + dev + " lladdr " + e.MAC +
		", which is the address of " + dev + " itself"
}

// MTU returns the largest packet that an interface sends, in bytes; 0 where that is not known.
func (n *Network) MTU(dev string) int { return n.links[dev].mtu }

// MTU6 returns the largest packet of IPv6 that an interface sends, which may be less than its MTU
// (ip6_dst_mtu_maybe_forward in include/net/ip6_route.h); false where that setting was not collected.
func (n *Network) MTU6(dev string) (int, bool) {
	v, ok := n.sysctl["net/ipv6/conf/"+dev+"/mtu"]
	size, err := strconv.Atoi(v)
	return size, ok && err == nil
}

// MAC returns the link-layer address of an interface, as ip prints it; "" where it has none, or that is not known.
func (n *Network) MAC(dev string) string { return n.links[dev].mac }

// resolving are the kinds of interfaces that find the link-layer address of a next hop by asking for it, where nothing
// else is set: those of hardware (""), and those that pass frames on to one or to pods. On tunnels and on switches in
// software a CNI sets the entries.
var resolving = map[string]bool{
	"": true, "veth": true, "bridge": true, "bond": true, "team": true, "vlan": true, "macvlan": true,
}

// Resolves tells whether an interface is one of an ordinary link, where a next hop is asked for its link-layer address
// (ARP, neighbour discovery). It is false where that was not collected.
func (n *Network) Resolves(dev string) bool { return n.Ordinary(dev) && !n.links[dev].noARP }

// Ordinary tells whether an interface is one of an ordinary link, whose other hosts ask for link-layer addresses,
// whether or not the node does: one without ARP by its nature, as a modem's, leads to one other end, and has no such
// address. It is false where that was not collected.
func (n *Network) Ordinary(dev string) bool {
	l := n.links[dev]
	return l.flags && n.kindsKnown && resolving[l.kind] && dev != "lo" && (!l.noARP || l.mac != "" && !l.toOne)
}

// podEnd tells whether an interface is one end of a veth pair whose other end is in another network namespace.
func (l *link) podEnd() bool { return l.kind == "veth" && l.away }

// PodLink tells whether an interface is the node's end of a link to one pod, and no port of a bridge. That of a node
// which is a container itself has routes to gateways.
func (n *Network) PodLink(dev string) bool {
	l := n.links[dev]
	return l.podEnd() && n.master[dev] == "" && !n.HasGateway(dev, true) && !n.HasGateway(dev, false)
}

// ofSoftware are the kinds of ports by which a bridge for pods has no router of another network behind it.
var ofSoftware = map[string]bool{"veth": true, "vxlan": true, "geneve": true, "dummy": true}

// BridgeOfPods tells whether an interface is a bridge with a port that is the node's end of a pod's veth pair, and with
// none by which the pods may have a gateway elsewhere. It is false where that was not collected.
func (n *Network) BridgeOfPods(dev string) (is bool) {
	if n.bridges[dev] == nil || !n.kindsKnown {
		return false
	}
	for port, master := range n.master {
		if master != dev {
			continue
		}
		l := n.links[port]
		if !ofSoftware[l.kind] {
			return false
		}
		is = is || l.podEnd()
	}
	return is
}

// PodsOnly tells whether behind an interface are pods and nothing else: it is the node's end of a veth pair whose other
// end is in another network namespace, or a bridge all of whose ports are; and no route goes to a gateway by it, as by
// the interface of a node that is a container itself. It is false where that was not collected.
func (n *Network) PodsOnly(dev string, v4 bool) bool {
	end := func(dev string) bool { l := n.links[dev]; return l.podEnd() }
	if n.HasGateway(dev, v4) {
		return false
	}
	if n.bridges[dev] == nil {
		return end(dev) && !slices.ContainsFunc(n.addrs, func(a address) bool {
			return a.dev == dev && a.scope == scopeGlobal && a.ip.Is4() == v4
		})
	}
	for port, master := range n.master {
		if master == dev && !end(port) {
			return false
		}
	}
	return true
}
