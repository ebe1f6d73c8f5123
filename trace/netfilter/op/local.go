// SPDX-License-Identifier: Apache-2.0

package op

import "github.com/svcproxy/kubectl-svcproxy/trace/netfilter"

// FromNode tells whether the packet has a socket that made it: a forwarded one has none.
func FromNode(c *netfilter.Context) Truth { return Is(c.Packet.Local) }

// HasLinkHeader tells whether the packet has a link-layer header that counts: what the node sends has none, nor has lo.
//
// At the hooks of devices and bridges all of Ethernet's have one.
func HasLinkHeader(c *netfilter.Context) Truth {
	if c.Hook.OfLink() {
		return Is(c.Hook >= netfilter.BridgePrerouting).Or(Maybe)
	}
	return Is(!c.Packet.Local && c.Packet.In != "lo")
}
