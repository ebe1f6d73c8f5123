// SPDX-License-Identifier: Apache-2.0

// Package netfilter is the model of a node's packet filter, whatever wrote it, and the walk of one packet through it.
//
// The walk decides as the kernel does for the first packet of a connection. Where chance decides it takes every way, with
// its exact probability; where something decides that the snapshot does not hold it takes both ways too, and says so unless
// both come to the same end. It never guesses, and it never skips what it does not know.
package netfilter

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
)

// End is how a packet's way ends.
type End uint8

// The ends.
const (
	Sent      End = iota // left the node, or was forwarded, by Packet.Out
	Delivered            // given to a local socket
	Dropped              // silently, by Outcome.Where
	Rejected             // with an answer to the sender, by Outcome.Where
	NoRoute              // no usable route to Packet.Dst
	Taken                // handed to user space or a local proxy by Outcome.Where (NFQUEUE, TPROXY, SYNPROXY)
	Lost                 // the walk cannot follow it any further: an opaque target or chain at Outcome.Where
	Filtered             // dropped for its source, by no rule: the reverse path filter's setting and route are in Outcome.Why and Outcome.Route
)

// String returns the end as a verb form for people.
func (e End) String() string {
	return [...]string{"sent", "delivered", "dropped", "rejected", "no route", "taken", "not known", "dropped for its source"}[e]
}

// Start is how a packet enters the node: at Prerouting with Packet.In set, or at Output as a local process sends it.
type Start struct {
	Hook   Hook
	Packet Packet
}

// Options change what a walk assumes and records.
type Options struct {
	// Listed are xt_recent lists (each followed by ' ', as in Packet.Recent) that the source is in already: a returning
	// client. Empty: a client that was never seen before.
	Listed string
	// Only follows no way any further, once PREROUTING is behind it, that was translated to another destination. The Result
	// then lacks these ways.
	Only netip.AddrPort
	// Enters says that the packet is certain to come in by Packet.In, so that the reverse path filter of that interface may be asked. What
	// it would make of a packet is not asked where that is an assumption, and nothing is claimed where its inputs were not collected.
	Enters bool
	// Steps records the rules that applied.
	Steps bool
}

// Outcome is one end that the packet may come to.
type Outcome struct {
	End     End
	Packet  Packet // as it was at the end
	P       float64
	Certain bool // false: only if some of Result.Uncertain turn out one way
	Where   Ref  // what ended it; zero for Sent, Delivered, NoRoute and Filtered
	// Why says more: what makes it uncertain, or of a Filtered one the setting that drops it.
	Why   string
	Route string // of a Filtered one, what is wrong with the route to its source
}

// Uncertain is something that decides between outcomes and that the snapshot does not tell.
type Uncertain struct {
	Where Ref
	What  string // the rule's text, or what is not known
	Why   string
}

// Result is everything that may happen to a packet. The P of the certain outcomes, and of the uncertain ones in any one
// possible world, add up to 1.
type Result struct {
	Outcomes  []Outcome
	Uncertain []Uncertain
	Steps     []Step
	// Both tells that something on the way was not known, so that Steps has the rules of both ways, even if it did not matter in the
	// end and is not in Uncertain.
	Both bool
}

// Walker walks packets through one node's ruleset. A Walker is for one goroutine; several may share a linked Ruleset.
type Walker struct {
	host     *host.Network
	lists    []string // prefixes of the lists whose clients are known
	stations map[Family][hooks][]station

	ctx    Context
	opt    Options
	frames [maxDepth]frame
	spare  []branch // the other one of two buffers that branches go to and fro between
	first  []branch // a buffer for the branch that a walk starts with
	ended  []branch // ways that have come to an end
	resent []branch // what IPVS has scheduled at the hook in progress, and sends on itself
	found  []Outcome

	start   Packet
	work    int  // rules run
	gaveUp  bool // some uncertain ways were not followed
	unknown []Uncertain
	unkIDs  map[unknownKey]uint
	steps   []Step
	stepIDs map[stepKey]int // by key, where in steps it is
	at      Ref
}

// station is one priority of a hook: chains whose order among themselves the ruleset does not tell.
type station struct {
	priority int
	nat      bool
	chains   []*Chain
}

// conntrack's own place among the priorities of the NAT chains: whatever priority a nat chain asks for, it runs from the NAT
// core's hook (net/netfilter/nf_nat_proto.c, nf_nat_ipv4_ops), the priority only orders nat chains among themselves.
const (
	natDstPriority = -100
	natSrcPriority = 100
)

// NewWalker prepares walks through a linked ruleset. h may know nothing but must not be nil; sets may be nil.
func NewWalker(rs *Ruleset, h *host.Network, sets SetLookup, options ...WalkerOption) *Walker {
	w := &Walker{host: h, first: make([]branch, 0, 1), stations: map[Family][hooks][]station{}, unkIDs: map[unknownKey]uint{}, stepIDs: map[stepKey]int{}}
	w.ctx = Context{Host: h, Sets: sets, Recent: w.recent}
	for _, f := range []Family{IPv4, IPv6} {
		w.stations[f] = stationsOf(rs, f)
	}
	for _, set := range options {
		set(w)
	}
	return w
}

// WalkerOption is an assumption of all walks of a Walker.
type WalkerOption func(*Walker)

// WithClientLists gives prefixes of the names of lists whose clients are known ([ClientList]): a new client is in none of these lists,
// a returning one in those of Options.Listed.
func WithClientLists(prefixes ...string) WalkerOption {
	return func(w *Walker) { w.lists = prefixes }
}

func stationsOf(rs *Ruleset, f Family) [hooks][]station {
	type hooked struct {
		order, priority int
		chain           *Chain
	}
	var found [hooks][]hooked
	for _, t := range rs.Tables {
		if t.Family&f == 0 {
			continue
		}
		for _, c := range t.Chains {
			if c.Base == nil || c.Base.Hook >= hooks || c.inert() {
				continue
			}
			order := c.Base.Priority
			if c.Base.Type == TypeNAT {
				order = natDstPriority
				if c.Base.Hook == Input || c.Base.Hook == Postrouting {
					order = natSrcPriority
				}
			}
			found[c.Base.Hook] = append(found[c.Base.Hook], hooked{order, c.Base.Priority, c})
		}
	}
	var out [hooks][]station
	for h := range found {
		slices.SortStableFunc(found[h], func(a, b hooked) int {
			if a.order != b.order {
				return a.order - b.order
			}
			return a.priority - b.priority
		})
		for i, x := range found[h] {
			nat := x.chain.Base.Type == TypeNAT
			last := len(out[h]) - 1
			if i > 0 && found[h][i-1].order == x.order && out[h][last].priority == x.priority && out[h][last].nat == nat {
				out[h][last].chains = append(out[h][last].chains, x.chain)
				continue
			}
			out[h] = append(out[h], station{priority: x.priority, nat: nat, chains: []*Chain{x.chain}})
		}
	}
	return out
}

// recent answers for the lists of [WithClientLists]; all others hold what the snapshot does not.
func (w *Walker) recent(list string) (listed, known bool) {
	if inList(w.ctx.Packet.Recent, list) || inList(w.opt.Listed, list) {
		return true, true
	}
	for _, prefix := range w.lists {
		if strings.HasPrefix(list, prefix) {
			return false, true
		}
	}
	return false, false
}

func inList(lists, name string) bool {
	for lists != "" {
		head, rest, _ := strings.Cut(lists, " ")
		if head == name {
			return true
		}
		lists = rest
	}
	return false
}

// Walk follows a packet from s to all its possible ends. The Result's Outcomes are good until the next call.
func (w *Walker) Walk(s Start, opt Options) Result {
	w.opt, w.ctx.Steps = opt, opt.Steps
	w.unknown, w.steps, w.ended, w.resent, w.work = nil, nil, w.ended[:0], nil, 0
	w.gaveUp = false
	clear(w.unkIDs)
	clear(w.stepIDs)
	p := s.Packet
	p.OrigSrc, p.OrigDst, p.OrigDstPort = p.Src, p.Dst, p.DstPort
	w.start = p
	in := branch{pkt: p, p: 1}
	if s.Hook == Output {
		w.fromOutput(in)
	} else {
		w.fromPrerouting(in)
	}
	return w.result()
}

// fromPrerouting is the way of a packet that comes in by an interface: PREROUTING, the routing decision, and then either
// INPUT, or FORWARD and POSTROUTING.
func (w *Walker) fromPrerouting(in branch) {
	alive := w.hook(Prerouting, append(w.first[:0], in), false)
	var toInput []branch
	toForward := make([]branch, 0, len(alive))
	for _, b := range alive {
		// One that is translated to itself may still be IPVS's.
		same := b.pkt.Dst == b.pkt.OrigDst && b.pkt.DstPort == b.pkt.OrigDstPort
		if w.opt.Only.IsValid() && b.pkt.DNAT && !same && w.opt.Only != netip.AddrPortFrom(b.pkt.Dst, b.pkt.DstPort) {
			continue
		}
		if b.pkt.TProxy != 0 {
			toInput = append(toInput, b)
			continue
		}
		if w.martian(&b) || w.filtered(b) {
			continue
		}
		toInput, toForward = w.byAddress(b, toInput, toForward)
	}
	w.finish(w.hook(Input, toInput, false), Delivered)
	w.finish(w.hook(Postrouting, w.resend(), false), Sent)
	// POSTROUTING knows the incoming interface of what is forwarded, since Linux 5.7 (net/ipv4/ip_output.c, ip_output).
	w.finish(w.hook(Postrouting, w.hook(Forward, w.egress(toForward), false), false), Sent)
}

// fromOutput is the way of a locally made packet: OUTPUT on the way that its first destination asks for, a new routing
// decision for the translated one (ip_route_me_harder), POSTROUTING, and, when the destination is the node itself, in again
// by lo. NAT is settled by then: the nat chains of PREROUTING and INPUT do not see it a second time.
func (w *Walker) fromOutput(in branch) {
	in.pkt.Local = true
	alive := w.hook(Output, w.egress(append(w.first[:0], in)), false)
	alive = append(alive, w.resend()...)
	alive = w.hook(Postrouting, w.egress(alive), false)
	var loop []branch
	sent := make([]branch, 0, len(alive))
	for _, b := range alive {
		loop, sent = w.byAddress(b, loop, sent)
	}
	w.finish(sent, Sent)
	for i := range loop {
		loop[i].pkt.In, loop[i].pkt.Out = "lo", ""
	}
	w.finish(w.hook(Input, w.hook(Prerouting, loop, true), true), Delivered)
}

// resend sends on what IPVS has scheduled to real servers beyond the node. It goes through OUTPUT from its beginning, whichever hook it
// was scheduled at, to POSTROUTING (net/netfilter/ipvs/ip_vs_xmit.c, ip_vs_nat_send_or_cont); the nat chains of OUTPUT have had, or
// missed, their turn: the destination's translation is settled.
func (w *Walker) resend() []branch {
	again := w.resent
	w.resent = nil
	if len(again) == 0 {
		return nil
	}
	in := again[0].pkt.In // of all: they are one packet
	for i := range again {
		again[i].pkt.In = ""
	}
	out := w.hook(Output, w.egress(again), true)
	for i := range out {
		out[i].pkt.In = in
	}
	return out
}

// martian ends a branch that the node does not take for its destination, a loopback address, from outside. Where that is not known it
// is lost with one half, and goes on with the other.
func (w *Walker) martian(b *branch) bool {
	refused, known := w.host.Martian(b.pkt.In, b.pkt.Dst)
	if known && !refused {
		return false
	}
	what := "whether " + b.pkt.In + " takes packets to " + b.pkt.Dst.String()
	if !known {
		var lost branch
		lost, *b = w.fork(*b, martianKey{}, Uncertain{What: what, Why: "that depends on settings (sysctl.txt) and routes that were not collected, or on the way back"})
		lost.why = what
		w.finish([]branch{lost}, Lost)
		return false
	}
	no := *b
	no.why = "only lo takes packets to " + no.pkt.Dst.String()
	w.finish([]branch{no}, NoRoute)
	return true
}

// filtered ends a branch that the kernel drops where it routes it, for the way back to its source.
func (w *Walker) filtered(b branch) bool {
	if !w.opt.Enters || b.pkt.In == UnknownIface {
		return false
	}
	if r, known := w.route(&b.pkt); known && unusable(r.Type) {
		return false // the way there is looked up first
	}
	drop, _ := w.host.ReversePath(host.Query{Dst: b.pkt.Dst, Src: b.pkt.Src, In: b.pkt.In, Mark: b.pkt.Mark})
	if drop == (host.Reverse{}) {
		return false
	}
	b.why, b.route = drop.Setting, drop.Route
	w.finish([]branch{b}, Filtered)
	return true
}

// martianKey stands for what Walker.martian asks.
type martianKey struct{}

// byAddress sorts a branch by whether its destination is an address of the node; both ways where that is not known.
func (w *Walker) byAddress(b branch, local, other []branch) (l, o []branch) {
	is, known := w.host.Local(b.pkt.Dst)
	switch {
	case !known:
		yes, no := w.fork(b, b.pkt.Dst, Uncertain{
			What: "whether " + b.pkt.Dst.String() + " is an address of the node",
			Why:  "the node's addresses were not collected (ip-addr.json)",
		})
		return append(local, yes), append(other, no)
	case is:
		return append(local, b), other
	}
	return local, append(other, b)
}

// egress looks up the way out, in place; what has none ends.
func (w *Walker) egress(bs []branch) []branch {
	out := bs[:0]
	for _, b := range bs {
		r, known := w.route(&b.pkt)
		switch {
		case !known:
			b.pkt.Out = UnknownIface
		case unusable(r.Type):
			w.noRoute(b)
			continue
		case r.Dev == "":
			b.pkt.Out = UnknownIface
		default:
			b.pkt.Out = r.Dev
		}
		out = append(out, b)
	}
	return out
}

// route looks up the way of a packet. Of one that came in by an interface the kernel's rules may ask for source, mark and interface as they
// are (ip_route_input_slow in net/ipv4/route.c, ip6_route_input in net/ipv6/route.c); a process's is looked up before it has a source.
func (w *Walker) route(p *Packet) (r host.Route, known bool) {
	if p.Local || p.In == "" || p.In == UnknownIface {
		r, known, _ = w.host.Route(p.Dst)
		return r, known
	}
	r, known, _ = w.host.RouteIn(host.Query{Dst: p.Dst, Src: p.Src, In: p.In, Mark: p.Mark})
	return r, known
}

// unusable tells whether a route ends the packet.
func unusable(t host.RouteType) bool {
	return t == host.RouteNone || t == host.RouteBlackhole || t == host.RouteUnreachable || t == host.RouteProhibit
}

func (w *Walker) noRoute(b branch) {
	b.why = "no route to " + b.pkt.Dst.String()
	w.finish([]branch{b}, NoRoute)
}

// translated ends what has no route any more: the NAT of OUTPUT looks for a new one at once, before the chains behind it
// (nf_nat_ipv4_local_fn and nf_nat_ipv6_local_fn in net/netfilter/nf_nat_proto.c). The interface that those see stays the old one.
func (w *Walker) translated(bs []branch) []branch {
	return slices.DeleteFunc(bs, func(b branch) bool {
		if !b.pkt.DNAT || b.pkt.Dst == b.pkt.OrigDst {
			return false
		}
		r, known, _ := w.host.Route(b.pkt.Dst)
		if !known || !unusable(r.Type) {
			return false
		}
		w.noRoute(b)
		return true
	})
}

func (w *Walker) finish(bs []branch, e End) {
	for _, b := range bs {
		b.verdict, b.end, b.where = Drop, e, Ref{}
		w.ended = append(w.ended, b)
	}
}

// hook runs the base chains of one hook, in the order of their priorities, for packets of one family, and returns those that
// come out of it. It takes the slice over.
func (w *Walker) hook(h Hook, alive []branch, natDone bool) []branch {
	if len(alive) == 0 {
		return nil
	}
	w.ctx.Hook = h
	stations := w.stations[alive[0].pkt.Family][h]
	for i := range stations {
		s := &stations[i]
		if s.nat && natDone {
			continue
		}
		next := w.spare[:0]
		for j := range alive {
			if s.nat && natSettled(&alive[j].pkt, h) {
				next = append(next, alive[j])
				continue
			}
			from := len(next)
			next = w.station(h, s, &alive[j], next)
			if s.chains[0].Table.Backend == BackendIPVS && !alive[j].pkt.Virtual.IsValid() {
				next = w.scheduled(next, from)
			}
		}
		if s.nat && h == Output {
			next = w.translated(next)
		}
		w.spare, alive = alive, collapse(merge(next))
	}
	return alive
}

// scheduled takes out of a hook what IPVS has scheduled there and sends on itself: what goes to real servers that are not the node. For
// one on the node the packet goes on through the hook (ip_vs_nat_xmit). It looks at the branches from number from on.
func (w *Walker) scheduled(bs []branch, from int) []branch {
	fresh := slices.Clone(bs[from:])
	bs = bs[:from]
	for _, b := range fresh {
		if !b.pkt.Virtual.IsValid() {
			bs = append(bs, b)
			continue
		}
		bs, w.resent = w.byAddress(b, bs, w.resent)
	}
	return bs
}

// natSettled tells whether a nat chain of this hook is passed over: the connection is not tracked, or the translation that
// the hook makes is decided already (nf_nat_initialized).
func natSettled(p *Packet, h Hook) bool {
	if p.Untracked {
		return true
	}
	if h == Prerouting || h == Output {
		return p.DNAT
	}
	return p.SNAT
}

// station runs the chains of one priority. Two backends may be hooked in at the same one; which of them goes first depends on
// which was loaded last, and no dump tells: both orders are tried.
func (w *Walker) station(h Hook, s *station, b *branch, alive []branch) []branch {
	switch {
	case len(s.chains) == 1:
		return w.base(h, s.chains[0], b, alive)
	case len(s.chains) == 2:
		first, second := w.fork(*b, s, orderUnknown(h, s))
		alive = w.sequence(h, s, first, s.chains, alive)
		return w.sequence(h, s, second, []*Chain{s.chains[1], s.chains[0]}, alive)
	}
	// Of more chains one order stands for all: the packet may also come to another end.
	u := orderUnknown(h, s)
	tainted := w.taint(*b, s, u)
	lost := tainted
	lost.why = u.What
	w.finish([]branch{lost}, Lost)
	return w.sequence(h, s, tainted, s.chains, alive)
}

func orderUnknown(h Hook, s *station) Uncertain {
	names := make([]string, len(s.chains))
	for i, c := range s.chains {
		names[i] = string(c.Table.Backend) + " table " + c.Table.Name
	}
	return Uncertain{
		Where: Ref{Hook: h, Chain: s.chains[0]}, What: "the order of " + strings.Join(names, " and ") + " at " + h.String(),
		Why: "they have the same priority; the one loaded last goes first, which no dump tells",
	}
}

func (w *Walker) sequence(h Hook, s *station, b branch, chains []*Chain, alive []branch) []branch {
	in := []branch{b}
	for _, c := range chains {
		var next []branch
		for i := range in {
			if s.nat && natSettled(&in[i].pkt, h) {
				next = append(next, in[i])
				continue
			}
			next = w.base(h, c, &in[i], next)
		}
		in = next
	}
	return append(alive, in...)
}

// base runs a base chain and applies its policy. It appends what the chain accepts to alive; the rest ends.
func (w *Walker) base(h Hook, c *Chain, b *branch, alive []branch) []branch {
	if c.Unread != "" {
		through, lost := w.opaque(*b, Ref{Hook: h, Chain: c}, c.Unread)
		through.verdict = Accept
		w.ended = append(w.ended, lost)
		return append(alive, through)
	}
	w.ctx.Base = c.Base
	out := w.chain(h, c, b, 0)
	for i := range out {
		o := &out[i]
		switch {
		case o.verdict == Accept, o.verdict == Return && c.Base.Policy == Accept:
			o.verdict = Accept
			alive = append(alive, *o)
			continue
		case o.verdict == Return:
			o.verdict, o.end, o.where = Drop, Dropped, Ref{Hook: h, Chain: c}
			w.step(Step{Kind: StepPolicy, Verdict: Drop, Ref: o.where, P: o.p})
		}
		w.ended = append(w.ended, *o)
	}
	return alive
}

func (w *Walker) result() Result {
	bs := mergeEnds(collapse(merge(w.ended)))
	w.found = w.found[:0]
	var relevant uint64
	for i := range bs {
		b := &bs[i]
		relevant |= b.yes | b.no
		w.found = append(w.found, Outcome{End: b.end, Packet: b.pkt, P: b.p, Certain: b.yes|b.no == 0, Where: b.where, Why: b.why, Route: b.route})
	}
	res := Result{Outcomes: w.found, Steps: w.steps, Both: len(w.unknown) > 0}
	for i, u := range w.unknown {
		if relevant&(1<<min(uint(i), overflowBit)|1<<overflowBit) != 0 {
			res.Uncertain = append(res.Uncertain, u)
		}
	}
	return res
}

// SourceFor returns the address that a local process's packet to dst carries as its source: that of the route, and for the
// node's own addresses the destination itself. The zero Addr when it is not known.
func SourceFor(h *host.Network, dst netip.Addr) netip.Addr {
	if local, known := h.Local(dst); known && local {
		return dst
	}
	if r, known, _ := h.Route(dst); known {
		return r.PrefSrc
	}
	return netip.Addr{}
}
