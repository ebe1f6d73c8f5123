// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
)

// goesOn walks what comes behind the answer to the first packet through a namespace that both have passed: packets of
// the client and of the endpoint in turn, with what those before them have left there. Answers come in by an interface.
// nil says that nothing stands against them.
func (f *follower) goesOn(s *nodestate.State, p *passed, in string, answer *netfilter.Outcome) *trouble {
	family := p.start.Packet.Family
	follows := func(o *netfilter.Outcome) bool {
		return o.End == p.end.End && o.Packet.Dst == p.end.Packet.Dst && o.Packet.DstPort == p.end.Packet.DstPort
	}
	var doubt *trouble
	stops := func(packet string, o *netfilter.Outcome, bad *trouble) bool {
		if bad == nil {
			return false
		}
		if bad.packet = packet; doubt == nil || !bad.unknown {
			doubt = bad
		}
		return !bad.unknown || !o.Packet.Dst.IsValid() // there is none
	}
	// What ends the connection may also be known to be lost: for a client that knows the answer's length it is not.
	for _, ending := range []netfilter.Ending{netfilter.GoesOn, netfilter.MayEnd} {
		for left, rounds := p.walker.Left(answer), 0; rounds < 2; rounds++ {
			at := left
			res := p.walker.Follow(p.start, &p.end, netfilter.Options{Left: &at, Ending: ending})
			o, bad := f.passes(s, family, &res, follows)
			if stops("a later packet of the client", &o, bad) {
				return doubt
			}
			at = p.walker.Left(&o)
			further := p.answers
			further.Left, further.Further, further.Ending, further.Enters = &at, true, ending, true
			res = p.walker.Answer(p.start, &p.end, in, further)
			o, bad = f.passes(s, family, &res, answered(p, answer.End))
			if stops("a later packet of the endpoint", &o, bad) {
				return doubt
			}
			left = p.walker.Left(&o)
		}
	}
	return doubt
}
