// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Forwarding is an entry of the forwarding table of a bridge's port, or of a tunnel that carries frames (VXLAN).
type Forwarding struct {
	MAC string     // as bridge prints it
	Dst netip.Addr // the tunnel's other end; the zero Addr for an entry of a bridge
	// Port, ID and Via take the place of what the tunnel's interface has: the port and the network of the outer packets,
	// and the interface that these leave by (vxlan_xmit_one in drivers/net/vxlan/vxlan_core.c). 0 and "" where not set.
	Port uint16
	ID   uint32
	Via  string
	// Group: the other ends are those of a group of next hops, which is not collected.
	Group bool
	// locked: of a bridge that takes no frames from the address (BR_FDB_LOCKED).
	locked bool
	port   bool // of a bridge, and not of the port's own (self)
	vlan   int  // of a bridge: the VLAN that it is for, if the bridge filters those; 0 for none
	local  bool // of a bridge: it takes frames to the address for its own (BR_FDB_LOCAL, which bridge prints as permanent)
}

// anyMAC is the MAC of a tunnel's entry for all frames that no other entry is for (vxlan_xmit in
// drivers/net/vxlan/vxlan_core.c).
const anyMAC = "00:00:00:00:00:00"

// bridgeEntry is an entry as bridge -j fdb prints it.
type bridgeEntry struct {
	MAC string `json:"mac"`
	Dev string `json:"ifname"`
	Dst string `json:"dst"`
	// These are of a tunnel's entry alone.
	Port     uint16 `json:"port"`
	ID       uint32 `json:"vni"`
	Via      string `json:"viaIf"`
	ViaIndex uint32 `json:"viaIfIndex"` // of an interface in another network namespace
	Group    uint32 `json:"nhid"`
	// Master is the bridge that Dev is a port of; State is "permanent" or "static" of an entry that was not learned.
	Master string   `json:"master"`
	VLAN   int      `json:"vlan"`
	State  string   `json:"state"`
	Flags  []string `json:"flags"`
}

// Outer is what an entry has of its own for the outer packets, as bridge prints it ("port 9999 vni 7"); "" where they
// have what the tunnel's interface has.
func (f *Forwarding) Outer() string {
	var words []string
	if f.Port != 0 {
		words = append(words, fmt.Sprintf("port %d", f.Port))
	}
	if f.ID != 0 {
		words = append(words, fmt.Sprintf("vni %d", f.ID))
	}
	if f.Via != "" {
		words = append(words, "via "+f.Via)
	}
	return strings.Join(words, " ")
}

// learned is an address that a bridge has learned at a port.
type learned struct{ mac, port string }

// readFDB reads bridge-fdb.json. Every interface that takes multicasts has entries of its own, so that a list without
// any is none.
func (n *Network) readFDB(data []byte) error {
	list, err := decode[bridgeEntry](data)
	if err != nil {
		return err
	}
	all := map[string][]Forwarding{}
	at, fixed, own, set := map[string][]learned{}, map[string][]learned{}, map[string][]learned{}, map[string][]learned{}
	strange := 0
	for i := range list {
		x := &list[i]
		if x.Dev == "" && x.MAC == "" && x.Dst == "" && x.Group == 0 {
			strange = i + 1
			continue
		}
		if x.Dev == "" || x.MAC == "" {
			continue // an entry of a next-hop group, or of IP addresses
		}
		e := Forwarding{MAC: strings.ToLower(x.MAC), Port: x.Port, ID: x.ID, Via: x.Via, Group: x.Group != 0}
		e.vlan, e.locked, e.port = x.VLAN, slices.Contains(x.Flags, "locked"), x.Master != ""
		e.local = x.Master != "" && x.State == "permanent"
		if x.ViaIndex != 0 {
			e.Via = fmt.Sprintf("if%d", x.ViaIndex)
		}
		if x.Dst != "" {
			if e.Dst, err = parseAddr(x.Dst); err != nil {
				return fmt.Errorf("interface %q: %w", x.Dev, err)
			}
		}
		all[x.Dev] = append(all[x.Dev], e)
		if x.Master != "" && x.State != "permanent" && x.State != "static" {
			at[x.Master] = append(at[x.Master], learned{e.MAC, x.Dev})
		}
		if x.Master != "" && x.State == "static" {
			set[x.Master] = append(set[x.Master], learned{e.MAC, x.Dev})
		}
		if x.Master == x.Dev && x.State == "permanent" {
			own[x.Master] = append(own[x.Master], learned{e.MAC, x.Dev})
		}
		if x.Master != "" && slices.Contains(x.Flags, "sticky") {
			fixed[x.Master] = append(fixed[x.Master], learned{e.MAC, x.Dev})
		}
	}
	if len(all) == 0 {
		return errors.New("it has no entry")
	}
	n.fdb, n.learned, n.fixed, n.set, n.bridgeOwn = all, at, fixed, set, own
	if strange > 0 {
		return &incomplete{fmt.Sprintf("entry %d has neither a MAC nor an address", strange)}
	}
	return nil
}

// MayForwardFrames tells whether an interface is, or may be, a tunnel that carries frames, so that the forwarding table
// decides to which end they go.
func (n *Network) MayForwardFrames(dev string) bool {
	kind := n.links[dev].kind
	return kind == "vxlan" || kind == "" && !n.kindsKnown
}

// TunnelEnds returns where a tunnel's interface sends frames to a MAC, by its forwarding table. known is false where
// the table was not collected, and where the interface has no entry with an end, as it is then no tunnel, or one that
// learns or is told by other means.
func (n *Network) TunnelEnds(dev, mac string) (ends []netip.Addr, known bool) {
	var other []netip.Addr
	for _, e := range n.fdb[dev] {
		if !e.Dst.IsValid() {
			continue
		}
		known = true
		switch e.MAC {
		case strings.ToLower(mac):
			ends = append(ends, e.Dst)
		case anyMAC:
			other = append(other, e.Dst)
		}
	}
	if len(ends) == 0 {
		ends = other
	}
	return ends, known
}

// BehindPort tells whether a bridge has learned, or was told, that a MAC is behind one of its ports.
func (n *Network) BehindPort(bridge, mac string) bool {
	for port, list := range n.fdb {
		if n.master[port] != bridge {
			continue
		}
		own := n.links[port].mac
		for _, e := range list {
			if strings.EqualFold(e.MAC, mac) && !strings.EqualFold(e.MAC, own) {
				return true
			}
		}
	}
	return false
}

// FixedTo returns the port of a bridge that frames to a MAC are sent to, wherever the interface that has it is: by an
// entry that is set as sticky. Any other entry moves to the port where a frame from that MAC comes in, one that is
// static, too (br_fdb_update in net/bridge/br_fdb.c). "" for none.
func (n *Network) FixedTo(bridge, mac string) string {
	for _, x := range n.fixed[bridge] {
		if strings.EqualFold(x.mac, mac) {
			return x.port
		}
	}
	return ""
}

// SetAt returns the port of a bridge where a person or a program has set a MAC to be; "" for none.
func (n *Network) SetAt(bridge, mac string) string {
	for _, x := range n.set[bridge] {
		if strings.EqualFold(x.mac, mac) {
			return x.port
		}
	}
	return ""
}

// OtherAt returns a link-layer address that a bridge has learned at a port, beside that of a host; "" for none.
func (n *Network) OtherAt(bridge, port, mac string) string {
	for _, x := range n.learned[bridge] {
		if x.port == port && !strings.EqualFold(x.mac, mac) {
			return x.mac
		}
	}
	return ""
}

// TakenByBridge tells whether a bridge takes frames to a MAC that it does not have for its own, by an entry of the
// bridge itself: it passes on none (br_handle_frame_finish in net/bridge/br_input.c, br_dev_xmit in
// net/bridge/br_device.c). An entry of a port works where the node forwards.
func (n *Network) TakenByBridge(bridge, mac string) bool {
	return !strings.EqualFold(n.links[bridge].mac, mac) &&
		slices.ContainsFunc(n.bridgeOwn[bridge], func(x learned) bool { return strings.EqualFold(x.mac, mac) })
}

// KeptByBridge tells whether a bridge sends no frames to a MAC by its ports, as it has it for its own: by an entry of
// the bridge itself, and none of a port, to which it sends frames that the node forwards. known is false where the
// table was not read, and the MAC is the bridge's.
func (n *Network) KeptByBridge(bridge, mac string) (kept, known bool) {
	same := func(x learned) bool { return strings.EqualFold(x.mac, mac) }
	if n.fdb == nil {
		return false, !strings.EqualFold(n.links[bridge].mac, mac)
	}
	atPort := slices.ContainsFunc(n.learned[bridge], same)
	for dev, list := range n.fdb {
		atPort = atPort || n.master[dev] == bridge && slices.ContainsFunc(list, func(e Forwarding) bool {
			return strings.EqualFold(e.MAC, mac)
		})
	}
	return slices.ContainsFunc(n.bridgeOwn[bridge], same) && !atPort, true
}

// Deaf tells whether a bridge does not take in frames to its own address: it has no entry that says that it is its own,
// so that it passes them on as those to an unknown one (br_handle_frame_finish in net/bridge/br_input.c). The kernel
// makes that entry with the bridge, and one for each port; bridge fdb flush removes them. A promiscuous bridge takes
// all frames in. It is false where that was not collected.
func (n *Network) Deaf(bridge string) bool {
	mac := n.links[bridge].mac
	if n.bridges[bridge] == nil || mac == "" || n.promiscuous[bridge] || len(n.fdb[bridge]) == 0 {
		return false
	}
	for dev, list := range n.fdb {
		if dev != bridge && n.master[dev] != bridge {
			continue
		}
		if slices.ContainsFunc(list, func(e Forwarding) bool { return e.local && strings.EqualFold(e.MAC, mac) }) {
			return false
		}
	}
	return true
}

// LockedOut tells whether a port of a bridge takes frames only from addresses that the bridge knows to be there, and it
// knows none (br_handle_frame_finish in net/bridge/br_input.c, BR_PORT_LOCKED).
func (n *Network) LockedOut(bridge, dev string) bool {
	b := n.bridges[bridge]
	if b == nil || n.fdb == nil {
		return false
	}
	p := b.port(dev)
	return p != nil && p.locked && !slices.ContainsFunc(n.fdb[dev], func(e Forwarding) bool {
		return e.port && !strings.EqualFold(e.MAC, n.links[dev].mac) && !ofGroup(e.MAC)
	})
}

// Refuses tells whether a port of a bridge takes frames only from addresses that the bridge knows to be there, and it
// does not know a MAC there (br_handle_frame_finish in net/bridge/br_input.c, BR_PORT_LOCKED): it looks among its own
// entries for one of the frame's VLAN, which is 0 if it does not filter those. known is false where the port is locked,
// and the table was not collected, or has the MAC in a VLAN alone: which one the port's frames are in is not collected.
func (n *Network) Refuses(bridge, dev, mac string) (refuses, known bool) {
	b := n.bridges[bridge]
	if b == nil || mac == "" {
		return false, true
	}
	if p := b.port(dev); p == nil || !p.locked {
		return false, true
	}
	filters, inVLAN := n.links[bridge].vlans, false
	for _, e := range n.fdb[dev] {
		switch {
		case !e.port || e.locked || e.local || !strings.EqualFold(e.MAC, mac):
		case filters && e.vlan != 0:
			inVLAN = true
		case !filters && e.vlan == 0:
			return false, true
		}
	}
	return !inVLAN, n.fdb != nil && !inVLAN
}

// ofGroup tells whether a MAC is that of a group: its first byte is odd.
func ofGroup(mac string) bool { return len(mac) > 1 && strings.IndexByte("13579bdf", mac[1]) >= 0 }

// LearnedAt returns the port where a bridge has learned a MAC; "" for none, and for several (VLANs).
func (n *Network) LearnedAt(bridge, mac string) string {
	found := ""
	for _, x := range n.learned[bridge] {
		if strings.EqualFold(x.mac, mac) {
			if found != "" && found != x.port {
				return ""
			}
			found = x.port
		}
	}
	return found
}

// HasForwarding tells whether the forwarding table of a bridge was collected.
func (n *Network) HasForwarding(bridge string) bool {
	for port := range n.fdb {
		if n.master[port] == bridge {
			return true
		}
	}
	return false
}

// LostPorts returns what may have led from a bridge to pods and does not: its ports that are down, do not forward or
// are locked, and the ends of veth pairs to other network namespaces that belong to no bridge, have no address and no
// route. Both are sorted.
func (n *Network) LostPorts(bridge string) (down, stray []string) {
	for dev, master := range n.master {
		l := n.links[dev]
		switch {
		case !l.flags || l.kind != "veth" || !l.away:
		case master == bridge && (!l.up || n.PortState(bridge, dev) != "" || n.LockedOut(bridge, dev)):
			down = append(down, dev)
		case master == "" && !n.hasRoute(dev) && !slices.ContainsFunc(n.addrs, func(a address) bool {
			return a.dev == dev && a.scope == scopeGlobal
		}):
			stray = append(stray, dev)
		}
	}
	slices.Sort(down)
	slices.Sort(stray)
	return down, stray
}

// hasRoute tells whether a unicast route of the table main goes by an interface, other than to its own link-local
// addresses.
func (n *Network) hasRoute(dev string) bool {
	for i := range n.fam {
		t := n.fam[i].tables[tableMain]
		if t == nil {
			continue
		}
		for p, es := range t.at {
			if p.Addr().IsLinkLocalUnicast() || p.Addr().IsMulticast() {
				continue
			}
			for k := range es {
				if slices.ContainsFunc(es[k].hops, func(h Hop) bool { return h.Dev == dev }) {
					return true
				}
			}
		}
	}
	return false
}
