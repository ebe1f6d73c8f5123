// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// Matches on connection tracking: net/netfilter/xt_conntrack.c, xt_state.c, xt_connmark.c.

// noConnection tells whether a packet has no connection yet: table raw runs before connection tracking. A packet that
// the node sends to itself comes in by lo with the connection from when it left, and a message about a packet has that
// packet's.
func noConnection(s *ruleSpec) func(c *netfilter.Context) bool {
	if s.table != "raw" {
		return func(c *netfilter.Context) bool { return op.Untracked(c.Packet) }
	}
	return func(c *netfilter.Context) bool {
		return c.Packet.Untracked || !op.CameBack(c) && c.Packet.Tracked() == nil
	}
}

// untemplated makes conditions on the connection unknown for a packet in table raw that has a template of one, because
// they then apply to the template's fields.
func untemplated(s *ruleSpec, conds []cond) []cond {
	if s.table != "raw" {
		return conds
	}
	out := make([]cond, len(conds))
	for i, f := range conds {
		out[i] = func(c *netfilter.Context) truth {
			if c.Packet.Template && !op.CameBack(c) {
				return maybe
			}
			return f(c)
		}
	}
	return out
}

func isTracked(c *netfilter.Context) truth { return op.Is(!c.Packet.Untracked) }

// conntrackOptions are the options on the connection, except --ctstate.
var conntrackOptions = matchSpec{options: map[string]reader{
	"--ctdir": withArg(func(a string) (cond, bool) {
		reply := a == "REPLY"
		return func(c *netfilter.Context) truth {
			return op.Is((c.Packet.Tracked() != nil && c.Packet.Turn.Answers()) == reply)
		}, a == "ORIGINAL" || reply
	}),
	"--ctexpire": anyArg(op.Unsure),
	"--ctproto": withArg(func(a string) (cond, bool) {
		p, ok := op.Protocol(a)
		return func(c *netfilter.Context) truth { return op.Is(c.Packet.Proto == p) }, ok
	}),
	"--ctstatus":  withArg(ctstatus),
	"--ctorigsrc": addrIn(func(p *netfilter.Packet) netip.Addr { return op.Original(p).Src.Addr() }),
	"--ctorigdst": addrIn(func(p *netfilter.Packet) netip.Addr { return op.Original(p).Dst.Addr() }),
	"--ctreplsrc": addrIn(func(p *netfilter.Packet) netip.Addr { return op.Replies(p).Src.Addr() }),
	"--ctrepldst": addrIn(func(p *netfilter.Packet) netip.Addr { return op.Replies(p).Dst.Addr() }),

	"--ctorigsrcport": ctport(func(p *netfilter.Packet) uint16 { return op.Original(p).Src.Port() }),
	"--ctorigdstport": ctport(func(p *netfilter.Packet) uint16 { return op.Original(p).Dst.Port() }),
	"--ctreplsrcport": ctport(func(p *netfilter.Packet) uint16 { return op.Replies(p).Src.Port() }),
	"--ctrepldstport": ctport(func(p *netfilter.Packet) uint16 { return op.Replies(p).Dst.Port() }),
}}

func ctport(of func(*netfilter.Packet) uint16) reader {
	return func(_ *ruleSpec, o *option) (cond, bool) {
		return portArg(o, func(c *netfilter.Context, r portRange) truth { return r.hasPort(of(c.Packet)) })
	}
}

// conntrack reads -m conntrack and -m state. Where there is no connection only the state is evaluated (conntrack_mt).
func conntrack(s *ruleSpec, opts []option, text string) (netfilter.Op, bool) {
	var state cond
	rest := make([]option, 0, len(opts))
	for i := range opts {
		o := &opts[i]
		if o.name != "--ctstate" && o.name != "--state" {
			rest = append(rest, *o)
			continue
		}
		f, ok := ctstate(s, o)
		if !ok || state != nil {
			return nil, false
		}
		if state = f; o.not {
			state = f.Not()
		}
	}
	asked, ok := conntrackOptions.conds(s, rest)
	if !ok {
		return nil, false
	}
	var conds []cond
	if state != nil {
		conds = append(conds, state)
	}
	missing, hasState := noConnection(s), state != nil
	for _, f := range asked {
		conds = append(conds, func(c *netfilter.Context) truth {
			if missing(c) {
				return op.Is(hasState)
			}
			return f(c)
		})
	}
	return op.Conditions(untemplated(s, conds), notInSnapshot(text)), true
}

// states of a connection, as --ctstate names them.
const (
	stateNew uint8 = 1 << iota
	stateInvalid
	stateUntracked
	stateDNAT
	stateSNAT
	stateEstablished
	stateRelated // a message about a packet of the connection
)

var stateNames = map[string]uint8{
	"NEW": stateNew, "INVALID": stateInvalid, "UNTRACKED": stateUntracked, "DNAT": stateDNAT, "SNAT": stateSNAT,
	"RELATED": stateRelated, "ESTABLISHED": stateEstablished,
}

// ctstate: the first packet is NEW, a later one and an answer ESTABLISHED, a message about one RELATED; a translation
// that was decided before adds DNAT or SNAT. Without a connection it is UNTRACKED after a NOTRACK rule, else INVALID.
func ctstate(s *ruleSpec, o *option) (cond, bool) {
	arg, ok := o.arg()
	var want uint8
	for name := range strings.SplitSeq(arg, ",") {
		bit := stateNames[name]
		if bit == 0 {
			return nil, false
		}
		want |= bit
	}
	missing := noConnection(s)
	return func(c *netfilter.Context) truth {
		switch {
		case op.Templated(c.Packet):
			return op.Is(want&stateNew != 0)
		case c.Packet.Untracked:
			return op.Is(want&stateUntracked != 0)
		case missing(c):
			return op.Is(want&stateInvalid != 0)
		case want&stateOf(c.Packet) != 0:
			return yes
		}
		answer := no
		if want&stateDNAT != 0 {
			answer = op.TranslatedTo(c.Packet)
		}
		if want&stateSNAT != 0 {
			answer = answer.Or(op.TranslatedFrom(c.Packet))
		}
		return answer
	}, ok
}

// stateOf is the state of a packet that has a connection.
func stateOf(p *netfilter.Packet) uint8 {
	switch {
	case p.Tracked() != nil && p.TooBig():
		return stateRelated
	case p.Replied():
		return stateEstablished
	}
	return stateNew
}

// ctstatus: until the first packet has left the node, or has reached its socket, its connection is not CONFIRMED, and
// has none of the other states; from the answer on it has SEEN_REPLY, and behind that it may be ASSURED. NONE is no
// bit, so it never matches.
func ctstatus(arg string) (cond, bool) {
	confirmed, replied, assured := false, false, false
	for name := range strings.SplitSeq(arg, ",") {
		switch name {
		case "CONFIRMED":
			confirmed = true
		case "SEEN_REPLY":
			replied = true
		case "ASSURED":
			assured = true
		case "NONE", "EXPECTED":
		default:
			return nil, false
		}
	}
	return func(c *netfilter.Context) truth {
		switch {
		case c.Packet.Tracked() == nil:
			return op.Is(confirmed && op.CameBack(c))
		case confirmed || replied && c.Packet.Replied():
			return yes
		}
		if !assured {
			return no
		}
		return op.Assured(c)
	}, true
}

func skbMark(p *netfilter.Packet) *uint32 { return &p.Mark }
func ctMark(p *netfilter.Packet) *uint32  { return &p.CTMark }

// markIs: net/netfilter/xt_mark.c, mark_mt.
func markIs(of func(*netfilter.Packet) *uint32) reader {
	return withArg(func(arg string) (cond, bool) {
		v, m, ok := valueMask(arg)
		return func(c *netfilter.Context) truth { return op.Is(*of(c.Packet)&m == v) }, ok
	})
}

var connmarkOptions = matchSpec{options: map[string]reader{"--mark": markIs(ctMark)}}

// connmarkMatch: without a connection nothing matches, "!" or not (connmark_mt).
func connmarkMatch(s *ruleSpec, opts []option, text string) (netfilter.Op, bool) {
	conds, ok := connmarkOptions.conds(s, opts)
	missing := noConnection(s)
	conds = append([]cond{func(c *netfilter.Context) truth { return op.Is(!missing(c)) }}, conds...)
	return op.Conditions(untemplated(s, conds), notInSnapshot(text)), ok
}
