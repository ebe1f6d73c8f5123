// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
)

// linkInfo is what ip -d adds to an interface.
type linkInfo struct {
	Kind string `json:"info_kind"`
	Data struct {
		CallIPTables  *int `json:"nf_call_iptables"`
		CallIP6Tables *int `json:"nf_call_ip6tables"`
		CallARPTables *int `json:"nf_call_arptables"`
		VLANFiltering int  `json:"vlan_filtering"`
		// Of macvlan and macvtap. Other kinds have modes, too.
		Mode  json.RawMessage `json:"mode"`
		NoDst bool            `json:"nodst"`
		MACs  []string        `json:"macaddr_data"`
	} `json:"info_data"`
	SlaveKind string `json:"info_slave_kind"`
	SlaveData struct {
		Hairpin  *bool `json:"hairpin"`
		Isolated *bool `json:"isolated"`
		Learning *bool `json:"learning"`
		// Flood, Broadcast and Multicast tell whether frames are sent by the port whose destination the bridge does not know,
		// those for all, and those for a group.
		Flood     *bool `json:"flood"`
		Broadcast *bool `json:"bcast_flood"`
		Multicast *bool `json:"mcast_flood"`
		// ProxyARP: what the bridge answers itself, or should, and all else that it does not know the port of, is not sent by
		// the port (br_flood in net/bridge/br_forward.c, BR_PROXYARP).
		ProxyARP bool `json:"proxy_arp"`
		// Locked: the port takes frames only from addresses that the bridge knows to be there.
		Locked bool `json:"locked"`
		// State is that of the port: forwarding, disabled, blocking, …
		State string `json:"state"`
	} `json:"info_slave_data"`
}

// setBridge records what the attributes of a port say about its bridge.
func (n *Network) setBridge(l *ipLink) {
	if l.Promiscuity > 0 {
		n.promiscuous[l.Name] = true
	}
	if l.Info == nil || l.Info.SlaveKind != "bridge" || l.Master == "" {
		return
	}
	b := n.bridges[l.Master]
	if b == nil {
		b = &bridge{}
		n.bridges[l.Master] = b
	}
	d := &l.Info.SlaveData
	if d.ProxyARP {
		off := new(bool)
		d.Flood, d.Broadcast, d.Multicast = off, off, off
	}
	b.ports = append(b.ports, port{
		name: l.Name, hairpin: d.Hairpin, isolated: d.Isolated, state: d.State, locked: d.Locked,
		learning: d.Learning,
		floods:   [3]*bool{d.Flood, d.Broadcast, d.Multicast},
	})
	veth := l.Info.Kind == "veth"
	b.hairpin.add(l.Info.SlaveData.Hairpin, veth)
	b.isolated.add(l.Info.SlaveData.Isolated, veth)
}

// bridge is what is known of a bridge's ports.
type bridge struct {
	hairpin, isolated portFlag
	ports             []port
}

// port is a port of a bridge, with those of its flags that were collected.
type port struct {
	name              string
	hairpin, isolated *bool
	state             string // "" where it was not collected
	locked            bool
	learning          *bool    // it learns the addresses that frames come from
	floods            [3]*bool // what the bridge does not know the port of; broadcasts; multicasts
}

// portFlag counts the ports of a bridge by a flag: those of pods, which are veth, and the others.
type portFlag struct{ pods, others flagCount }

type flagCount struct{ on, off, unknown int }

func (f *portFlag) add(flag *bool, veth bool) {
	c := &f.others
	if veth {
		c = &f.pods
	}
	switch {
	case flag == nil:
		c.unknown++
	case *flag:
		c.on++
	default:
		c.off++
	}
}

// counts are those that count: of the ports of pods, where there are any.
func (f *portFlag) counts() flagCount {
	if f.pods != (flagCount{}) {
		return f.pods
	}
	return f.others
}

// all tells whether all ports have the flag, or none; known is false where they differ, or were not collected.
func (f *portFlag) all() (on, known bool) {
	c := f.counts()
	return c.on > 0, c.unknown == 0 && (c.on == 0) != (c.off == 0)
}

// differs tells whether some ports have the flag and others not.
func (f *portFlag) differs() bool {
	c := f.counts()
	return c.on > 0 && c.off > 0
}

// Bridge tells whether an interface is a bridge that has ports, as far as ip -d link shows.
func (n *Network) Bridge(dev string) bool { return n.bridges[dev] != nil }

// MayBridge tells whether packets that come in or leave by an interface pass a bridge, or may.
func (n *Network) MayBridge(dev string) bool {
	if dev == "" || dev == "lo" {
		return false
	}
	layers, known := n.Below(dev)
	return !known || slices.ContainsFunc(layers, func(l Layer) bool { return l.Bridge != "" })
}

// Promiscuous tells whether a bridge takes all frames in, beside passing them on: kubelets and the CNI plugin bridge
// (promiscMode) could set it in place of hairpin mode.
func (n *Network) Promiscuous(dev string) bool { return n.promiscuous[dev] }

// Hairpin tells whether a bridge sends a frame back to the port that it came from, by that port's hairpin mode. port is
// "" where it is not known which one that is. known is false where ports differ then, or were not collected.
func (n *Network) Hairpin(dev, port string) (on, known bool) {
	b := n.bridges[dev]
	if b == nil {
		return false, false
	}
	if p := b.port(port); p != nil && p.hairpin != nil {
		return *p.hairpin, true
	}
	return b.hairpin.all()
}

// WithoutHairpin are the ports of a bridge that it sends no frame back to, where it sends one back to others.
func (n *Network) WithoutHairpin(dev string) (ports []string) {
	b := n.bridges[dev]
	if b == nil || !b.hairpin.differs() {
		return nil
	}
	return b.having(func(p *port) bool { return p.hairpin != nil && !*p.hairpin })
}

// Isolated tells whether a bridge sends no frame from one port to another, as both are isolated. A port is "" where it
// is not known which one that is; all ports that are for pods count then.
func (n *Network) Isolated(dev, from, to string) (on, known bool) {
	b := n.bridges[dev]
	if b == nil {
		return false, false
	}
	x, y := b.port(from), b.port(to)
	switch {
	case x != nil && x.isolated != nil && !*x.isolated, y != nil && y.isolated != nil && !*y.isolated:
		return false, true
	case x != nil && x.isolated != nil && y != nil && y.isolated != nil:
		return true, true
	}
	return b.isolated.all()
}

// SomeIsolated are the isolated ports of a bridge, where others are not.
func (n *Network) SomeIsolated(dev string) (ports []string) {
	b := n.bridges[dev]
	if b == nil || !b.isolated.differs() {
		return nil
	}
	return b.having(func(p *port) bool { return p.isolated != nil && *p.isolated })
}

// Unflooded are the ports of a bridge by which a frame to a neighbour is not sent unless the bridge knows that it is
// there (br_flood in net/bridge/br_forward.c): to its link-layer address, where the bridge has that behind no port;
// where it has none, the question for it. nil where the forwarding table was not collected.
func (n *Network) Unflooded(dev, mac string, v4 bool) (ports []string) {
	b := n.bridges[dev]
	which := 1
	switch {
	case b == nil || !n.HasForwarding(dev) || mac != "" && n.BehindPort(dev, mac):
		return nil
	case mac != "":
		which = 0
	case !v4:
		which = 2
	}
	return b.having(func(p *port) bool { return p.floods[which] != nil && !*p.floods[which] })
}

// Untaught are the ports of a bridge by which it sends frames to no neighbour: it knows of none there, learns none, and
// does not flood.
func (n *Network) Untaught(dev string) (ports []string) {
	b := n.bridges[dev]
	if b == nil || !n.HasForwarding(dev) {
		return nil
	}
	return b.having(func(p *port) bool {
		own := n.links[p.name].mac
		return p.learning != nil && !*p.learning && p.floods[0] != nil && !*p.floods[0] &&
			!slices.ContainsFunc(n.fdb[p.name], func(e Forwarding) bool { return !strings.EqualFold(e.MAC, own) })
	})
}

// port returns a port by its name; nil for none.
func (b *bridge) port(name string) *port {
	if i := slices.IndexFunc(b.ports, func(p port) bool { return p.name == name }); i >= 0 {
		return &b.ports[i]
	}
	return nil
}

// having are the names of the ports of which something is true.
func (b *bridge) having(is func(p *port) bool) (names []string) {
	for i := range b.ports {
		if is(&b.ports[i]) {
			names = append(names, b.ports[i].name)
		}
	}
	return names
}

// PortState returns the state of a bridge's port where it is not that in which it forwards: disabled, blocking, …
// Frames are not sent by such a port (should_deliver in net/bridge/br_forward.c). "" where it forwards, and where that
// was not collected. A port that is down is disabled, too.
func (n *Network) PortState(bridge, port string) string {
	b := n.bridges[bridge]
	if b == nil {
		return ""
	}
	if x := b.port(port); x != nil && x.state != "forwarding" {
		return x.state
	}
	return ""
}

// Port returns the port of a bridge behind which a neighbour is: that of which the bridge has learned the link-layer
// address that the neighbour table has (br_fdb_update in net/bridge/br_fdb.c). "" where either was not collected, or
// does not tell: an entry that was set by hand says where frames go to, and not where the neighbour's come from.
func (n *Network) Port(dev string, a netip.Addr) string {
	e, ok := n.Neighbour(dev, a)
	if !ok || e.MAC == "" || e.Static {
		return ""
	}
	return n.LearnedAt(dev, e.MAC)
}
