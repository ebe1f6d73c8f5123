// SPDX-License-Identifier: Apache-2.0

package random

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// verdict is how a case ends.
type verdict uint8

const (
	same    verdict = iota
	unknown         // the walk does not know where the packet goes, and says so
	differs
)

// judged is a case with all that was compared.
type judged struct {
	verdict verdict
	what    string // the difference
	at      int    // which outcome of the walk it was; -1 where none, or where several are alike
	shares  []share
	certain bool // one outcome, and every step certain: the trace was compared as a whole
	traced  bool // rules of nf_tables were met, and compared
}

// share is what the walk says of how often an outcome comes. That of an outcome that is not certain is no claim of how
// often: what is not known may decide the same for all packets.
type share struct {
	p       float64
	certain bool
}

// nowhere are the networks that nodeRoutes refuse, or swallow.
var nowhere = []netip.Prefix{
	netip.MustParsePrefix("10.66.0.0/24"), netip.MustParsePrefix("10.67.0.0/24"), netip.MustParsePrefix("fd00:66::/64"),
	netip.MustParsePrefix("fd00:67::/64"),
}

// fits tells whether the kernel's answer is what the walk says of an outcome. What the walk leaves open fits whatever
// it is: the source's port of a translated connection, the address where it is one of several.
func fits(o *netfilter.Outcome, a *answer) bool {
	p := &o.Packet
	switch o.End {
	case netfilter.Dropped, netfilter.Filtered:
		return a.end == vanished
	case netfilter.Rejected: // a translated source that no route reaches does not get the answer (seed 81073)
		return a.end == refused ||
			a.end == vanished && slices.ContainsFunc(nowhere, func(n netip.Prefix) bool { return n.Contains(p.Src) })
	case netfilter.NoRoute: // whether the source is told, no rule decides
		return a.end == vanished || a.end == refused
	case netfilter.Sent:
		if a.end != sent || p.Out != netfilter.UnknownIface && p.Out != a.out {
			return false
		}
	case netfilter.Delivered:
		if a.end != delivered || p.In != netfilter.UnknownIface && p.In != a.in {
			return false
		}
	case netfilter.Taken, netfilter.Lost:
		return true
	}
	return (!p.Src.IsValid() || p.Src == a.src.Addr()) && (p.SrcPort == 0 || p.SrcPort == a.src.Port()) &&
		p.Dst == a.dst.Addr() && p.DstPort == a.dst.Port() && p.Mark == a.mark && p.Untracked == a.untracked &&
		(p.Untracked || p.CTMark == a.ctmark)
}

// fitsElsewhere is fits, but for where a packet arrived: where it is not known which addresses are the node's own, the
// walk does not tell its two outcomes apart if they are the same otherwise.
func fitsElsewhere(o *netfilter.Outcome, a *answer) bool {
	there, arrived := *o, *a
	if o.End != netfilter.Delivered && o.End != netfilter.Sent || a.end != sent && a.end != delivered {
		return false
	}
	there.End, there.Packet.Out, arrived.end = netfilter.Sent, netfilter.UnknownIface, sent
	return fits(&there, &arrived)
}

// compare walks the packet, with all that is known and with less, and compares with what the kernel did.
func (w *kernelNode) compare(p packet, a *answer) (netfilter.Result, judged) {
	r := w.walk.Walk(p.start(), netfilter.Options{Steps: true})
	j := w.judge(&r, a)
	r.Outcomes = slices.Clone(r.Outcomes)
	if again := w.remembers.Walk(p.start(), netfilter.Options{Steps: true}); !alike(&r, &again) {
		j.verdict, j.what = differs, "a walk that remembers what chains do comes to something else"
		again.Outcomes = slices.Clone(again.Outcomes)
		return again, j
	}
	// Where no routes are known every packet is taken to have one.
	if j.verdict == differs ||
		slices.ContainsFunc(r.Outcomes, func(o netfilter.Outcome) bool { return o.End == netfilter.NoRoute }) {
		return r, j
	}
	for _, v := range w.views {
		s := p.start()
		if v.noPort {
			s.Packet.SrcPort = 0
		}
		less := v.walk.Walk(s, netfilter.Options{})
		if slices.ContainsFunc(less.Outcomes, func(o netfilter.Outcome) bool { return fits(&o, a) || fitsElsewhere(&o, a) }) {
			continue
		}
		j.verdict, j.what = differs, "with "+v.name+": the kernel's answer is none of the walk's outcomes"
		less = v.walk.Walk(s, netfilter.Options{Steps: true})
		less.Outcomes = slices.Clone(less.Outcomes)
		return less, j
	}
	return r, j
}

// judge compares.
func (w *kernelNode) judge(r *netfilter.Result, a *answer) judged {
	j := judged{at: -1, certain: !r.Both && len(r.Outcomes) == 1}
	count, open := 0, false
	for i := range r.Outcomes {
		o := &r.Outcomes[i]
		j.shares = append(j.shares, share{o.P, o.Certain})
		open = open || !o.Certain || o.End == netfilter.Lost || o.End == netfilter.Taken
		if fits(o, a) {
			count++
			j.at = i
		}
	}
	if count > 1 {
		j.at = -1
	}
	switch {
	case count == 0:
		j.verdict, j.what = differs, "the kernel's answer is none of the walk's outcomes"
		return j
	case open:
		j.verdict = unknown
		return j
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		j.certain = j.certain && !s.AtMost && math.Abs(s.P-1) < 1e-9
	}
	if len(r.Uncertain) > 0 {
		return j // the end is certain, the steps need not be
	}
	kernel, walked := w.met(a), predicted(r)
	j.traced = len(kernel) > 0
	switch {
	case j.certain && !slices.Equal(kernel, walked):
		j.verdict = differs
	case !j.certain:
		for _, m := range kernel {
			if !slices.Contains(walked, m) {
				j.verdict = differs
			}
		}
	}
	if j.verdict == differs {
		j.what = fmt.Sprintf("the rules that decided are others:\n  kernel: %v\n  walk:   %v", kernel, walked)
	}
	return j
}

// met is a rule that decided something about the packet, with what it decided: rule 0 is the chain's policy.
type met struct {
	at
	verdict string
}

func (m met) String() string {
	return fmt.Sprintf("%s%s %s %s %d: %s;", map[bool]string{true: "legacy "}[m.legacy], m.family, m.table, m.chain,
		m.num, m.verdict)
}

// met lists the rules that decided, in their order, each once. What a rule of iptables-legacy decides its target says,
// and the log nothing.
func (w *kernelNode) met(a *answer) (out []met) {
	for i := range a.events {
		e := &a.events[i]
		m := met{at: at{family: e.Family, table: e.Table, chain: e.Chain, num: e.Rule, legacy: e.Legacy}}
		switch {
		case e.Legacy:
			if m.verdict = verdictOf(w.texts[m.at]); m.verdict == "" {
				continue
			}
		case e.Policy() && e.Verdict == "drop":
			m.verdict = "drop"
		case e.Kind != unix.NFT_TRACETYPE_RULE || e.Handle == 0 || e.Verdict == "continue" || e.Verdict == "break":
			continue
		default:
			m.at = w.where[place{e.Family, e.Table, e.Chain, e.Handle}]
			switch e.Verdict {
			case "drop", "accept", "return":
				m.verdict = e.Verdict
			case "jump", "goto":
				m.verdict = e.Verdict + " " + e.To
			}
		}
		if !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	return out
}

// predicted lists the same of the walk's steps.
func predicted(r *netfilter.Result) (out []met) {
	families := map[netfilter.Family]string{netfilter.IPv4: "ip", netfilter.IPv6: "ip6", netfilter.Inet: "inet"}
	for i := range r.Steps {
		s := &r.Steps[i]
		if s.Ref.Chain == nil || s.Verdict == netfilter.Next && s.Kind != netfilter.StepOpaque {
			continue // a routing decision, or a rule that went on
		}
		t := s.Ref.Chain.Table
		m := met{at: at{
			family: families[t.Family], table: t.Name, chain: s.Ref.Chain.Name, legacy: t.Backend == netfilter.BackendLegacy,
		}}
		switch {
		case s.Ref.Rule != nil:
			m.num = s.Ref.Rule.Num
		case m.legacy:
			continue // the kernel tells of the policy that a chain came to, and not which that is
		}
		switch s.Verdict {
		case netfilter.Drop, netfilter.Reject:
			m.verdict = "drop"
		case netfilter.Return:
			m.verdict = "return"
		case netfilter.Jump:
			m.verdict = "jump " + s.Target.Name
		case netfilter.Goto:
			m.verdict = "goto " + s.Target.Name
		default: // Accept, and what cannot be followed
			m.verdict = "accept"
		}
		if !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	return out
}
