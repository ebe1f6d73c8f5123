// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// VXLAN is what ip -d link tells of a VXLAN interface.
type VXLAN struct {
	ID    uint32
	Port  uint16     // of UDP, to which the outer packets go
	Local netip.Addr // the outer packets' source; the zero Addr where the route decides
	// Remote is where frames go that no entry of the forwarding table is for, an address or a group; zero for none.
	Remote netip.Addr
	Lower  string // the interface that it is bound to; "" for none
	// FirstPort and LastPort are those that the outer packets' source ports are of; 0 where they are the node's own
	// (LocalPorts).
	FirstPort, LastPort uint16
	TOS                 uint8 // of the outer packets, without the bits of ECN; 1 where it is the inner one's
	// External: where a frame goes is decided by whoever sends it (lightweight tunnels, BPF), and not by the table.
	External bool
	// Proxy: the kernel answers questions for neighbours itself, by the table of neighbours.
	Proxy bool
	// GBP: marks of packets go into the header. GPE: its header is that of another form.
	GBP, GPE bool
	// NoSum6, WithoutSum6: over IPv6 it sends packets without a checksum of UDP, and takes such.
	NoSum6, WithoutSum6 bool
	// RemoteSum, TakesRemoteSum: it leaves the checksum inside to the other end, and takes such packets.
	RemoteSum, TakesRemoteSum bool
}

// OverIPv6 tells whether its outer packets are of IPv6; without an address of either end they are of IPv4
// (vxlan_config_validate in drivers/net/vxlan/vxlan_core.c, VXLAN_F_IPV6).
func (v *VXLAN) OverIPv6() bool { return v.Local.Is6() || v.Remote.Is6() }

// ipTunnel is a tunnel's interface as ip -j -d link prints it.
type ipTunnel struct {
	Name string `json:"ifname"`
	Info struct {
		Kind string          `json:"info_kind"`
		Data json.RawMessage `json:"info_data"`
	} `json:"linkinfo"`
}

// readTunnels reads the interfaces of tunnels in ip-link.json.
func (n *Network) readTunnels(data []byte) {
	if !bytes.Contains(data, []byte(`"info_data"`)) {
		return
	}
	list, err := decode[ipTunnel](data)
	if err != nil {
		return // readLinks says so
	}
	n.readVXLANs(list)
	n.readEncapsulation(list)
}

// readVXLANs reads the interfaces of VXLAN. One whose parameters are of another form is left out: then it is not known.
func (n *Network) readVXLANs(list []ipTunnel) {
	n.vxlans = map[string]VXLAN{}
	for i := range list {
		var d struct {
			ID      *uint32 `json:"id"`
			Port    uint16  `json:"port"`
			Local   string  `json:"local"`
			Local6  string  `json:"local6"`
			Remote  string  `json:"remote"`
			Remote6 string  `json:"remote6"`
			Group   string  `json:"group"`
			Group6  string  `json:"group6"`
			Link    string  `json:"link"`

			TOS   json.RawMessage `json:"tos"`
			Ports struct {
				Low  uint16 `json:"low"`
				High uint16 `json:"high"`
			} `json:"port_range"`
			External bool `json:"external"`
			Proxy    bool `json:"proxy"`
			GBP      bool `json:"gbp"`
			GPE      bool `json:"gpe"`
			Zero6TX  bool `json:"udp_zero_csum6_tx"`
			Zero6RX  bool `json:"udp_zero_csum6_rx"`
			RemoteTX bool `json:"remcsum_tx"`
			RemoteRX bool `json:"remcsum_rx"`
		}
		if list[i].Info.Kind != "vxlan" || json.Unmarshal(list[i].Info.Data, &d) != nil {
			continue
		}
		v := VXLAN{
			Port: d.Port, Lower: d.Link, TOS: tunnelTOS(d.TOS), FirstPort: d.Ports.Low, LastPort: d.Ports.High,
			External: d.External, Proxy: d.Proxy, GBP: d.GBP, GPE: d.GPE,
			NoSum6: d.Zero6TX, WithoutSum6: d.Zero6RX, RemoteSum: d.RemoteTX, TakesRemoteSum: d.RemoteRX,
		}
		if d.ID != nil {
			v.ID = *d.ID
		}
		v.Local, v.Remote = firstAddr(d.Local, d.Local6), firstAddr(d.Remote, d.Remote6, d.Group, d.Group6)
		n.vxlans[list[i].Name] = v
	}
}

// tunnelTOS reads a tunnel's TOS, which ip prints as a text also in JSON, of a number or a word; 0 where there is none.
func tunnelTOS(value json.RawMessage) uint8 {
	text := strings.Trim(string(value), `"`)
	if text == "inherit" {
		return 1
	}
	n, err := strconv.ParseUint(text, 0, 8)
	if err != nil {
		return 0
	}
	return uint8(n)
}

// firstAddr returns the first of some texts that is an address.
func firstAddr(texts ...string) netip.Addr {
	for _, t := range texts {
		if a, err := netip.ParseAddr(t); err == nil {
			return a.Unmap()
		}
	}
	return netip.Addr{}
}

// VXLAN returns the parameters of a VXLAN interface; ok is false where it is none, and where that was not collected.
func (n *Network) VXLAN(dev string) (v VXLAN, ok bool) {
	v, ok = n.vxlans[dev]
	return v, ok
}

// VXLANs returns the names of the VXLAN interfaces, sorted.
func (n *Network) VXLANs() []string {
	return slices.Sorted(maps.Keys(n.vxlans))
}

// Kind returns the kind of an interface, as ip -d link names it ("" for hardware); known is false where it was not
// collected.
func (n *Network) Kind(dev string) (kind string, known bool) {
	l, ok := n.links[dev]
	return l.kind, ok && n.kindsKnown
}

// Up tells whether an interface is up; known is false where that was not collected.
func (n *Network) Up(dev string) (up, known bool) {
	l := n.links[dev]
	return l.up, l.flags
}

// Forwardings returns the entries of the forwarding table for an interface; known is false where the table was not
// collected.
func (n *Network) Forwardings(dev string) (list []Forwarding, known bool) {
	return n.fdb[dev], n.fdb != nil
}

// DevOf returns the interface that has an address; "" where none does, or none was collected.
func (n *Network) DevOf(a netip.Addr) string {
	for i := range n.addrs {
		if n.addrs[i].ip == a.Unmap() {
			return n.addrs[i].dev
		}
	}
	return ""
}

// PeerIn returns the interface of another network namespace that is the other end of dev, a veth; "" where it is not
// there, or was not collected. Each end has the other one's number (IFLA_LINK).
func (n *Network) PeerIn(other *Network, dev string) string {
	l, ok := n.links[dev]
	if !ok || l.index == 0 || l.peer == 0 {
		return ""
	}
	for name, x := range other.links {
		if x.index == l.peer && x.peer == l.index {
			return name
		}
	}
	return ""
}
