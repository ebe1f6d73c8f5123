// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// sameShare is how far shares may differ and still count as equal: kube-proxy writes probabilities with ten digits, and
// iptables rounds them to 31 bits.
const sameShare = 1e-4

// certainty is how close to 1 a sum of probabilities has to come to mean "always".
const certainty = 1e-9

// The actions of an Outcome that are not an expect.Action.
const (
	acceptAction  = "Accept"  // let through untranslated
	unknownAction = "Unknown" // the walk cannot follow it
	noneAction    = "None"    // no route
)

// outcome is what happens to a share of the connections.
type outcome struct {
	action  string
	to      netip.AddrPort // where it was translated to; the zero AddrPort when it was not
	share   float64
	certain bool
	masq    bool
	masqBy  netfilter.Ref // the rule that translated the source, where it is not kube-proxy's
	by      netfilter.Ref // the rule that translated the destination
	where   netfilter.Ref // the rule that ended the way
	why     string
	route   string // of one that the reverse path filter drops: what is wrong with the route to its source
	recent  string // the affinity lists that the client is in afterwards
	sharing string // by what IPVS shares out the connections, where the share is not fixed
	here    bool   // given to a socket of the node
	reverse bool   // dropped by the reverse path filter: why has its setting
	virtual bool   // a virtual server of IPVS has chosen
	inside  bool   // given to a socket of the node without passing POSTROUTING: there is no place to masquerade
}

// tally groups the ends of a walk.
type tally struct {
	outcomes  []outcome
	uncertain bool // some outcome depends on what the snapshot does not tell
	lost      bool // some way could not be followed to its end: it may lead anywhere
}

func tallyOf(f expect.Frontend, res *netfilter.Result) tally {
	t := tally{outcomes: make([]outcome, 0, len(res.Outcomes))}
	for i := range res.Outcomes {
		o := newOutcome(f, &res.Outcomes[i])
		t.uncertain = t.uncertain || !o.certain
		t.lost = t.lost || o.action == unknownAction
		t.add(o)
	}
	slices.SortStableFunc(t.outcomes, func(a, b outcome) int {
		if c := strings.Compare(a.action, b.action); c != 0 {
			return c
		}
		return a.to.Compare(b.to)
	})
	return t
}

func (t *tally) add(o outcome) {
	for i := range t.outcomes {
		x := &t.outcomes[i]
		if x.action == o.action && x.to == o.to && x.certain == o.certain && x.masq == o.masq && x.masqBy == o.masqBy &&
			x.where == o.where && x.by == o.by && x.recent == o.recent && x.reverse == o.reverse {
			if o.certain {
				x.share += o.share
			} else {
				x.share = max(x.share, o.share) // in different worlds, which must not be added up
			}
			return
		}
	}
	t.outcomes = append(t.outcomes, o)
}

// sharing tells by what the connections are shared out, where that comes to no fixed shares; "" where it does.
func (t *tally) sharing() string {
	for i := range t.outcomes {
		if by := t.outcomes[i].sharing; by != "" {
			return by
		}
	}
	return ""
}

func newOutcome(f expect.Frontend, r *netfilter.Outcome) outcome {
	o := outcome{share: r.P, certain: r.Certain, where: r.Where, why: r.Why, route: r.Route, recent: r.Packet.Recent, by: r.Packet.DNATBy, sharing: r.Packet.Scheduled}
	o.here = r.End == netfilter.Delivered
	o.virtual = r.Packet.Virtual.IsValid()
	o.inside = r.End == netfilter.Delivered && !r.Packet.Local
	if r.Packet.DNAT {
		o.to = netip.AddrPortFrom(r.Packet.Dst, r.Packet.DstPort)
	}
	if o.to == netip.AddrPortFrom(f.Address, f.Port) && byProgram(o.by) {
		o.to = netip.AddrPort{} // it was translated to itself, for IPVS, which has not taken it
	}
	if r.Packet.SNAT {
		o.masq = true
		if !ofService(r.Packet.SNATBy) {
			o.masqBy = r.Packet.SNATBy
		}
	}
	switch r.End {
	case netfilter.Sent, netfilter.Delivered:
		o.action = acceptAction
		if o.to.IsValid() && o.to != netip.AddrPortFrom(f.Address, f.Port) {
			o.action = string(expect.DNAT)
		}
	case netfilter.Dropped:
		o.action = string(expect.Drop)
	case netfilter.Filtered:
		o.action, o.reverse = string(expect.Drop), true
	case netfilter.Rejected:
		o.action = string(expect.Reject)
	case netfilter.NoRoute:
		o.action = noneAction
	case netfilter.Taken, netfilter.Lost:
		o.action, o.certain = unknownAction, false
	}
	return o
}

// byKube tells whether a rule is in one of kube-proxy's chains.
func byKube(r netfilter.Ref) bool {
	return r.Chain != nil && (strings.HasPrefix(r.Chain.Name, "KUBE-") || isNFTKube(r.Chain.Table) || isIPVSKube(r.Chain.Table))
}

// share returns how much certainly goes to an endpoint, and whether anything may.
func (t *tally) share(to netip.AddrPort) (certain float64, possible bool) {
	for i := range t.outcomes {
		if o := &t.outcomes[i]; o.action == string(expect.DNAT) && o.to == to {
			if o.certain {
				certain += o.share
			} else {
				possible = true
			}
		}
	}
	return certain, possible || t.lost || certain > 0
}

// of returns the outcomes of an action, the certain ones only.
func (t *tally) of(action string) []*outcome {
	var out []*outcome
	for i := range t.outcomes {
		if o := &t.outcomes[i]; o.action == action && o.certain && o.share > 0 {
			out = append(out, o)
		}
	}
	return out
}

// all tells whether an action is certain to happen.
func (t *tally) all(action string) bool {
	sum := 0.0
	for _, o := range t.of(action) {
		sum += o.share
	}
	return sum > 1-certainty
}

func differ(a, b float64) bool { return math.Abs(a-b) > sameShare }
