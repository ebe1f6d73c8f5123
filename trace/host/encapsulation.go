// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"net/netip"
	"strconv"
	"strings"
)

// Tunnel is what ip -d link tells of an interface that puts packets of IP, or frames (Geneve), into others of IP. Those
// of VXLAN and WireGuard have types of their own.
type Tunnel struct {
	Kind          string     // as ip -d link names it: ipip, gre, geneve
	Local, Remote netip.Addr // of the outer packets; the zero Addr for any
	ID            uint32     // of Geneve
	Port          uint16     // of Geneve: that of UDP, to which the outer packets go
	InKey, OutKey string     // of GRE, as ip prints them; "" for none
	TTL           uint8      // of the outer packets; 0 where it is the inner one's, or the kernel's default
	TOS           uint8      // of the outer packets, as that of [VXLAN]
	// External: where packets go is decided by whoever sends them (routes that encapsulate, BPF).
	External bool
	// InSum, OutSum, InSeq, OutSeq: of GRE, packets that come in have to have a checksum or a number, and have one that
	// are sent.
	InSum, OutSum, InSeq, OutSeq bool
	// NoSum6, WithoutSum6: of Geneve over IPv6, as [VXLAN] has them.
	NoSum6, WithoutSum6 bool
}

// tunnels are the kinds of interfaces that [Network.Tunnel] tells of.
var tunnels = map[string]bool{"ipip": true, "gre": true, "geneve": true}

// tunnelData are the parameters of a tunnel's interface as ip -j -d link prints them (ip/iplink_geneve.c,
// ip/link_gre.c, ip/link_iptnl.c of iproute2).
type tunnelData struct {
	Local    string          `json:"local"`
	Remote   string          `json:"remote"`
	Remote6  string          `json:"remote6"`
	ID       uint32          `json:"id"`
	Port     uint16          `json:"port"`
	InKey    string          `json:"ikey"`
	OutKey   string          `json:"okey"`
	TTL      json.RawMessage `json:"ttl"` // a number, or a word
	TOS      json.RawMessage `json:"tos"`
	External bool            `json:"external"`
	Encap    json.RawMessage `json:"encap"` // of UDP around it (FoU, GUE)
	InSum    bool            `json:"icsum"`
	OutSum   bool            `json:"ocsum"`
	InSeq    bool            `json:"iseq"`
	OutSeq   bool            `json:"oseq"`
	Zero6TX  bool            `json:"udp_zero_csum6_tx"`
	Zero6RX  bool            `json:"udp_zero_csum6_rx"`
}

// readEncapsulation reads the interfaces of tunnels that are not VXLAN. One whose parameters are of another form is
// left out: then it is not known.
func (n *Network) readEncapsulation(list []ipTunnel) {
	n.tunnels = map[string]Tunnel{}
	for i := range list {
		var d tunnelData
		kind := list[i].Info.Kind
		if !tunnels[kind] || len(list[i].Info.Data) == 0 || json.Unmarshal(list[i].Info.Data, &d) != nil ||
			len(d.Encap) > 0 {
			continue
		}
		t := Tunnel{
			Kind: kind, Local: someAddr(d.Local), Remote: someAddr(d.Remote, d.Remote6), ID: d.ID, Port: d.Port,
			InKey: strings.Clone(d.InKey), OutKey: strings.Clone(d.OutKey), TOS: tunnelTOS(d.TOS), External: d.External,
			InSum: d.InSum, OutSum: d.OutSum, InSeq: d.InSeq, OutSeq: d.OutSeq, NoSum6: d.Zero6TX, WithoutSum6: d.Zero6RX,
		}
		if ttl, err := strconv.ParseUint(string(d.TTL), 10, 8); err == nil {
			t.TTL = uint8(ttl)
		}
		n.tunnels[list[i].Name] = t
	}
}

// someAddr is [firstAddr], with the zero Addr for that of no host, which ip prints as "any" elsewhere.
func someAddr(texts ...string) netip.Addr {
	a := firstAddr(texts...)
	if a.IsValid() && a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}

// Tunnel returns the parameters of an interface that puts packets into others; ok is false where it is none of the
// kinds that are known, and where that was not collected.
func (n *Network) Tunnel(dev string) (t Tunnel, ok bool) {
	t, ok = n.tunnels[dev]
	return t, ok
}
