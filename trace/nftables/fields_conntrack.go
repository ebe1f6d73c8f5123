// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// conntrackPriority is that of connection tracking, at PREROUTING and OUTPUT (NF_IP_PRI_CONNTRACK).
const conntrackPriority = -200

// hasConnection tells whether connection tracking has seen the packet.
func hasConnection(c *netfilter.Context) op.Truth {
	switch {
	case op.Untracked(c.Packet), c.Packet.Family == netfilter.ARP:
		return op.No
	case c.Hook.OfLink():
		return linkConnection(c)
	case c.Packet.Turn != netfilter.First && !op.CameBack(c):
		if c.Packet.Tracking == netfilter.Unseen && c.Packet.Template {
			return op.Maybe
		}
		return op.Is(c.Packet.Tracking != netfilter.Unseen)
	case op.CameBack(c) || c.Base == nil || c.Hook != netfilter.Prerouting && c.Hook != netfilter.Output:
		return op.Yes
	case c.Packet.Template: // its fields are those of the template
		return op.Maybe
	case c.Base.Priority == conntrackPriority: // whichever was loaded last goes first
		return op.Maybe
	}
	return op.Is(c.Base.Priority > conntrackPriority)
}

// linkConnection is hasConnection at the hooks of devices and bridges: what is on its way in has none, unless it comes
// by lo or PREROUTING has run in the bridge; there connection tracking may also be the bridge's own
// (net/bridge/netfilter/nf_conntrack_bridge.c).
func linkConnection(c *netfilter.Context) op.Truth {
	switch c.Hook {
	case netfilter.Ingress:
		if c.Packet.Bridge != "" {
			return op.Yes
		}
		return op.Is(c.Packet.Local)
	case netfilter.BridgePrerouting, netfilter.BridgeInput:
		if c.Packet.Bridge == "" {
			return op.Maybe
		}
	}
	return op.Yes
}

// ctState: the first packet is new, what follows established, a message about one related. Without a connection it is
// untracked if a rule said so, else invalid (nft_ct_get_eval in net/netfilter/nft_ct.c).
func ctState(c *netfilter.Context) value {
	switch {
	case op.Templated(c.Packet):
		return knownNumber(ctNew)
	case c.Packet.Untracked:
		return knownNumber(ctUntracked)
	case c.Packet.Family == netfilter.ARP: // the bridge's own connection tracking says so of it (nf_ct_bridge_pre)
		return value{blur: number(ctUntracked | ctInvalid)}
	}
	switch hasConnection(c) {
	case op.Yes:
		switch {
		case c.Packet.Tracked() != nil && c.Packet.TooBig():
			return knownNumber(ctRelated)
		case c.Packet.Replied():
			return knownNumber(ctEstablished)
		}
		return knownNumber(ctNew)
	case op.No:
		return knownNumber(ctInvalid)
	case op.Maybe:
	}
	return value{blur: number(ctNew | ctEstablished | ctRelated | ctInvalid)}
}

// ctStatus: what has no name among the bits is not known.
func ctStatus(c *netfilter.Context) value {
	v := value{blur: number(1<<32 - 1024 | 64 | 128 | 256)}
	set := func(bit uint64, t op.Truth) {
		switch t {
		case op.Yes:
			v.lo |= bit
		case op.Maybe:
			v.blur.lo |= bit
		case op.No:
		}
	}
	found := c.Packet.Tracked() != nil
	set(ctConfirmed, op.Is(op.CameBack(c) || found))
	set(ctSeenReply, op.Is(c.Packet.Replied()))
	set(ctAssured, op.Assured(c))
	set(ctDNAT, op.TranslatedTo(c.Packet))
	set(ctSNAT, op.TranslatedFrom(c.Packet))
	return v
}

// ctDirection is 1 for an answer.
func ctDirection(c *netfilter.Context) value {
	if c.Packet.Tracked() != nil && c.Packet.Turn.Answers() {
		return knownNumber(1)
	}
	return knownNumber(0)
}

// The ends of the connection, by direction.
func origSource(c *netfilter.Context) netip.AddrPort      { return op.Original(c.Packet).Src }
func origDestination(c *netfilter.Context) netip.AddrPort { return op.Original(c.Packet).Dst }
func answerSource(c *netfilter.Context) netip.AddrPort    { return op.Replies(c.Packet).Src }
func answerDestination(c *netfilter.Context) netip.AddrPort {
	return op.Replies(c.Packet).Dst
}

func addrOf(end func(*netfilter.Context) netip.AddrPort) func(*netfilter.Context) value {
	return func(c *netfilter.Context) value { return addrValue(c, end(c).Addr()) }
}

func portOf(end func(*netfilter.Context) netip.AddrPort) func(*netfilter.Context) value {
	return func(c *netfilter.Context) value { return portValue(end(c).Port()) }
}
