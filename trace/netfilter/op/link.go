// SPDX-License-Identifier: Apache-2.0

package op

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// linkHooks are those at which a frame still has the link-layer addresses that it came in with.
var linkHooks = map[netfilter.Hook]bool{
	netfilter.Ingress: true, netfilter.BridgePrerouting: true, netfilter.BridgeInput: true, netfilter.Prerouting: true,
	netfilter.Input: true, netfilter.Forward: true, netfilter.Postrouting: true,
}

// LinkSource returns the link-layer address that a packet came in from, if the host that has its source is on the link
// and the kernel has found the address, by asking or by being asked. An entry that somebody has set says nothing of
// what that host sends.
func LinkSource(c *netfilter.Context) (mac uint64, known bool) {
	p := c.Packet
	if !linkHooks[c.Hook] || p.Local || p.In == "" || netfilter.IsUnknown(p.In) || p.Resolves() || p.TooBig() {
		return 0, false
	}
	// A host on the link sends by a router what is for an address beyond.
	from, to := ends(p)
	dev := c.Host.Receiver(p.In)
	if !c.Host.PodsOnly(dev, p.Family == netfilter.IPv4) && !c.Host.Reaches(dev, to) {
		return 0, false
	}
	e, ok := c.Host.Neighbour(dev, from)
	if !ok || e.Static || e.Failed {
		return 0, false
	}
	return MAC(e.MAC)
}

// ends are the addresses that the packet came in with, before any translation.
func ends(p *netfilter.Packet) (from, to netip.Addr) {
	if p.Turn.Answers() && p.Conn != nil {
		return p.Conn.Reply.Src.Addr(), p.Conn.Reply.Dst.Addr()
	}
	return p.OrigSrc, p.OrigDst
}

// MAC reads a link-layer address of Ethernet, as ip, nft and iptables print it.
func MAC(s string) (mac uint64, ok bool) {
	if len(s) != len("00:00:00:00:00:00") || strings.Count(s, ":") != 5 {
		return 0, false
	}
	mac, err := strconv.ParseUint(strings.ReplaceAll(s, ":", ""), 16, 48)
	return mac, err == nil
}
