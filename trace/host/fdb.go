// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Forwarding is an entry of the forwarding table of a bridge's port, or of a tunnel that carries frames (VXLAN).
type Forwarding struct {
	MAC string     // as bridge prints it
	Dst netip.Addr // the tunnel's other end; the zero Addr for an entry of a bridge
}

// anyMAC is the MAC of a tunnel's entry for all frames that no other entry is for (vxlan_xmit in
// drivers/net/vxlan/vxlan_core.c).
const anyMAC = "00:00:00:00:00:00"

// bridgeEntry is an entry as bridge -j fdb prints it.
type bridgeEntry struct {
	MAC string `json:"mac"`
	Dev string `json:"ifname"`
	Dst string `json:"dst"`
	// Master is the bridge that Dev is a port of; State is "permanent" or "static" of an entry that was not learned.
	Master string `json:"master"`
	State  string `json:"state"`
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
	at := map[string][]learned{}
	for i := range list {
		x := &list[i]
		if x.Dev == "" || x.MAC == "" {
			continue // an entry of a next-hop group, or of IP addresses
		}
		e := Forwarding{MAC: strings.ToLower(x.MAC)}
		if x.Dst != "" {
			if e.Dst, err = parseAddr(x.Dst); err != nil {
				return fmt.Errorf("interface %q: %w", x.Dev, err)
			}
		}
		all[x.Dev] = append(all[x.Dev], e)
		if x.Master != "" && x.State != "permanent" && x.State != "static" {
			at[x.Master] = append(at[x.Master], learned{e.MAC, x.Dev})
		}
	}
	if len(all) == 0 {
		return errors.New("it has no entry")
	}
	n.fdb, n.learned = all, at
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
