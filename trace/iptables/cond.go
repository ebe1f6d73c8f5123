// SPDX-License-Identifier: Apache-2.0

package iptables

import "github.com/svcproxy/kubectl-svcproxy/trace/netfilter"

// truth is a condition's answer.
type truth uint8

const (
	no truth = iota
	yes
	maybe // the snapshot, or the walk's packet, does not tell
)

func is(b bool) truth {
	if b {
		return yes
	}
	return no
}

// known is the answer of is, for one that may not be to be had.
func known(b, known bool) truth {
	if !known {
		return maybe
	}
	return is(b)
}

func (t truth) not() truth {
	switch t {
	case no:
		return yes
	case yes:
		return no
	case maybe:
	}
	return maybe
}

// or is the truth of "t or u".
func (t truth) or(u truth) truth {
	switch {
	case t == yes || u == yes:
		return yes
	case t == maybe || u == maybe:
		return maybe
	}
	return no
}

// cond asks one thing of the packet.
type cond func(c *netfilter.Context) truth

func (f cond) not() cond { return func(c *netfilter.Context) truth { return f(c).not() } }

func always(*netfilter.Context) truth { return yes }
func nobody(*netfilter.Context) truth { return no }
func unsure(*netfilter.Context) truth { return maybe }

// oneCondition is an op made of one condition, as most are.
type oneCondition struct {
	f   cond
	why string // for an answer of maybe
}

// Run implements [netfilter.Op].
func (x *oneCondition) Run(c *netfilter.Context) netfilter.Effect {
	switch x.f(c) {
	case no:
		return netfilter.Effect{Kind: netfilter.Break}
	case maybe:
		return netfilter.Effect{Kind: netfilter.Unknown, Why: x.why}
	case yes:
	}
	return netfilter.Effect{}
}

// condition is an op made of conditions that have to hold all. One that does not hold settles it, whatever is not known of
// the others.
type condition struct {
	conds []cond
	why   string // for an answer of maybe
}

// Run implements [netfilter.Op].
func (x *condition) Run(c *netfilter.Context) netfilter.Effect {
	unsure := false
	for _, f := range x.conds {
		switch f(c) {
		case no:
			return netfilter.Effect{Kind: netfilter.Break}
		case maybe:
			unsure = true
		case yes:
		}
	}
	if unsure {
		return netfilter.Effect{Kind: netfilter.Unknown, Why: x.why}
	}
	return netfilter.Effect{}
}

// conditions makes an op of conditions; nil where there are none.
func conditions(conds []cond, why string) netfilter.Op {
	switch len(conds) {
	case 0:
		return nil
	case 1:
		return &oneCondition{conds[0], why}
	}
	return &condition{conds, why}
}

// unknownMatch is a match that is not known.
type unknownMatch string

// Run implements [netfilter.Op].
func (u unknownMatch) Run(*netfilter.Context) netfilter.Effect {
	return netfilter.Effect{Kind: netfilter.Unknown, Why: string(u)}
}

// opaqueTarget is a target that is not known.
type opaqueTarget string

// Run implements [netfilter.Op].
func (o opaqueTarget) Run(*netfilter.Context) netfilter.Effect {
	return netfilter.Effect{Kind: netfilter.Opaque, Why: string(o)}
}

// never is a match that no first packet satisfies.
var never netfilter.Op = &oneCondition{f: nobody}
