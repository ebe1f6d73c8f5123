// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"math"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
)

// action is what the kernel itself does at a hook with packets behind the first of a connection, beside the chains.
type action struct {
	priority int
	do       func(p *Packet) (known bool)
}

func certainly(do func(p *Packet)) func(p *Packet) bool {
	return func(p *Packet) bool {
		do(p)
		return true
	}
}

// conntrackPriority is that of connection tracking (NF_IP_PRI_CONNTRACK).
const conntrackPriority = -200

// actions are those of each hook, in the order of their priorities: ipv4_conntrack_ops (nf_conntrack_proto.c),
// nf_nat_ipv4_ops (nf_nat_proto.c) and ip_vs_ops4 (ipvs/ip_vs_core.c), and those of IPv6, which are the same.
var actions = [hooks][]action{
	Prerouting: {{conntrackPriority, (*Packet).track}, {natDstPriority, certainly((*Packet).toDestination)}},
	Input:      {{natSrcPriority - 2, certainly((*Packet).fromVirtual)}, {natSrcPriority, certainly((*Packet).toSource)}},
	Forward:    {{natSrcPriority, certainly((*Packet).fromVirtual)}},
	Output: {
		{conntrackPriority, (*Packet).track},
		{natDstPriority, certainly((*Packet).toDestination)},
		{natDstPriority + 1, certainly((*Packet).fromVirtual)},
	},
	Postrouting: {{natSrcPriority, certainly((*Packet).toSource)}},
}

// behind is the priority behind all others.
const behind = math.MaxInt

// act does what the kernel does at a hook before the chains of a priority. same says that it may also come behind those
// chains where it has the same priority: no dump tells which was there first. Both are tried then.
func (w *Walker) act(h Hook, before int, same bool, bs []branch) []branch {
	act := false
	for i := range bs {
		act = act || bs[i].pkt.acts()
	}
	if !act {
		return bs
	}
	out := make([]branch, 0, len(bs))
	for _, b := range bs {
		from, first := len(out), b.pkt
		if out = w.acted(h, before, same, b, out); h == Output {
			out = w.reroute(&slot{}, &first, out, from)
		}
	}
	return out
}

// acts tells whether act may have something to do for a packet.
func (p *Packet) acts() bool { return p.Turn != First || p.Zone.ByMark }

func (w *Walker) acted(h Hook, before int, same bool, b branch, out []branch) []branch {
	for _, a := range actions[h] {
		if a.priority > before || a.priority == before && !same {
			break
		}
		done := b
		if !a.do(&done.pkt) {
			w.zoneUnknown(h, b)
			return out
		}
		if a.priority == before && done.pkt != b.pkt {
			u := Uncertain{
				Where: Ref{Hook: h}, What: fmt.Sprintf("the order of chains of priority %d at %s", before, h),
				Why: "connection tracking has the same one; the one loaded last is evaluated first, which no dump shows",
			}
			var behind branch
			done, behind = w.fork(done, a.priority, u)
			behind.pkt = b.pkt
			out = append(out, behind)
		}
		b = done
	}
	return append(out, b)
}

// zoneUnknown ends a branch whose connection may be of another zone.
func (w *Walker) zoneUnknown(h Hook, b branch) {
	const what = "whether connection tracking finds the connection"
	b = w.taint(b, zoneKey{}, Uncertain{Where: Ref{Hook: h}, What: what, Why: "its zone is not known"})
	b.why = what
	w.finish([]branch{b}, Lost)
}

// zoneKey stands for what [Packet.track] asks.
type zoneKey struct{}

// Answer follows the answer to a packet that came from s to an outcome o, Sent or Delivered, back through the node: it
// comes in by the interface in, or a socket of the node makes it where o is Delivered. Its outcome is right where
// [Answered] says so. The Outcomes of all other results of the Walker are no longer good.
func (w *Walker) Answer(s Start, o *Outcome, in string, opt Options) Result {
	p, c := o.Packet, connection(&s, &o.Packet)
	from := Start{Hook: Prerouting, Packet: Packet{
		Family: p.Family, Proto: p.Proto, Turn: Reply, Conn: c, In: in,
		Src: p.Dst, SrcPort: p.DstPort, Dst: p.Src, DstPort: p.SrcPort,
	}}
	if o.End == Delivered {
		from.Hook, from.Packet.In = Output, ""
	}
	return w.onward(from, &s, opt)
}

// Follow follows a later packet of the connection that the first packet from s has made with an outcome o. It is right
// where it comes to the same end.
func (w *Walker) Follow(s Start, o *Outcome, opt Options) Result {
	from := s
	from.Packet.Turn, from.Packet.Conn = Later, connection(&s, &o.Packet)
	return w.onward(from, &s, opt)
}

// onward walks a packet behind the first of the connection that began at first.
func (w *Walker) onward(from Start, first *Start, opt Options) Result {
	w.reset(opt)
	p := from.Packet
	p.OrigSrc, p.OrigDst, p.OrigDstPort = first.Packet.Src, first.Packet.Dst, first.Packet.DstPort
	w.start = p
	in := branch{pkt: p, p: 1}
	if from.Hook == Output {
		w.fromOutput(in)
	} else {
		w.fromPrerouting(in)
	}
	return w.result()
}

// Answered tells whether an outcome of [Walker.Answer] is what the client waits for: it comes from the frontend, to
// where the first packet came from. That is inside the node or beyond it; which of them need not be known.
func Answered(s Start, o *Outcome) bool {
	p := &o.Packet
	arrived := o.End == Sent || o.End == Delivered
	return arrived && p.Src == s.Packet.Dst && p.SrcPort == s.Packet.DstPort && p.Dst == s.Packet.Src
}

// class is all of a packet behind the first, but for its addresses and ports: what most rules that it meets go by.
type class struct {
	family     Family
	proto      uint8
	turn       Turn
	hook       Hook
	in, out    string
	mark       uint32
	zone       Zone
	dnat, snat bool
}

// passage is what is known of a class: whether all packets of it pass all rules, and with which mark they are routed.
type passage struct {
	all  bool
	mark uint32
}

// AnswerPasses tells whether no rule of the node can stop the answer to an outcome, nor change its path, whatever its
// addresses are; it costs a walk for each class of answers only. false says nothing: [Walker.Answer] tells then. The
// answer comes in by the interface in, and has to leave by the interface to, unless that is "" or UnknownIface. The
// Outcomes of other results stay as they are.
func (w *Walker) AnswerPasses(s Start, o *Outcome, in, to string) bool {
	p := &o.Packet
	if p.Untracked || p.Virtual.IsValid() {
		return false
	}
	k := class{
		family: p.Family, proto: p.Proto, turn: Reply, hook: Prerouting, in: in, mark: p.CTMark, zone: p.Zone,
		dnat: p.readdressed(), snat: p.SNAT,
	}
	back := Packet{Src: p.Dst, Dst: s.Packet.Src, In: in}
	if o.End == Delivered {
		if p.SNAT {
			return false
		}
		k.hook, k.in, back.In, back.Local = Output, "", "", true
	}
	return w.clear(&k, &back, s.Hook == Output, to)
}

// FollowPasses is [Walker.AnswerPasses] for [Walker.Follow].
func (w *Walker) FollowPasses(s Start, o *Outcome) bool {
	p := &o.Packet
	if p.Untracked || p.Virtual.IsValid() {
		return false
	}
	k := class{
		family: p.Family, proto: p.Proto, turn: Later, hook: s.Hook, in: s.Packet.In, mark: p.CTMark, zone: p.Zone,
		dnat: p.readdressed(), snat: p.SNAT,
	}
	// The route to the frontend, before the translation, is that of the first packet, which it did not end.
	if s.Hook == Output && !k.dnat {
		return false
	}
	there := Packet{Src: s.Packet.Src, Dst: p.Dst, In: s.Packet.In, Local: s.Hook == Output}
	return w.clear(&k, &there, o.End == Delivered, "")
}

// clear looks up the route of a packet of a class, and what is known of the class. local says that the packet has to
// end at the node; where it is not known whether it does, it must be clear both ways.
func (w *Walker) clear(k *class, back *Packet, local bool, to string) bool {
	if w.linked[k.family] {
		return false // chains of devices and bridges are not walked for a class
	}
	is, known := w.host.Local(back.Dst)
	if known && is != local {
		return false
	}
	if refused, known := w.host.Martian(back.In, back.Dst); known && refused {
		return false
	}
	if local || !known {
		k.out = ""
		if k.hook == Output {
			k.out = "lo"
		}
		if x := w.passage(k); known || !x.all {
			return x.all
		}
	}
	r := w.route(back)
	switch {
	case !r.Known && (r.MayFail || !r.Missing), r.Known && (r.Type != host.RouteUnicast || r.Dev == "" || len(r.Hops) > 0):
		return false
	case r.Known && to != "" && to != UnknownIface && r.Dev != to:
		return false
	}
	if k.out = r.Dev; !r.Known {
		k.out = UnknownIface
	}
	x := w.passage(k)
	back.Mark = x.mark
	if k.turn == Later && k.hook == Prerouting { // with another mark than the first packet
		if drop, _ := w.host.ReversePath(query(back)); drop.Drops() || drop.Unsure != "" {
			return false
		}
	}
	if !x.all || x.mark == 0 {
		return x.all
	}
	again := w.route(back)
	return sameRoute(&r, &again)
}

// classWork is the budget of a walk for a whole class.
const classWork = 1 << 14

// maxClasses bounds how many classes a Walker remembers.
const maxClasses = 1 << 10

// passage walks a packet of a class, of which no address and no port is known.
func (w *Walker) passage(k *class) passage {
	for i := range w.asked {
		if a := &w.asked[i]; a.class == *k {
			return a.passage
		}
	}
	x := w.passageOf(k)
	w.asked[w.oldest].class, w.asked[w.oldest].passage = *k, x
	w.oldest = (w.oldest + 1) % len(w.asked)
	return x
}

// passageOf is passage for one that was not asked for a moment ago.
func (w *Walker) passageOf(k *class) passage {
	if x, ok := w.classes[*k]; ok {
		return x
	}
	kept := w.limits
	w.limits.work, w.limits.uncertain = classWork, classWork
	w.reset(Options{})
	w.trail, w.classTrail = w.classTrail, w.trail
	x := w.class(k)
	w.trail, w.classTrail = w.classTrail, w.trail
	w.limits = kept
	if w.classes == nil || len(w.classes) >= maxClasses {
		w.classes = map[class]passage{}
	}
	w.classes[*k] = x
	return x
}

func (w *Walker) class(k *class) (x passage) {
	c := &Connection{Mark: k.mark, Zone: k.zone, DNAT: k.dnat, SNAT: k.snat}
	p := Packet{Family: k.family, Proto: k.proto, Turn: k.turn, Conn: c, In: k.in}
	w.start = p
	alive := w.first[:0]
	alive = append(alive, branch{pkt: p, p: 1})
	if k.hook == Output {
		alive[0].pkt.Local, alive[0].pkt.Out = true, k.out
		if k.turn == Later {
			alive[0].pkt.Out = UnknownIface // that of the route to the frontend
		}
		alive = w.hook(Output, alive, false)
		var one bool
		x.mark, one = markOf(alive)
		if !one || x.mark != 0 && k.turn == Later { // a mark may change the route to the frontend, too
			return passage{}
		}
		for i := range alive {
			alive[i].pkt.Out = k.out
		}
		alive = w.hook(Postrouting, alive, false)
		if k.out == "lo" {
			alive = w.hook(Input, w.hook(Prerouting, atInput(alive, "lo"), true), true)
		}
	} else {
		alive = w.hook(Prerouting, alive, false)
		var one bool
		x.mark, one = markOf(alive)
		if !one {
			return passage{}
		}
		for i := range alive {
			alive[i].pkt.Out = k.out
		}
		if k.out == "" {
			alive = w.hook(Input, alive, false)
		} else {
			alive = w.hook(Postrouting, w.hook(Forward, alive, false), false)
		}
	}
	x.all = len(alive) > 0 && len(w.ended) == 0 && len(w.resent) == 0 && w.budget == "" && !w.gaveUp
	for i := range alive {
		b := &alive[i].pkt
		x.all = x.all && b.Tracking == Found
	}
	return x
}

// atInput makes packets that left by an interface come in again.
func atInput(bs []branch, dev string) []branch {
	for i := range bs {
		bs[i].pkt.In, bs[i].pkt.Out = dev, ""
	}
	return bs
}

// markOf returns the mark of packets, and whether all have the same.
func markOf(bs []branch) (mark uint32, one bool) {
	for i := range bs {
		if bs[i].pkt.Mark != bs[0].pkt.Mark {
			return 0, false
		}
		mark = bs[i].pkt.Mark
	}
	return mark, true
}
