// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"slices"
	"strings"
)

// DevsOf returns the interfaces that have an address, in the order of ip addr.
func (n *Network) DevsOf(a netip.Addr) (devs []string) {
	for i := range n.addrs {
		if n.addrs[i].ip == a.Unmap() {
			devs = append(devs, n.addrs[i].dev)
		}
	}
	return devs
}

// receiving are the kinds of interfaces that packets come in by for IP whose frames come to one that belongs to them
// (br_pass_frame_up in net/bridge/br_input.c, bond_handle_frame in drivers/net/bonding/bond_main.c, team_handle_frame
// in drivers/net/team/team_core.c).
var receiving = map[string]bool{"bridge": true, "bond": true, "team": true}

// Receiver returns the interface that IP has packets come in by whose frames come to another one: the bridge or bond
// that this one belongs to, or itself.
func (n *Network) Receiver(dev string) string {
	for range maxLayers {
		master := n.master[dev]
		if master == "" || !receiving[n.links[master].kind] && !n.Bridge(master) {
			break
		}
		dev = master
	}
	return dev
}

// mayBeInVRF tells whether an interface belongs to another one that is not known to be a bridge or bond.
func (n *Network) mayBeInVRF(dev string) bool { return n.master[dev] != "" && n.Receiver(dev) == dev }

// On tells whether an interface is another one, or on top of it, as a bridge is on its ports.
func (n *Network) On(dev, below string) bool {
	if dev == below {
		return true
	}
	layers, _ := n.Below(dev)
	return slices.ContainsFunc(layers, func(l Layer) bool { return slices.Contains(l.Devs, below) })
}

// MayLeadTo tells whether a packet that leaves by an interface may leave by another one, too, that is below it, or that
// pairs of veth within the network namespace lead to, as from one bridge to another.
func (n *Network) MayLeadTo(dev, to string) bool {
	reached := []string{dev}
	for i := 0; i < len(reached); i++ {
		at := reached[i]
		if at == to {
			return true
		}
		var next []string
		if l := n.links[at]; l.kind == "veth" && !l.away { // ip prints the other end's name
			next = append(next, l.lower, n.master[l.lower])
		}
		if layer, ok := n.layerBelow([]string{at}); ok {
			next = append(next, layer.Devs...)
		}
		for _, d := range next {
			if d != "" && !slices.Contains(reached, d) {
				reached = append(reached, d)
			}
		}
	}
	return false
}

// TakesFrames tells whether IP takes packets whose frames come to an interface for a MAC: that of the interface or of
// one on top of it. Frames for any other one are for another host (eth_type_trans in net/ethernet/eth.c, ip_rcv_core in
// net/ipv4/ip_input.c), be the MAC that of another interface of the node. known is false where it was not collected.
func (n *Network) TakesFrames(dev, mac string) (takes, known bool) {
	if n.links[n.Receiver(dev)].mac == "" || n.links[dev].mac == "" {
		return false, false
	}
	for d, l := range n.links {
		if strings.EqualFold(l.mac, mac) && n.On(d, dev) {
			return true, true
		}
	}
	return false, true
}

// WithMAC returns the interfaces that have a MAC, sorted.
func (n *Network) WithMAC(mac string) (devs []string) {
	for d, l := range n.links {
		if strings.EqualFold(l.mac, mac) {
			devs = append(devs, d)
		}
	}
	slices.Sort(devs)
	return devs
}

// NoARP tells whether an interface asks for no link-layer addresses: those that nobody has set are its own then
// (arp_constructor in net/ipv4/arp.c, ndisc_constructor in net/ipv6/ndisc.c).
func (n *Network) NoARP(dev string) bool { return n.links[dev].noARP }

// ProxiesND tells whether the node may answer on an interface where a neighbour asks for an IPv6 address that is not
// its own there: by an entry, where the interface forwards and proxy_ndp is set (ndisc_recv_ns in net/ipv6/ndisc.c), or
// as that is the address of all routers of one of its subnets (addrconf_join_anycast in net/ipv6/addrconf.c). why says
// what makes it not do so by an entry that there is. known is false where the entries were not collected.
func (n *Network) ProxiesND(dev string, ip netip.Addr) (may bool, why string, known bool) {
	for _, i := range n.devs[dev] {
		if n.addrs[i].prefix.Addr() == ip {
			return true, "", true
		}
	}
	if !n.answersInPlaceOf(dev, ip) {
		return false, "", n.proxied != nil
	}
	for _, name := range []string{"proxy_ndp", "forwarding"} {
		key := "net/ipv6/conf/" + dev + "/" + name
		own, collected := n.Sysctl(key)
		all, there := n.Sysctl("net/ipv6/conf/all/" + name)
		// Of all, forwarding was copied to the interfaces, and proxy_ndp is asked beside theirs.
		if collected && own == "0" && (name == "forwarding" || there && all == "0") {
			return false, "ip neigh: proxy " + ip.String() + " dev " + dev + ", and " + key + "=0", true
		}
	}
	return true, "", true
}

// Elsewhere says where a bridge sends frames to a MAC other than by one of its ports; set tells whether frames from
// that MAC which come in by the port leave that so: an entry of a port's own moves to no other one, and one that is
// sticky, or where the port does not learn, neither (br_fdb_update in net/bridge/br_fdb.c). With VLANs nothing is set.
// "" for nowhere else, and where the table was not collected.
func (n *Network) Elsewhere(bridge, at, mac string) (port string, set bool) {
	var own, moves string
	vlans := n.links[bridge].vlans
	for dev, list := range n.fdb {
		if n.master[dev] != bridge || dev == bridge {
			continue
		}
		for _, e := range list {
			switch {
			case !strings.EqualFold(e.MAC, mac), e.vlan != 0 && !vlans:
			case dev == at:
				return "", false
			case e.local:
				own = dev
			default:
				moves = max(moves, dev)
			}
		}
	}
	if own != "" {
		return own, !vlans
	}
	if moves == "" {
		return "", false
	}
	fixed := n.SetAt(bridge, mac) == moves && n.learns(bridge, at) == learnsNot
	return moves, !vlans && (fixed || n.FixedTo(bridge, mac) == moves)
}

// Unlearned tells whether a bridge sends no frames to a MAC by a port, as it neither knows the MAC nor floods what it
// does not know by the port; never: the port does not learn, either.
func (n *Network) Unlearned(bridge, at, mac string) (lost, never bool) {
	if !slices.Contains(n.Unflooded(bridge, mac, true), at) {
		return false, false
	}
	return true, !n.links[bridge].vlans && n.learns(bridge, at) == learnsNot
}

// Whether a port of a bridge learns.
const (
	learnsUnknown = iota
	learnsNot
	learnsAll
)

func (n *Network) learns(bridge, at string) int {
	b := n.bridges[bridge]
	if b == nil {
		return learnsUnknown
	}
	p := b.port(at)
	switch {
	case p == nil || p.learning == nil:
		return learnsUnknown
	case *p.learning:
		return learnsAll
	}
	return learnsNot
}
