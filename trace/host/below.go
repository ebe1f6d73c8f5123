// SPDX-License-Identifier: Apache-2.0

package host

import (
	"maps"
	"slices"
	"strings"
)

// Layer are interfaces below another one: a packet that comes in by that one, or leaves by it, passes one of them, too.
type Layer struct {
	// Devs are the interfaces, sorted.
	Devs []string
	// Bridge is the bridge whose ports Devs are; "" where they are not ports of one.
	Bridge string
	// Maybe: it is not known whether the packet passes any of them, or of a Bridge whether it is one.
	Maybe bool
}

// XDP names the XDP program of an interface; "" where it has none, or none was collected.
func (n *Network) XDP(dev string) string { return n.links[dev].xdp }

// stacked are the kinds of interfaces that pass the same packets on to the interface that they are on top of.
var stacked = map[string]bool{"vlan": true, "macvlan": true, "macvtap": true, "ipvlan": true, "ipvtap": true}

// withoutKey are the kinds of interfaces whose packets have no key of a tunnel of their own (skb_tunnel_info in
// include/net/dst_metadata.h); "" are those of hardware, and lo.
var withoutKey = map[string]bool{
	"": true, "veth": true, "dummy": true, "bridge": true, "bond": true, "vlan": true, "macvlan": true, "ipvlan": true,
}

// plain tells whether no packet that comes in by an interface can have the key of a tunnel: neither it nor one below it
// is a tunnel. It is false where that was not collected.
func (n *Network) plain(dev string) bool {
	if _, ok := n.master[dev]; !ok || !n.kindsKnown || !withoutKey[n.links[dev].kind] {
		return false
	}
	layers, known := n.Below(dev)
	return known && !slices.ContainsFunc(layers, func(l Layer) bool {
		return slices.ContainsFunc(l.Devs, func(dev string) bool { return !withoutKey[n.links[dev].kind] })
	})
}

// maxLayers bounds how many layers are below an interface; the kernel nests at most eight (MAX_NEST_DEV).
const maxLayers = 8

// Below returns the layers below an interface, the one next to it first: ports of a bridge, members of a bond, what a
// VLAN is on. known is false where interfaces were not collected.
func (n *Network) Below(dev string) (layers []Layer, known bool) {
	if n.master == nil {
		return nil, false
	}
	for at := []string{dev}; len(layers) < maxLayers; at = layers[len(layers)-1].Devs {
		next, ok := n.layerBelow(at)
		if !ok {
			break
		}
		layers = append(layers, next)
	}
	return layers, true
}

// layerBelow returns the layer below some interfaces, of which a packet passes one.
func (n *Network) layerBelow(devs []string) (l Layer, ok bool) {
	below := map[string]bool{}
	for _, dev := range devs {
		x := n.links[dev]
		some := false
		for port, master := range n.master {
			if master == dev && x.kind != "vrf" {
				below[port], some = true, true
			}
		}
		switch {
		case some && (x.kind == "bridge" || n.Bridge(dev)):
			l.Bridge = dev
		case some && x.kind == "":
			l.Bridge, l.Maybe = dev, true
		case some:
		case x.kind == "openvswitch":
			for port, master := range n.master {
				if n.links[master].kind == "openvswitch" {
					below[port] = true
				}
			}
			l.Maybe = true
		case x.lower != "" && x.lower != dev && (stacked[x.kind] || x.kind == ""):
			below[x.lower] = true
			l.Maybe = l.Maybe || x.kind == ""
		default:
			l.Maybe = true // this one is the last
		}
	}
	l.Devs = slices.Sorted(maps.Keys(below))
	if len(devs) > 1 {
		l.Bridge = "" // one below a part of them: it is not a layer of every packet
	}
	return l, len(below) > 0
}

// takes says which frames for another interface an interface of the kinds macvlan and macvtap takes away from it
// (macvlan_handle_frame and macvlan_forward_source in drivers/net/macvlan.c), be it up or not; "" for none.
func (i *linkInfo) takes() string {
	if i.Kind != "macvlan" && i.Kind != "macvtap" {
		return ""
	}
	switch d := &i.Data; {
	case string(d.Mode) == `"passthru"`:
		return "all frames for one host"
	case string(d.Mode) == `"source"` && d.NoDst && len(d.MACs) > 0:
		return "the frames from " + strings.Join(d.MACs, ", ")
	}
	return ""
}

// TakesFrom tells whether an interface takes frames from a MAC: a macvlan with mode source takes those of its list
// alone (macvlan_forward_source in drivers/net/macvlan.c). list is that.
func (n *Network) TakesFrom(dev, mac string) (takes bool, list []string) {
	list = n.links[dev].sources
	return list == nil || slices.ContainsFunc(list, func(m string) bool { return strings.EqualFold(m, mac) }), list
}

// Carrier is the interface by which frames leave that are sent by one: of a macvlan, what it is on.
func (n *Network) Carrier(dev string) string {
	for range maxLayers {
		l := n.links[dev]
		if l.kind != "macvlan" || l.lower == "" || l.away {
			break
		}
		dev = l.lower
	}
	return dev
}

// Taker is an interface on top of another one that takes away frames which come in by that one.
type Taker struct {
	Dev, From string
	// Frames are those that it takes, and Text is how ip -d link describes it.
	Frames, Text string
}

// Takers are the interfaces that take frames away from one by which packets are to come in: one that has an address
// beside that of the link, or gateways. Others serve those on top of them alone.
func (n *Network) Takers() []Taker {
	var out []Taker
	for dev, l := range n.links {
		if l.takes == "" || l.lower == "" || !n.HasGateway(l.lower, true) && !n.HasGateway(l.lower, false) &&
			!slices.ContainsFunc(n.devs[l.lower], func(i int) bool { return !n.addrs[i].ip.IsLinkLocalUnicast() }) {
			continue
		}
		out = append(out, Taker{dev, l.lower, l.takes, l.kind + " " + dev + " on " + l.lower})
	}
	slices.SortFunc(out, func(a, b Taker) int { return strings.Compare(a.Dev, b.Dev) })
	return out
}

// VLANBridge returns the bridge that an interface is, or is on top of, and that passes a frame to ports in the frame's
// VLAN alone (br_allowed_ingress, br_allowed_egress in net/bridge/br_vlan.c); "" for none.
func (n *Network) VLANBridge(dev string) string {
	switch {
	case !n.vlans:
		return ""
	case n.links[dev].vlans:
		return dev
	}
	layers, _ := n.Below(dev)
	for _, l := range layers {
		for _, below := range l.Devs {
			if l.Bridge == "" && n.links[below].vlans {
				return below
			}
		}
	}
	return ""
}

// BridgeCalls tells whether the packets that a bridge forwards meet the hooks of their IP family (br_netfilter): as
// set for all bridges, or for this one (br_nf_pre_routing in net/bridge/br_netfilter_hooks.c).
func (n *Network) BridgeCalls(dev string, v4 bool) (on, known bool) {
	key, i := "net/bridge/bridge-nf-call-iptables", 0
	if !v4 {
		key, i = "net/bridge/bridge-nf-call-ip6tables", 1
	}
	all, ok := n.Sysctl(key)
	own := n.links[dev].nfCall[i]
	switch {
	case ok && all != "0":
		return true, true
	case !ok:
		return false, false
	}
	return own != nil && *own != 0, true
}

// AnyBridgeCallsARP tells whether a bridge may run arptables on the ARP that it passes on for a setting of its own.
func (n *Network) AnyBridgeCallsARP() bool {
	for _, l := range n.links {
		if l.kind == "bridge" && (l.arpCall == nil || *l.arpCall != 0) {
			return true
		}
	}
	return !n.HasLinks()
}
