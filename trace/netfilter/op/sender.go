// SPDX-License-Identifier: Apache-2.0

package op

import "github.com/svcproxy/kubectl-svcproxy/trace/netfilter"

// SentByNode tells whether the packet has a socket that sent it: a forwarded one has none.
func SentByNode(c *netfilter.Context) Truth { return Is(c.Packet.Local) }

// CameByWire tells whether the packet has a link-layer header that counts: what the node sends has none, nor has lo.
func CameByWire(c *netfilter.Context) Truth { return Is(!c.Packet.Local && c.Packet.In != "lo") }
