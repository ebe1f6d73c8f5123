// SPDX-License-Identifier: Apache-2.0

package op

import "github.com/svcproxy/kubectl-svcproxy/trace/netfilter"

// FromNode tells whether the packet has a socket that made it: a forwarded one has none.
func FromNode(c *netfilter.Context) Truth { return Is(c.Packet.Local) }

// MayHaveSocket tells whether a socket of the node takes the packet: one that listens at its port, or that of a client
// of the node, whose answer it is (nf_sk_lookup_slow_v4 in net/ipv4/netfilter/nf_socket_ipv4.c). It is never Yes: which
// addresses the socket has, and whether it is transparent, is not looked at.
func MayHaveSocket(c *netfilter.Context) Truth {
	p := c.Packet
	switch {
	case p.Local || c.Listens == nil:
	case p.Turn.Answers() && p.Conn.Original.Dst != p.Conn.Reply.Src:
		return No // the socket's other end is what the client has asked for, and not the endpoint
	case p.Turn.Answers():
		if local, known := c.Host.Local(p.Conn.Original.Src.Addr()); known && !local {
			return No
		}
	case p.DstPort != 0:
		if listens, known := c.Listens(p.Proto, p.DstPort); known && !listens {
			return No
		}
	}
	return Maybe
}

// Group returns the group of an interface (ip link, group).
func Group(c *netfilter.Context, dev string) (group uint32, known bool) {
	if dev == "" {
		return 0, false
	}
	return c.Host.Group(dev)
}

// HasLinkHeader tells whether the packet has a link-layer header that counts: what the node sends has none, nor has lo.
//
// At the hooks of devices and bridges all of Ethernet's have one, and so has what finds link-layer addresses.
func HasLinkHeader(c *netfilter.Context) Truth {
	if c.Packet.Resolves() {
		return Yes
	}
	if c.Hook.OfLink() {
		return Is(c.Hook >= netfilter.BridgePrerouting).Or(Maybe)
	}
	return Is(!c.Packet.Local && c.Packet.In != "lo")
}
