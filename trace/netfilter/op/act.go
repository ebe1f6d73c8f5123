// SPDX-License-Identifier: Apache-2.0

package op

import (
	"math"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// EnoughHops is a TTL, or hop limit, that gets a packet to any endpoint of a cluster, be there tunnels and some routers
// on its way. One that a rule sets, and that is smaller, may end it there.
const EnoughHops = 16

// Verdict is an op that only decides.
type Verdict struct {
	Kind netfilter.Kind
	Why  string // for Opaque, Queue, Stolen
}

// Run implements [netfilter.Op].
func (v *Verdict) Run(*netfilter.Context) netfilter.Effect {
	return netfilter.Effect{Kind: v.Kind, Why: v.Why}
}

// Action is an op that changes the packet and goes on.
type Action func(c *netfilter.Context)

// Run implements [netfilter.Op].
func (a Action) Run(c *netfilter.Context) netfilter.Effect {
	a(c)
	return netfilter.Effect{}
}

// AcceptAfter is an op that changes the packet and ends the base chain.
type AcceptAfter func(c *netfilter.Context)

// Run implements [netfilter.Op].
func (a AcceptAfter) Run(c *netfilter.Context) netfilter.Effect {
	a(c)
	return netfilter.Effect{Kind: netfilter.Accept}
}

// Jump is a jump or goto to another chain of the table.
type Jump struct {
	Name string
	Kind netfilter.Kind // Jump or Goto
	to   *netfilter.Chain
}

// Run implements [netfilter.Op].
func (j *Jump) Run(*netfilter.Context) netfilter.Effect {
	return netfilter.Effect{Kind: j.Kind, Chain: j.to}
}

// JumpsTo implements [netfilter.Jumper].
func (j *Jump) JumpsTo() string { return j.Name }

// Resolve implements [netfilter.Jumper].
func (j *Jump) Resolve(c *netfilter.Chain) { j.to = c }

// Clamp is of rules that lower the size of the segments that the other end may send (net/netfilter/xt_TCPMSS.c).
// They fit the links of the node that has the rule.
var Clamp = Action(func(c *netfilter.Context) { c.Packet.Clamped, c.Packet.MSS = true, 0 })

// ClampTo is of rules that lower it to a size which they name, whatever the links take.
func ClampTo(size uint16) Action {
	return func(c *netfilter.Context) {
		if p := c.Packet; !p.Clamped || size < p.MSS {
			p.Clamped, p.MSS = true, size
		}
	}
}

// SetHops is of rules that give the packet a TTL, or hop limit, that is enough (ttl_tg in net/netfilter/xt_HL.c).
func SetHops(n uint8) Action {
	return func(c *netfilter.Context) { *raised(c) = netfilter.Hops{Set: n} }
}

// AddHops is of rules that add to it: 255 is the most.
func AddHops(n uint8) Action {
	return func(c *netfilter.Context) {
		h := raised(c)
		h.More += min(n, math.MaxUint8-h.More)
	}
}

// raised is what is changed at a hook: the TTL of what is forwarded is asked for between PREROUTING and FORWARD
// (ip_forward in net/ipv4/ip_forward.c, ip6_forward in net/ipv6/ip6_output.c).
func raised(c *netfilter.Context) *netfilter.Hops {
	switch c.Hook {
	case netfilter.Prerouting, netfilter.Ingress, netfilter.BridgePrerouting, netfilter.BridgeInput:
		return &c.Packet.Raised.Before
	}
	return &c.Packet.Raised.Behind
}

// ChangeTOS is of rules that change the TOS byte, or the traffic class, to a value that is not followed: rules and
// routes that ask for one are uncertain behind it.
var ChangeTOS = Action(func(c *netfilter.Context) { c.Packet.TOS, c.Packet.AnyTOS = 0, true })

// SetTOS is of rules that give bits of it, or of the traffic class, a value: those of the mask are cleared, and then
// those of the value turned (tos_tg in net/netfilter/xt_DSCP.c).
func SetTOS(value, mask uint8) Action {
	const dscp = 0xfc // the others are of ECN
	value, mask = value&dscp, mask&dscp
	return func(c *netfilter.Context) {
		if p := c.Packet; !p.AnyTOS || mask == dscp { // else the other bits are still not known
			p.TOS, p.AnyTOS = p.TOS&^mask^value, false
		}
	}
}
