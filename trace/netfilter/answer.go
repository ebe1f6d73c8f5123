// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"math"
)

// action is what the kernel itself does at a hook with packets behind the first of a connection, beside the chains.
type action struct {
	priority int
	do       func(p *Packet) (unknown string)
}

func certainly(do func(p *Packet)) func(p *Packet) string {
	return func(p *Packet) string {
		do(p)
		return ""
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

// afterAll is the priority behind all others.
const afterAll = math.MaxInt

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
		if why := a.do(&done.pkt); why != "" {
			w.trackingUnknown(h, b, why)
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

// trackingUnknown ends a branch of which it is not known what connection tracking makes of it.
func (w *Walker) trackingUnknown(h Hook, b branch, why string) {
	const what = "whether connection tracking finds the connection"
	b = w.taint(b, zoneKey{}, Uncertain{Where: Ref{Hook: h}, What: what, Why: why})
	b.last = &last{why: what}
	w.finish([]branch{b}, Lost)
}

// zoneKey stands for what [Packet.track] asks.
type zoneKey struct{}

// Answer follows the answer to a packet that came from s to an outcome o, Sent or Delivered, back through the node: it
// comes in by the interface in, or a socket of the node makes it where o is Delivered. With Options.Further it is a
// later packet of the endpoint. Its outcome is right where [Answered] says so.
func (w *Walker) Answer(s Start, o *Outcome, in string, opt Options) Result {
	p := o.Packet
	from := Start{Hook: Prerouting, Packet: Packet{
		Family: p.Family, Proto: p.Proto, Turn: Reply, In: in, Ports: s.Packet.Ports,
		Src: p.Dst, SrcPort: p.DstPort, Dst: p.Src, DstPort: p.SrcPort,
	}}
	if opt.Further {
		from.Packet.Turn = Further
	}
	if opt.Was != nil {
		from.Packet.KeepTOS(opt.Was)
	}
	from.Packet.Mark = opt.Mark
	if o.End == Delivered {
		from.Hook, from.Packet.In, from.Packet.Bound = Output, "", opt.Bound
		from.Packet.Mark = w.answerMark(o)
	}
	return w.behind(from, &s, o, opt)
}

// answerMark is the mark of what a local socket sends on a connection: none, or by tcp_fwmark_accept that of the first
// packet (inet_request_mark in include/net/inet_sock.h). The setting is that of IPv6, too.
func (w *Walker) answerMark(o *Outcome) uint32 {
	if o.End != Delivered || o.Packet.Proto != TCP || o.Packet.Mark == 0 {
		return 0
	}
	if v, collected := w.host.Sysctl("net/ipv4/tcp_fwmark_accept"); !collected || v == "0" {
		return 0
	}
	return o.Packet.Mark
}

// Follow follows a later packet of the connection that the first packet from s has made with an outcome o. It is right
// where it comes to the same end.
func (w *Walker) Follow(s Start, o *Outcome, opt Options) Result {
	from := s
	from.Packet.Turn = Later
	return w.behind(from, &s, o, opt)
}

// behind walks a packet of the connection that the first packet from s has made with an outcome o.
func (w *Walker) behind(from Start, s *Start, o *Outcome, opt Options) Result {
	left := w.Left(o)
	if opt.Left != nil {
		left = *opt.Left
	}
	p := &from.Packet
	p.Conn, p.Recent = connection(s, &o.Packet, left), left.Lists
	if p.Proto == TCP && p.Turn != Reply {
		p.Ending = opt.Ending
	}
	return w.onward(from, s, opt)
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
	return arrived && p.Src == s.Packet.Dst && p.SrcPort == s.Packet.DstPort && p.Dst == s.Packet.Src &&
		(p.DstPort == 0 || p.DstPort == s.Packet.SrcPort)
}
