// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// follower walks the packets of a connection behind the answer to its first packet.
type follower struct {
	*pathCase

	s       *netfilter.Start
	end     *netfilter.Outcome
	in      string // which answers come in by
	certain bool
	first   netfilter.Left // what the first packet has left
	answer  *onward        // what became of the answer to it
}

// following is a packet, by what those before it have left. further: of the endpoint. sure: one like it is certain to
// come.
type following struct {
	left          netfilter.Left
	further, sure bool
}

// mostFollowing is how many of them are walked: nearly always what packets leave is the same for all behind them.
const mostFollowing = 16

// all walks packets of both directions until what they leave is nothing new. Certain are those that take turns: what
// becomes of two of one direction in a row is wrong only for who sends so much. The left of what it returns has what
// all of them may leave.
func (f *follower) all() onward {
	tcp := f.want.Frontend.Protocol == corev1.ProtocolTCP
	var queue, done []following
	for _, l := range f.answer.left {
		queue = append(queue, following{left: l, sure: len(f.answer.left) == 1})
		if !tcp { // the endpoint of TCP waits for the client's ACK
			queue = append(queue, following{left: l, further: true})
		}
	}
	var all onward
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		if slices.ContainsFunc(done, func(d following) bool { return d.left == at.left && d.further == at.further }) {
			continue
		}
		if len(done) == mostFollowing && len(all.unsure) > 0 {
			return all
		}
		if len(done) == mostFollowing {
			all.unsure = []netfilter.Uncertain{{
				What: "what packets of a connection leave for those behind them",
				Why:  "rules change its mark, or sets, with nearly every packet",
			}}
			return all
		}
		done = append(done, at)
		x := f.one(&at, tcp)
		if !at.sure {
			x = x.doubted("whether it comes to that depends on the order of packets")
		}
		if x.code != "" {
			return x
		}
		if len(all.unsure) == 0 { // one that is certain to be lost may come behind what is not known
			all.unsure = x.unsure
		}
		for _, l := range x.left {
			if !slices.Contains(all.left, l) {
				all.left = append(all.left, l)
			}
			queue = append(queue, following{left: l, further: at.further})
			next := following{left: l, further: !at.further, sure: at.sure && len(x.left) == 1}
			if next.sure {
				queue = slices.Insert(queue, 0, next)
			} else {
				queue = append(queue, next)
			}
		}
	}
	return all
}

// one walks one packet, of TCP one that may be the last of its direction. Where not all is right, the two are told
// apart.
func (f *follower) one(at *following, tcp bool) onward {
	if at.further && f.answer.same && at.left == f.first {
		return onward{left: f.answer.left} // as the answer to the first packet
	}
	if !tcp {
		return f.walked(at, netfilter.GoesOn)
	}
	x := f.walked(at, netfilter.MayEnd)
	if !x.bad() {
		return x
	}
	if x = f.walked(at, netfilter.GoesOn); x.bad() {
		return x
	}
	last := f.walked(at, netfilter.Ends).doubted("what ends a connection (FIN) is lost: a client that reads to the end " +
		"waits, and one that knows the answer's length does not")
	if !last.bad() {
		last.left = append(last.left, x.left...)
	}
	return last
}

func (f *follower) walked(at *following, ending netfilter.Ending) onward {
	opt := netfilter.Options{Left: &at.left, Further: at.further, Ending: ending}
	if at.further {
		return f.answerBy(f.s, f.end, f.in, f.certain, opt)
	}
	return f.mayBeOffloaded(f.laterOf(f.s, f.end, opt), f.s, f.end, f.in)
}

// doubted makes what is wrong unsure, and says why it is, where that is not said elsewhere.
func (x onward) doubted(why string) onward {
	if x.code == "" {
		return x
	}
	if why != "" {
		why = " (" + why + ")"
	}
	x.unsure = []netfilter.Uncertain{{Where: x.at.Where, What: x.packet(), Why: x.message() + why}}
	x.code = ""
	return x
}

// another asks whether another connection of the client comes to the same ends, once rules have changed lists and sets
// for one before it. It returns what that depends on; nil where nothing does.
func (p *pathCase) another(s netfilter.Start, lists string) []netfilter.Uncertain {
	if lists == "" {
		return nil
	}
	s.Packet.Recent = lists
	res := p.walker.Walk(s, netfilter.Options{Enters: p.entered})
	for i := range res.Outcomes {
		o := &res.Outcomes[i]
		if slices.ContainsFunc(p.res.Outcomes, func(first netfilter.Outcome) bool { return sameEnd(&first, o) }) {
			continue
		}
		for k := range res.Uncertain {
			res.Uncertain[k].Why += " (of the client's next connection)"
		}
		if len(res.Uncertain) > 0 {
			return res.Uncertain
		}
		return []netfilter.Uncertain{{
			Where: o.Where, What: "what happens to the client's next connection",
			Why: "rules have changed lists or sets for the one before it",
		}}
	}
	return nil
}

// sameEnd tells whether two outcomes are the same to a client.
func sameEnd(a, b *netfilter.Outcome) bool {
	x, y := &a.Packet, &b.Packet
	return a.End == b.End && a.Certain == b.Certain && a.Where == b.Where && x.Dst == y.Dst && x.DstPort == y.DstPort &&
		x.Src == y.Src && x.Out == y.Out && x.Mark == y.Mark && x.CTMark == y.CTMark && x.Untracked == y.Untracked
}

// passedBy are the hooks that packets of a connection in a flowtable do not come to.
var passedBy = []netfilter.Hook{netfilter.Prerouting, netfilter.Forward, netfilter.Postrouting}

// mayBeOffloaded makes what is wrong unsure where a rule hands the connection to a flowtable: with a packet of either
// direction, once it is established, and of UDP with the client's second packet, so that what comes then does not meet
// the rule that drops it (nft_flow_offload_eval in net/netfilter/nft_flow_offload.c). A SYN,ACK comes before that.
func (p *pathCase) mayBeOffloaded(x onward, s *netfilter.Start, end *netfilter.Outcome, in string) onward {
	if x.code == "" || !slices.Contains(passedBy, x.at.Where.Hook) || x.at.Where.Chain == nil {
		return x
	}
	there, back := p.walker.Follow(*s, end, netfilter.Options{}), p.walker.Answer(*s, end, in, netfilter.Options{})
	if x.at.Packet.Turn == netfilter.Later {
		in = s.Packet.In
	}
	rules := slices.Concat(there.Offloads, back.Offloads)
	at := slices.IndexFunc(rules, func(r netfilter.Ref) bool {
		return slices.ContainsFunc(r.Rule.Ops, func(o netfilter.Op) bool {
			f, ok := o.(*op.Offload)
			return ok && f.Takes(p.net, in)
		})
	})
	if at < 0 {
		return x
	}
	by := rules[at]
	x.unsure = []netfilter.Uncertain{{
		Where: by, What: by.Rule.Text,
		Why: "it hands established connections to a flowtable, whose packets do not come to " + x.at.Where.String() +
			", which drops " + x.what() + " otherwise (nft list flowtables)",
	}}
	x.code = ""
	return x
}

// laterOf walks a later packet to an outcome.
func (p *pathCase) laterOf(s *netfilter.Start, end *netfilter.Outcome, opt netfilter.Options) onward {
	opt.Enters = p.entered
	res := p.walker.Follow(*s, end, opt)
	x := p.judgeOnward(&res, ConnectionCut, ConnectionCut, func(o *netfilter.Outcome) (string, bool) {
		if o.Packet.Dst != end.Packet.Dst || o.Packet.DstPort != end.Packet.DstPort {
			why := "it goes to " + netip.AddrPortFrom(o.Packet.Dst, o.Packet.DstPort).String()
			if o.Packet.Untracked && !end.Packet.Untracked {
				why += ", as it is not tracked, so that nothing translates it"
			}
			return why, false
		}
		src, first := o.Packet.Src, end.Packet.Src
		return "it comes from " + src.String() + ", and the first from " + first.String(),
			src == first || !src.IsValid() || !first.IsValid()
	})
	x.citeTracking(end, res.Outcomes, func() netfilter.Result {
		opt.Steps = true
		return p.walker.Follow(*s, end, opt)
	})
	return x
}
