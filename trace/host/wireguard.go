// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// WireGuard is an interface of WireGuard, as wg show tells of it.
type WireGuard struct {
	PublicKey string // "" where it has no key
	Port      uint16 // of UDP, at which it takes packets; 0 where it has none yet
	Mark      uint32 // of its outer packets
	Peers     []WireGuardPeer
}

// WireGuardPeer is a peer of an interface of WireGuard.
type WireGuardPeer struct {
	PublicKey string
	Preshared bool           // there is a preshared key
	Endpoint  netip.AddrPort // where outer packets go; the zero AddrPort where that is not known yet
	Allowed   []netip.Prefix
	// Handshake is when the two have agreed on keys, as wg words it; "" for never.
	Handshake string
	// Received and Sent are how much has gone over it, as wg words it; "" for nothing.
	Received, Sent string
}

// readWireGuard reads wireguard.txt. Of a line that is not known, as newer versions may have them, the error says so.
func (n *Network) readWireGuard(data []byte) error {
	all := map[string]*WireGuard{}
	var dev *WireGuard
	var peer *WireGuardPeer
	odd := ""
	for line := range strings.Lines(string(data)) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		var err error
		switch {
		case strings.TrimSpace(line) == "":
		case !ok:
			odd = line
		case key == "interface":
			dev, peer = &WireGuard{}, nil
			all[strings.Clone(value)] = dev
		case dev == nil:
			return fmt.Errorf("it has %.40q before the first interface", line)
		case key == "peer":
			dev.Peers = append(dev.Peers, WireGuardPeer{PublicKey: strings.Clone(value)})
			peer = &dev.Peers[len(dev.Peers)-1]
		case peer == nil:
			err = dev.set(key, value)
		default:
			err = peer.set(key, value)
		}
		if errors.Is(err, errUnknownKey) {
			odd, err = line, nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	if len(all) == 0 {
		return errors.New("it has no interface")
	}
	n.wireguards = all
	if odd != "" {
		return &incomplete{fmt.Sprintf("it has the line %.60q, which is not known", strings.TrimSpace(odd))}
	}
	return nil
}

func (w *WireGuard) set(key, value string) error {
	switch key {
	case "public key":
		w.PublicKey = strings.Clone(value)
		return nil
	case "private key":
		return nil
	case "listening port":
		port, err := strconv.ParseUint(value, 10, 16)
		w.Port = uint16(port)
		return err
	case "fwmark":
		mark, err := strconv.ParseUint(value, 0, 32)
		w.Mark = uint32(mark)
		return err
	}
	return errUnknownKey
}

// errUnknownKey is of a line of an interface or a peer that this program does not know.
var errUnknownKey = errors.New("it is not known")

func (p *WireGuardPeer) set(key, value string) (err error) {
	switch key {
	case "preshared key":
		p.Preshared = true
	case "endpoint":
		p.Endpoint, err = netip.ParseAddrPort(value)
	case "allowed ips":
		if value == "(none)" {
			return nil
		}
		for text := range strings.SplitSeq(value, ", ") {
			a, err := netip.ParsePrefix(text)
			if err != nil {
				return err
			}
			p.Allowed = append(p.Allowed, a)
		}
	case "latest handshake":
		p.Handshake = strings.Clone(value)
	case "transfer":
		received, sent, _ := strings.Cut(value, " received, ")
		p.Received, p.Sent = strings.Clone(received), strings.Clone(strings.TrimSuffix(sent, " sent"))
	case "persistent keepalive":
	default:
		err = errUnknownKey
	}
	return err
}

// Silent tells whether packets were sent to the peer, and none came back, not even of a handshake
// (update_rx_stats in drivers/net/wireguard/receive.c counts those, too).
func (p *WireGuardPeer) Silent() bool {
	const nothing = "0 B"
	return p.Sent != "" && p.Sent != nothing && (p.Received == "" || p.Received == nothing)
}

// WireGuard returns an interface of WireGuard; nil where it is none, and where that was not collected.
func (n *Network) WireGuard(dev string) *WireGuard { return n.wireguards[dev] }

// WireGuards returns the names of the interfaces of WireGuard, sorted.
func (n *Network) WireGuards() []string { return slices.Sorted(maps.Keys(n.wireguards)) }

// PeerFor returns the peer that packets to an address are sent to, and that packets from it have to come from: that
// with the longest prefix (wg_allowedips_lookup_dst in drivers/net/wireguard/allowedips.c; no two have the same one).
// nil for none.
func (w *WireGuard) PeerFor(a netip.Addr) *WireGuardPeer {
	var best *WireGuardPeer
	bits := -1
	for i := range w.Peers {
		for _, p := range w.Peers[i].Allowed {
			if p.Contains(a) && p.Bits() > bits {
				best, bits = &w.Peers[i], p.Bits()
			}
		}
	}
	return best
}

// Peer returns the peer with a public key; nil for none.
func (w *WireGuard) Peer(key string) *WireGuardPeer {
	for i := range w.Peers {
		if w.Peers[i].PublicKey == key {
			return &w.Peers[i]
		}
	}
	return nil
}
