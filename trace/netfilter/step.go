// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"net/netip"
	"strings"
)

// StepKind says what happened in a Step.
type StepKind uint8

// The kinds of step.
const (
	// StepVerdict is a rule that decided and changed nothing: Step.Verdict is Accept, Drop, Reject, Return or Stolen.
	StepVerdict StepKind = iota
	// StepPolicy is a base chain whose policy dropped the packet.
	StepPolicy
	// StepCall is a jump or goto to another chain, Step.Target: Step.Verdict is Jump or Goto.
	StepCall
	// StepTranslate is a rule that translated an address or a port: Step.NAT.
	StepTranslate
	// StepMark is a rule that set the packet's mark, or its connection's: Step.Mark.
	StepMark
	// StepNotrack is a rule that took the packet out of connection tracking, or back into it.
	StepNotrack
	// StepTemplate is a rule that gave the packet a template of its connection (a zone, a helper, …).
	StepTemplate
	// StepRemember is a rule that put the client into a list: Step.List.
	StepRemember
	// StepForget is a rule that took the client out of a list: Step.List.
	StepForget
	// StepChangeSet is a rule that changed a set in a manner that the walk does not follow: Step.List has its name.
	StepChangeSet
	// StepChange is a rule that changed something else, or translated a packet to where it went before.
	StepChange
	// StepOpaque is a rule or a chain that the walk cannot follow: Step.Why says why.
	StepOpaque
)

// Step is something that happened to the packet on some of its branches, by a rule or a chain's policy. Its Kind says
// which of the fields below P mean something. One rule has several steps where it did several things, or left the
// choice to chance.
type Step struct {
	Kind StepKind
	// Verdict is what the rule decided thereby; Next where it went on with its next op.
	Verdict Kind
	Ref     Ref
	// P is the share of the packets that it happened to; with AtMost, a bound of it that may be more than 1.
	P float64
	// AtMost tells that P may count a packet more than once: the rule was met at several calls of its chain, each of
	// which chance may decide on its own, or in several cases of what is not known. That P is 1 does not mean then that
	// every packet met the rule.
	AtMost bool

	Target *Chain
	NAT    Translation
	Mark   Mark
	// Why is the reason of StepOpaque, and of a Drop or Stolen where an op gives one; "" where it is not the same on all
	// branches.
	Why string
	// List is the name of the list ([ClientList]) that the client was put into or taken out of, or of the set that was
	// changed.
	List string
	// Asked is the list that the rule found the client in; zero for a rule that looks up none.
	Asked ClientList
	// Lookup is the element of a set or map of nftables that decided; zero where none did, or not the same on all
	// branches.
	Lookup Lookup
}

// Side is an end of a connection.
type Side uint8

// The sides.
const (
	Destination Side = iota
	Source
)

// NATKind is what translates.
type NATKind uint8

// The kinds of translation.
const (
	DNAT       NATKind = iota // to what the rule says (DNAT, NETMAP of a destination)
	SNAT                      // from what the rule says (SNAT, NETMAP of a source)
	Masquerade                // from an address of the interface that the packet leaves by
	Redirect                  // to an address of the interface that the packet came in by
	Scheduled                 // to a real server of IPVS
)

// Translation is a change of an address, a port, or both.
type Translation struct {
	By   NATKind
	Side Side
	// From and To are the side's address and port before and after. An address that is not known is the zero Addr, a
	// port 0. A value that is not the same on all branches of the step is zero, but for the To of a destination: each
	// one is a step of its own.
	From, To netip.AddrPort
}

// Mark is a mark that a rule has set.
type Mark struct {
	Value      uint32
	Connection bool // of the connection, in place of the packet
}

// ClientList is a list of clients: of xt_recent, or a set of nftables that rules fill, named TABLE@SET.
type ClientList struct {
	Name string
	// Seconds is how long ago the client's entry may be for the rule that asks; 0 for any time.
	Seconds uint32
}

// NATOp is an Op that translates.
type NATOp interface {
	Op
	// Translates returns what the op is in the kernel.
	Translates() NATKind
}

// String writes what happened in a few words: "jump KUBE-SERVICES", "DNAT to 10.244.1.5 port 8080", "DROP".
func (s *Step) String() string {
	switch s.Kind {
	case StepVerdict:
		return verdictNames[s.Verdict]
	case StepPolicy:
		return "policy DROP"
	case StepCall:
		return verdictNames[s.Verdict] + " " + s.Target.Name
	case StepTranslate:
		switch {
		case s.NAT.By == Scheduled:
			return "to " + s.NAT.To.String()
		case s.NAT.Side == Source:
			return "masquerade"
		}
		return fmt.Sprintf("DNAT to %s port %d", s.NAT.To.Addr(), s.NAT.To.Port())
	case StepMark:
		if s.Mark.Connection {
			return fmt.Sprintf("connmark %#x", s.Mark.Value)
		}
		return fmt.Sprintf("mark %#x", s.Mark.Value)
	case StepNotrack:
		return "notrack"
	case StepTemplate:
		return "template of the connection"
	case StepRemember, StepForget, StepChangeSet:
		return "remember the client"
	case StepOpaque:
		return "not known"
	case StepChange:
	}
	return "continue"
}

var verdictNames = map[Kind]string{
	Accept: "ACCEPT", Drop: "DROP", Reject: "REJECT", Return: "RETURN", Stolen: "taken", Jump: "jump", Goto: "goto",
}

// stepKey tells steps apart: what a step is about, without the details of which a branch may have its own.
type stepKey struct {
	kind    StepKind
	verdict Kind
	ref     Ref
	target  *Chain
	to      netip.AddrPort
	mark    Mark
	list    string
}

func (s *Step) key() stepKey {
	k := stepKey{kind: s.Kind, verdict: s.Verdict, ref: s.Ref, target: s.Target, mark: s.Mark, list: s.List}
	if s.NAT.Side == Destination {
		k.to = s.NAT.To
	}
	return k
}

// fold takes in a step of the same key, all but its share. Details that differ are not the step's.
func (s *Step) fold(o *Step) {
	if s.NAT.From != o.NAT.From {
		s.NAT.From = netip.AddrPort{}
	}
	if s.NAT.To != o.NAT.To {
		s.NAT.To = netip.AddrPort{}
	}
	if s.Why != o.Why {
		s.Why = ""
	}
	if s.Lookup != o.Lookup {
		s.Lookup = Lookup{}
	}
}

// step records a step of a branch.
func (w *Walker) step(s *Step, b *branch) {
	if !w.opt.Steps {
		return
	}
	key := s.key()
	i, ok := w.stepIDs[key]
	if ok {
		w.steps[i].fold(s)
	} else {
		i = len(w.steps)
		w.stepIDs[key] = i
		if s.P = 0; s.Ref.Rule != nil {
			s.Asked = s.Ref.Rule.asks()
		}
		w.steps = append(w.steps, *s)
		w.stepCalls = append(w.stepCalls, w.calls)
	}
	if w.stepCalls[i] != w.calls || b.yes|b.no != 0 {
		w.steps[i].AtMost = true
	}
	w.count(i, b.p)
}

// verdict records a rule that decided and changed nothing.
func (w *Walker) verdict(at Ref, eff *Effect, b *branch) {
	if !w.opt.Steps {
		return
	}
	s := Step{Verdict: eff.Kind, Ref: at, Why: eff.Why}
	if eff.Kind == Jump || eff.Kind == Goto {
		s.Kind, s.Target = StepCall, eff.Chain
	}
	if eff.Lookup != nil {
		s.Lookup = *eff.Lookup
	}
	w.step(&s, b)
}

// did is the step of an op that changed the packet.
func did(o Op, before, after *Packet) (s Step) {
	switch {
	case before.Virtual != after.Virtual:
		s.Kind, s.NAT = StepTranslate, translation(Scheduled, Destination, before, after)
	case before.Dst != after.Dst || before.DstPort != after.DstPort:
		s.Kind, s.NAT = StepTranslate, translation(kindOf(o, DNAT), Destination, before, after)
	case before.SNAT != after.SNAT:
		s.Kind, s.NAT = StepTranslate, translation(kindOf(o, SNAT), Source, before, after)
	case before.Mark != after.Mark:
		s.Kind, s.Mark = StepMark, Mark{Value: after.Mark}
	case before.CTMark != after.CTMark:
		s.Kind, s.Mark = StepMark, Mark{after.CTMark, true}
	case before.Untracked != after.Untracked:
		s.Kind = StepNotrack
	case before.Template != after.Template:
		s.Kind = StepTemplate
	case before.Recent != after.Recent:
		s.Kind, s.List = noted(before.Recent, after.Recent)
	default:
		s.Kind = StepChange
	}
	return s
}

func translation(by NATKind, side Side, before, after *Packet) Translation {
	end := func(p *Packet) netip.AddrPort {
		if side == Source {
			return netip.AddrPortFrom(p.Src, p.SrcPort)
		}
		return netip.AddrPortFrom(p.Dst, p.DstPort)
	}
	return Translation{by, side, end(before), end(after)}
}

// kindOf asks an op what it is in the kernel.
func kindOf(o Op, other NATKind) NATKind {
	if n, ok := o.(NATOp); ok {
		return n.Translates()
	}
	return other
}

// noted tells what a change of Packet.Recent was.
func noted(before, after string) (StepKind, string) {
	for word := range strings.FieldsSeq(after) {
		if inList(before, word) {
			continue
		}
		if name, ok := strings.CutPrefix(word, "!"); ok {
			return StepForget, name
		}
		if name, ok := strings.CutPrefix(word, "set:"); ok {
			return StepChangeSet, name
		}
		return StepRemember, word
	}
	return StepForget, ""
}
