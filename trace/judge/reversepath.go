// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// ReversePathFilter says that the kernel drops a packet for the route back to its source.
const ReversePathFilter = "ReversePathFilter"

var _ = register(kind{
	code:     ReversePathFilter,
	severity: mismatch,
	scope:    onPath,
	remedy: advice(
		"let requests and answers use the same interface (a route or rule on {node}: ip rule, ip route); or, where " +
			"it is meant to differ, set the filter to loose mode (2; the larger of the interface's and of all counts)",
	),
	issues: []string{"cilium/cilium#13130", "cilium/cilium#19761", "cloudnativelabs/kube-router#812"},
	by: stopped(ReversePathFilter, (*pathCase).answerFiltered,
		"the endpoint's answer comes in by the interface that the packet left by, and the kernel drops it there: the "+
			"route back to the endpoint uses another interface"),
})

const answerRefusedThere = "the endpoint's answer comes in by the interface that the packet left by, and the kernel " +
	"drops it there: no packet can be sent to the endpoint by the route back, which is another one than that of the " +
	"request"

// loosenessIsNone is the end of the remedy where the route back refuses packets.
const loosenessIsNone = ". The kernel looks up the route back for the packet's addresses, and only with " +
	"src_valid_mark for its mark; loose mode (2) needs a route, too. Where it is meant to be so, turn the filter off (0 " +
	"for the interface and for all)"

const answerDoubted = "whether the kernel drops the endpoint's answer for the route back to the endpoint is not known"

// answerFiltered asks [host.Network.ReversePath] of the endpoint's answer. It is certain to come in by the interface
// that the packet left by where the endpoint is a pod of this node, and where it goes to an address of that interface.
// When the kernel routes it, the client's own address is its destination again; where the mark decides, the answer is
// walked for that.
func (p *pathCase) answerFiltered(o *expect.Origin, end *netfilter.Outcome) *obstacle {
	pkt := &end.Packet
	if netfilter.IsUnknown(pkt.Out) || pkt.Out == "" ||
		pkt.Out == o.Iface && !pkt.SNAT { // an answer to a neighbour may be bridged, and is not routed then
		return nil
	}
	in, certain := p.answersBy(end)
	if own := p.net.OwnSource(host.Query{Dst: pkt.OrigSrc, Src: pkt.Dst, In: in, AnyMark: true}); own != (host.Reverse{}) {
		return p.takenForOwn(&own, certain)
	}
	query := host.Query{Dst: pkt.OrigSrc, Src: pkt.Dst, In: in, AnyMark: true}
	drop, _ := p.net.ReversePath(query)
	var out *obstacle
	switch {
	case drop.Drops():
		out = stoppedBy(drop.Setting + "; " + drop.Route)
	case drop.Unsure != "":
		out, query.AnyMark = p.answerFilteredByMark(end, in), false
		if drop, _ = p.net.ReversePath(query); !drop.Drops() {
			drop.Refused = false
		}
	}
	if !out.found() {
		return nil
	}
	out.may = out.may || !certain
	p.filterRemedy(out, &drop, in)
	return out
}

// takenForOwn: the endpoint's answer has a source that the node takes for an address of its own.
func (p *pathCase) takenForOwn(own *host.Reverse, certain bool) *obstacle {
	if !own.Drops() {
		return &obstacle{evidence: []string{own.Unsure}, may: true, doubt: answerDoubted}
	}
	return &obstacle{
		evidence: []string{own.Setting + "; " + own.Route}, may: !certain, remedy: p.withoutRoute(own.By),
		message: "the endpoint's answer comes in by the interface that the packet left by, and the kernel drops it there: " +
			"by the route back to the endpoint it treats the endpoint's address as its own",
	}
}

// answerFilteredByMark walks the answer up to where it is routed.
func (p *pathCase) answerFilteredByMark(end *netfilter.Outcome, in string) *obstacle {
	res := p.walker.Answer(start(p.want.Frontend, p.want.Origin), end, in, netfilter.Options{Enters: true})
	out := &obstacle{}
	for i := range res.Outcomes {
		x := &res.Outcomes[i]
		if x.End != netfilter.Filtered {
			continue
		}
		text := x.Route
		if x.Why == x.Route {
			out.doubt = answerDoubted
		} else {
			text = x.Why + "; " + x.Route
		}
		out.evidence, out.may = union(out.evidence, []string{text}), out.may || !x.Certain
	}
	return out
}

// filterRemedy says what lets the answers pass. Loose mode (2) asks only for a route, and is none for an interface
// without an address (__fib_validate_source in net/ipv4/fib_frontend.c).
func (p *pathCase) filterRemedy(out *obstacle, drop *host.Reverse, in string) {
	own, all := "net/ipv4/conf/"+in+"/rp_filter", "net/ipv4/conf/all/rp_filter"
	switch {
	case drop.Refused:
		out.message, out.remedy = answerRefusedThere, p.withoutRoute(drop.By)
		out.remedy.Text += loosenessIsNone
		fallthrough
	case drop.Strict:
		for _, key := range []string{own, all} {
			if !p.isOff(key) {
				out.set = append(out.set, key+"=0")
			}
		}
	default:
		out.set = []string{own + "=2"}
	}
	if drop.Strict && !drop.Refused {
		out.remedy = report.Remedy{Text: "let requests and answers use the same interface (a route or rule on " + p.Name +
			": ip rule, ip route), or give " + in + " an address and set the filter to loose mode (2), which is strict " +
			"without one; or, where it is meant to differ, turn the filter off"}
	}
}
