// SPDX-License-Identifier: Apache-2.0

package op

import "github.com/svcproxy/kubectl-svcproxy/trace/netfilter"

// Truth is a condition's answer.
type Truth uint8

// The answers.
const (
	No Truth = iota
	Yes
	Maybe // the snapshot, or the walk's packet, does not tell
)

// Is is the answer of a test whose outcome is known.
func Is(b bool) Truth {
	if b {
		return Yes
	}
	return No
}

// Known is the answer of [Is], for a test whose outcome may not be to be had.
func Known(b, known bool) Truth {
	if !known {
		return Maybe
	}
	return Is(b)
}

// Not is the truth of "not t".
func (t Truth) Not() Truth {
	switch t {
	case No:
		return Yes
	case Yes:
		return No
	case Maybe:
	}
	return Maybe
}

// Or is the truth of "t or u".
func (t Truth) Or(u Truth) Truth {
	switch {
	case t == Yes || u == Yes:
		return Yes
	case t == Maybe || u == Maybe:
		return Maybe
	}
	return No
}

// Cond is one condition on the packet.
type Cond func(c *netfilter.Context) Truth

// Not is the negation of a condition.
func (f Cond) Not() Cond { return func(c *netfilter.Context) Truth { return f(c).Not() } }

// Always holds for every packet.
func Always(*netfilter.Context) Truth { return Yes }

// NoPacket holds for no packet.
func NoPacket(*netfilter.Context) Truth { return No }

// Unsure is a condition whose answer is never known.
func Unsure(*netfilter.Context) Truth { return Maybe }

// oneCondition is an op made of one condition, as most are.
type oneCondition struct {
	f   Cond
	why string // for an answer of maybe
}

// Run implements [netfilter.Op].
func (x *oneCondition) Run(c *netfilter.Context) netfilter.Effect {
	switch x.f(c) {
	case No:
		return netfilter.Effect{Kind: netfilter.Break}
	case Maybe:
		return netfilter.Effect{Kind: netfilter.Unknown, Why: x.why}
	case Yes:
	}
	return netfilter.Effect{}
}

// condition is an op made of conditions that have to hold all. One that does not hold settles it, whatever is not known
// of the others.
type condition struct {
	conds []Cond
	why   string // for an answer of maybe
}

// Run implements [netfilter.Op].
func (x *condition) Run(c *netfilter.Context) netfilter.Effect {
	unsure := false
	for _, f := range x.conds {
		switch f(c) {
		case No:
			return netfilter.Effect{Kind: netfilter.Break}
		case Maybe:
			unsure = true
		case Yes:
		}
	}
	if unsure {
		return netfilter.Effect{Kind: netfilter.Unknown, Why: x.why}
	}
	return netfilter.Effect{}
}

// Conditions makes an op of conditions that have to hold all, with the reason for an answer of Maybe; nil where there
// are none.
func Conditions(conds []Cond, why string) netfilter.Op {
	switch len(conds) {
	case 0:
		return nil
	case 1:
		return &oneCondition{conds[0], why}
	}
	return &condition{conds, why}
}

// UnknownMatch is a match that is not known; the text says what it is.
type UnknownMatch string

// Run implements [netfilter.Op].
func (u UnknownMatch) Run(*netfilter.Context) netfilter.Effect {
	return netfilter.Effect{Kind: netfilter.Unknown, Why: string(u)}
}

// OpaqueTarget is a target that is not known; the text says what it is.
type OpaqueTarget string

// Run implements [netfilter.Op].
func (o OpaqueTarget) Run(*netfilter.Context) netfilter.Effect {
	return netfilter.Effect{Kind: netfilter.Opaque, Why: string(o)}
}
