// SPDX-License-Identifier: Apache-2.0

package op

import "github.com/svcproxy/kubectl-svcproxy/trace/netfilter"

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
var Clamp = Action(func(c *netfilter.Context) { c.Packet.Clamped = true })

// ChangeTOS is of rules that change the TOS byte, or the traffic class, to a value that is not followed: rules and
// routes that ask for one are uncertain behind it.
var ChangeTOS = Action(func(c *netfilter.Context) { c.Packet.AnyTOS = true })
