// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// sameShare is how far shares may differ and still count as equal: kube-proxy writes probabilities with ten digits, and
// iptables rounds them to 31 bits.
const sameShare = 1e-4

// certainty is how close to 1 a sum of probabilities has to come to mean "always".
const certainty = 1e-9

// The actions of an outcome that are not an expect.Action.
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
	// masqBy is the rule that translated the source, where it is neither kube-proxy's nor of the command program.
	masqBy  netfilter.Ref
	by      netfilter.Ref // the rule that translated the destination
	byOwner owner
	where   netfilter.Ref // the rule that ended the walk
	atOwner owner         // of where
	why     string
	route   string        // of one that the reverse path filter drops: what is wrong with the route to its source
	recent  string        // the affinity lists that the client is in afterwards
	sharing string        // by what IPVS shares out the connections, where the share is not fixed
	here    bool          // given to a socket of the node
	decided host.Decision // of one without a usable route: the routing rule and the route
	reverse bool          // dropped by the reverse path filter: why has its setting
	virtual bool          // a virtual server of IPVS has chosen
	own     netip.Addr    // the source of a packet of the node that leaves by it, where answers to that come back anyway
	inside  bool          // given to a socket of the node without passing POSTROUTING: there is no place to masquerade
}

// outcomes are the ends of a walk, those that are alike added up.
type outcomes struct {
	list      []outcome
	sent      []*outcome // of list, those that are certainly translated to where they go
	uncertain bool       // some outcome depends on what the snapshot does not tell
	lost      bool       // some branch could not be followed to its end: it may lead anywhere
}

func (n *node) outcomesOf(f expect.Frontend, res *netfilter.Result) outcomes {
	out := outcomes{list: make([]outcome, 0, len(res.Outcomes))}
	// Of many, those in the list by where they go.
	var at map[netip.AddrPort][]int
	if len(res.Outcomes) > fewOutcomes {
		at = make(map[netip.AddrPort][]int, len(res.Outcomes))
	}
	for i := range res.Outcomes {
		o := n.outcomeOf(f, &res.Outcomes[i])
		out.uncertain = out.uncertain || !o.certain
		out.lost = out.lost || o.action == unknownAction
		merged := false
		if at != nil {
			merged = slices.ContainsFunc(at[o.to], func(k int) bool { return out.list[k].merge(&o) })
		} else {
			for k := 0; k < len(out.list) && !merged; k++ {
				merged = out.list[k].merge(&o)
			}
		}
		if merged {
			continue
		}
		if at != nil {
			at[o.to] = append(at[o.to], len(out.list))
		}
		out.list = append(out.list, o)
	}
	slices.SortStableFunc(out.list, func(a, b outcome) int { return a.compare(b.action, b.to) })
	out.sent = out.of(string(expect.DNAT))
	return out
}

// compare orders outcomes in a list.
func (o *outcome) compare(action string, to netip.AddrPort) int {
	return cmp.Or(strings.Compare(o.action, action), o.to.Compare(to))
}

// sentTo returns the outcomes of an action that go to an address.
func (t *outcomes) sentTo(action string, to netip.AddrPort) []outcome {
	first := sort.Search(len(t.list), func(i int) bool { return t.list[i].compare(action, to) >= 0 })
	last := first
	for last < len(t.list) && t.list[last].compare(action, to) == 0 {
		last++
	}
	return t.list[first:last]
}

// fewOutcomes is up to how many of them each is compared with all others.
const fewOutcomes = 16

// merge adds an outcome that is alike; false where it is not.
func (o *outcome) merge(x *outcome) bool {
	if x.action != o.action || x.to != o.to || x.certain != o.certain || x.masq != o.masq || x.masqBy != o.masqBy ||
		x.where != o.where || x.by != o.by || x.recent != o.recent || x.reverse != o.reverse || x.decided != o.decided {
		return false
	}
	if o.certain {
		o.share += x.share
	} else {
		o.share = max(o.share, x.share) // under different assumptions, which must not be added up
	}
	return true
}

// givenItsOwn tells whether a pod gets its own address as the source of what it is sent, which no pod answers.
func (n *node) givenItsOwn(pkt *netfilter.Packet) bool {
	if pkt.Src != pkt.Dst || !pkt.Src.IsValid() {
		return false
	}
	own, known := n.net.Local(pkt.Dst)
	return known && !own
}

func (n *node) outcomeOf(f expect.Frontend, r *netfilter.Outcome) outcome {
	o := outcome{
		share: r.P, certain: r.Certain, where: r.Where, why: r.Why, route: r.Route, decided: r.By, recent: r.Packet.Recent,
		by: r.Packet.DNATBy, sharing: r.Packet.Scheduled, here: r.End == netfilter.Delivered,
		virtual: r.Packet.Virtual.IsValid(), inside: r.End == netfilter.Delivered && !r.Packet.Local,
	}
	o.byOwner, o.atOwner = n.ownerOf(o.by), n.ownerOf(o.where)
	if r.Packet.DNAT {
		o.to = netip.AddrPortFrom(r.Packet.Dst, r.Packet.DstPort)
	}
	if o.to == netip.AddrPortFrom(f.Address, f.Port) && o.byOwner == program {
		o.to = netip.AddrPort{} // it was translated to itself, for IPVS, which has not taken it
	}
	if r.Packet.SNAT && !n.givenItsOwn(&r.Packet) {
		o.masq = true
		if n.ownerOf(r.Packet.SNATBy) == others {
			o.masqBy = r.Packet.SNATBy
		}
	}
	if p := &r.Packet; r.End == netfilter.Sent && p.Local && !p.SNAT && n.answeredAt(p.Src, p.Out) {
		o.own = p.Src
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

// answeredAt tells whether answers to an address come back to the node: others know it as the Node's, or it is one of
// the interface that packets leave by.
func (n *node) answeredAt(a netip.Addr, dev string) bool {
	return a.IsValid() && (n.cluster.ofNode(a) == n.Name || slices.Contains(n.net.AddressesOn(dev), a))
}

// sharing tells by what the connections are shared out, where that comes to no fixed shares; "" where it does.
func (t *outcomes) sharing() string {
	for i := range t.list {
		if by := t.list[i].sharing; by != "" {
			return by
		}
	}
	return ""
}

// share returns how much certainly goes to an endpoint, and whether anything may.
func (t *outcomes) share(to netip.AddrPort) (certain float64, possible bool) {
	for _, o := range t.sentTo(string(expect.DNAT), to) {
		if o.certain {
			certain += o.share
		} else {
			possible = true
		}
	}
	return certain, possible || t.lost || certain > 0
}

// leadsTo returns an endpoint that packets are certainly translated to; the zero AddrPort where there is none.
func (t *outcomes) leadsTo() netip.AddrPort {
	if len(t.sent) == 0 {
		return netip.AddrPort{}
	}
	return t.sent[0].to
}

// leads tells whether packets may be translated to an address, whatever becomes of them then.
func (t *outcomes) leads(to netip.AddrPort) bool {
	return t.lost || slices.ContainsFunc(t.list, func(o outcome) bool { return o.to == to })
}

// is tells whether an outcome certainly has an action.
func (o *outcome) is(action string) bool { return o.action == action && o.certain && o.share > 0 }

// of returns the outcomes of an action, the certain ones only.
func (t *outcomes) of(action string) []*outcome {
	var out []*outcome
	for i := range t.list {
		if o := &t.list[i]; o.is(action) {
			out = append(out, o)
		}
	}
	return out
}

// translated returns the outcomes of connections that are translated to where they go.
func (t *outcomes) translated() []*outcome { return t.sent }

// all tells whether an action is certain to happen.
func (t *outcomes) all(action string) bool {
	sum := 0.0
	for i := range t.list {
		if o := &t.list[i]; o.is(action) {
			sum += o.share
		}
	}
	return sum > 1-certainty
}

func differ(a, b float64) bool { return math.Abs(a-b) > sameShare }
