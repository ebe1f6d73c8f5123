// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
)

// End is how a packet, or one of its branches, ends.
type End uint8

// The ends.
const (
	Sent      End = iota // left the node, or was forwarded, by Packet.Out
	Delivered            // given to a local socket
	Dropped              // silently, by Outcome.Where
	Rejected             // with an answer to the client, by Outcome.Where
	NoRoute              // no usable route to Packet.Dst
	Taken                // passed to user space or a local proxy by Outcome.Where (NFQUEUE, TPROXY, SYNPROXY)
	Lost                 // the walk cannot follow it any further: an opaque target or chain at Outcome.Where
	Filtered             // dropped for its source by the reverse path filter: its setting is Outcome.Why
)

// String returns the end as a verb form for people.
func (e End) String() string {
	return [...]string{
		"sent", "delivered", "dropped", "rejected", "no route", "taken", "not known", "dropped for its source",
	}[e]
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
	// Only follows no branch any further, once PREROUTING is behind it, that was translated to another destination. The
	// Result then lacks these branches.
	Only netip.AddrPort
	// Enters says that the packet is certain to come in by Packet.In, so that the reverse path filter of that interface
	// may be asked. What it would make of a packet is not asked where that is an assumption, and nothing is claimed
	// where its inputs were not collected.
	Enters bool
	// Bridge says that the packet is for a neighbour on this bridge, which it came in by: where it is not translated to
	// another destination, the bridge forwards it, and its route is not asked for (br_nf_pre_routing_finish in
	// net/bridge/br_netfilter_hooks.c). "" for all other packets.
	Bridge string
	// Left is what the packets of the connection before this one have left, for a packet behind the first; nil: what the
	// first has. Further: of the answers, it is one behind the answer to the first packet. Ending is of a Later or Further
	// one of TCP.
	Left    *Left
	Further bool
	Ending  Ending
	// Was is an answer that comes in as it has left another network namespace: it keeps its TOS. nil: it has that of a
	// socket without any.
	Was *Packet
	// Mark is that of an answer as it comes in: a tunnel may carry it.
	Mark uint32
	// Bound is the interface that the socket is bound to which answers; "" for none.
	Bound string
	// Watch are chains of which the Result says whether the packet came to one of them.
	Watch map[*Chain]bool
	// Steps records the rules that applied.
	Steps bool
}

// Outcome is one end that the packet may come to.
type Outcome struct {
	End     End
	Packet  Packet // as it was at the end
	P       float64
	Certain bool // false: only if some of Result.Uncertain turn out in one manner
	Where   Ref  // what ended it; zero for Sent, Delivered, NoRoute and Filtered
	// Why says more: what makes it uncertain, or of a Filtered one the setting that drops it.
	Why   string
	Route string // of a Filtered one, what is wrong with the route to its source, or what is not known of it
	// By is the routing rule and the route that decided of a NoRoute; zero where there is none for the destination. Of a
	// Filtered one it is what refuses the route back; zero where that is by another interface.
	By host.Decision
	// Hops are the other next hops by which the packet may have left, of one that was Sent by one of several: no rule asks
	// for it, but settings of the interfaces do.
	Hops []Hop

	yes, no uint64 // the unknowns that have to turn out true, and those that must not (Result.Cases)
}

// Hop is the interface and the next hop by which a packet leaves: Packet.Out and Packet.NextHop.
type Hop struct {
	Out     string
	NextHop netip.Addr
}

// Uncertain is something that decides between outcomes and that the snapshot does not tell.
type Uncertain struct {
	Where Ref
	What  string // the rule's text, or what is not known
	Why   string
}

// RouteStep is a routing decision that the walk took for some of the packet's branches.
type RouteStep struct {
	Before Hook // the hook that the packet comes to next; for a local process's packet it may be in OUTPUT still
	Behind int  // how many of the steps it had met by then
	Dst    netip.Addr
	Route  host.Route
	By     host.Decision // the rule and the route
	P      float64
}

// Result is everything that may happen to a packet. The P of the certain outcomes, and of the uncertain ones in any one
// case of what is not known, add up to 1, unless Ended says that the walk has not come to its end.
type Result struct {
	Outcomes  []Outcome
	Uncertain []Uncertain
	Steps     []Step
	// Routes are the routing decisions, in the order in which they were taken first; recorded with Steps.
	Routes []RouteStep
	// Both tells that something that the packet met was not known, so that Steps has the rules of both branches, even
	// if it did not matter in the end and is not in Uncertain.
	Both bool
	// Watched says that the packet came to a chain of Options.Watch.
	Watched bool
	// Offloads are the rules that may hand the packet's connection to a flowtable, so that its further packets meet no
	// rule of PREROUTING, FORWARD and POSTROUTING.
	Offloads []Ref
	// ByTurn: of another packet of the same direction behind the first it may not be true (Context.ByTurn).
	ByTurn bool
	// Ended says why the walk ended before all branches did, where it has cost too much: an uncertain outcome, Lost,
	// stands for those, and Uncertain has where that was. "" for a walk that was complete.
	Ended string
}

// Walker walks packets through one node's ruleset. A Walker is for one goroutine; several may share a linked Ruleset.
type Walker struct {
	host  *host.Network
	lists []string               // prefixes of the lists whose clients are known
	slots [ARP + 1][hooks][]slot // by family
	// linked tells of each family whether any chain is attached to a hook of a device or a bridge.
	linked [ARP + 1]bool
	// groups are the names that stand for one of several devices, by those.
	groups map[string]string
	port   func(bridge string, a netip.Addr) string // WithPorts; nil where nobody tells

	ctx    Context
	opt    Options
	frames [maxDepth]frame
	room   []branch // what the walk's lists of branches take their memory from (list)
	ended  []branch // branches that have come to an end
	resent []branch // what IPVS has scheduled at the hook in progress, and sends on itself

	start     Packet
	held      int // branches that are held anywhere, about
	limits    limits
	gaveUp    bool   // some uncertain branches were not followed
	budget    string // why the walk was ended; "" while it was not
	watched   bool   // it came to a chain of Options.Watch
	unknown   []Uncertain
	unkIDs    map[unknownKey]uint
	steps     []Step
	stepIDs   map[stepKey]int // by key, where in steps it is
	stepCalls []uint64        // of each of steps, the calls by which the packet came to it first
	calls     uint64          // what tells the calls in progress apart, with those of other passes through hooks
	passes    uint64          // how often the packet came to a hook
	walks     uint64          // how many there were
	routes    []RouteStep
	offloads  []Ref // Result.Offloads
	classes   map[class]passage
	memo      memo
	memoAfter int       // for tests; else memoAfter
	recording recording // of the visit that is being recorded; nil for none

	trail, classTrail *Trail // WithTrails; nil: nobody asks
}

// NewWalker prepares walks through a linked ruleset. h may know nothing but must not be nil; sets may be nil.
func NewWalker(rs *Ruleset, h *host.Network, sets SetLookup, options ...WalkerOption) *Walker {
	w := &Walker{
		host: h, room: make([]branch, 0, roomOfWalk), groups: map[string]string{},
		unkIDs: map[unknownKey]uint{}, stepIDs: map[stepKey]int{}, limits: defaults, memoAfter: memoAfter,
	}
	w.ctx = Context{Host: h, Sets: sets, Recent: w.recent, OneOf: map[string][]string{}}
	for _, f := range []Family{IPv4, IPv6, ARP} {
		w.slots[f] = slotsOf(rs, f)
		w.linked[f] = slices.ContainsFunc(w.slots[f][Ingress:], func(s []slot) bool { return len(s) > 0 })
	}
	for _, set := range options {
		set(w)
	}
	return w
}

// WalkerOption is something that holds for all walks of a Walker.
type WalkerOption func(*Walker)

// WithClientLists gives prefixes of the names of lists whose clients are known ([ClientList]): a new client is in none
// of these lists, a returning one in those of Options.Listed.
func WithClientLists(prefixes ...string) WalkerOption {
	return func(w *Walker) { w.lists = prefixes }
}

// WithSockets gives what [Context.Listens] answers.
func WithSockets(listens func(proto uint8, port uint16) (listens, known bool)) WalkerOption {
	return func(w *Walker) { w.ctx.Listens = listens }
}

// WithoutIPsec says that no policy of IPsec transforms packets ([Context.Untransformed]).
func WithoutIPsec(none bool) WalkerOption {
	return func(w *Walker) { w.ctx.Untransformed = none }
}

// WithMemoAfter makes a walk remember what chains do once it has run that many rules, for tests that compare walks with
// and without: its result never depends on it, but for rounding, unless it is Ended.
func WithMemoAfter(rules int) WalkerOption {
	return func(w *Walker) { w.memoAfter = rules }
}

// Walk follows a packet from s to all its possible ends.
func (w *Walker) Walk(s Start, opt Options) Result {
	w.reset(opt)
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

// reset forgets the walk before.
func (w *Walker) reset(opt Options) {
	w.walks++
	w.opt, w.ctx.Steps, w.ctx.Work = opt, opt.Steps, 0
	w.ctx.ByTurn = false
	w.unknown, w.steps, w.routes, w.offloads, w.ended, w.resent = nil, nil, nil, nil, w.ended[:0], nil
	w.stepCalls, w.calls, w.passes = w.stepCalls[:0], 0, 0
	w.held, w.gaveUp, w.budget, w.watched = 0, false, "", false
	w.memo, w.recording, w.room = memo{}, nil, w.room[:0]
	w.unkIDs, w.stepIDs = emptied(w.unkIDs), emptied(w.stepIDs)
	if cap(w.ended) > keptBranches {
		w.ended = nil
	}
}

// roomOfWalk is how many branches the lists of one walk take from the memory of the walk before: enough for most.
const roomOfWalk = 96

// list returns an empty list with room for n branches. It is for one walk, and no Result has any of it. Without it
// judge's BenchmarkNode takes a fifth more of a processor (0.57 s for 0.48 s) and three times the memory (389 MB for
// 134 MB).
func (w *Walker) list(n int) []branch {
	used := len(w.room)
	if cap(w.room)-used < n {
		return make([]branch, 0, n)
	}
	w.room = w.room[:used+n]
	return w.room[used : used : used+n]
}

// emptied empties a map. A large one is not kept: emptying it takes as long as it was.
func emptied[K comparable, V any](m map[K]V) map[K]V {
	if len(m) > keptBranches {
		return map[K]V{}
	}
	clear(m)
	return m
}

func (w *Walker) result() Result {
	bs := w.mergeEnds(w.merge(w.ended))
	found := make([]Outcome, 0, len(bs))
	var relevant uint64
	for i := range bs {
		b := &bs[i]
		relevant |= b.yes | b.no
		o := Outcome{End: b.end, Packet: b.pkt, P: b.p, yes: b.yes, no: b.no}
		if l := b.last; l != nil {
			o.Where, o.Why, o.Route, o.By, o.Hops = l.where, l.why, l.route, l.by, l.hops
		}
		o.Certain = b.yes|b.no == 0
		if !o.Certain {
			o.P = min(o.P, 1) // it may be the sum over several cases of what is not known
		}
		found = append(found, o)
	}
	res := Result{
		Outcomes: found, Steps: w.steps, Routes: w.routes, Both: len(w.unknown) > 0, Ended: w.budget,
		Watched: w.watched, Offloads: w.offloads, ByTurn: w.ctx.ByTurn,
	}
	for i, u := range w.unknown {
		if relevant&(1<<min(uint(i), overflowBit)|1<<overflowBit) != 0 {
			res.Uncertain = append(res.Uncertain, u)
		}
	}
	return res
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
