// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"fmt"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// byHop are the outcomes of a packet by each way that it may leave by: of a route with several next hops each
// connection takes one, by its hash (fib_select_multipath in net/ipv4/fib_semantics.c).
func byHop(o *netfilter.Outcome) []netfilter.Outcome {
	out := make([]netfilter.Outcome, 0, 1+len(o.Hops))
	one := *o
	one.Hops = nil
	out = append(out, one)
	for _, hop := range o.Hops {
		one.Packet.Out, one.Packet.NextHop = hop.Out, hop.NextHop
		out = append(out, one)
	}
	return out
}

// byEveryHop judges a packet by each way that it may leave by. What is wrong by some alone may be taken by no
// connection that somebody sees.
func byEveryHop(o *netfilter.Outcome, judge func(p *netfilter.Packet) report.Segment) (worst report.Segment) {
	list := byHop(o)
	found := make([]report.Segment, len(list))
	for i := range list {
		found[i] = judge(&list[i].Packet)
	}
	for _, verdict := range []report.SegmentVerdict{report.SegmentUnknown, report.SegmentWrong, report.SegmentRight} {
		at := slices.IndexFunc(found, func(s report.Segment) bool { return s.Verdict == verdict })
		if at < 0 {
			continue
		}
		if verdict == report.SegmentWrong && slices.ContainsFunc(found, func(s report.Segment) bool {
			return s.Verdict != report.SegmentWrong
		}) {
			return inPart(found[at], len(list))
		}
		return found[at]
	}
	return found[0]
}

// inPart is a wrong segment of connections that take one of several ways.
func inPart(s report.Segment, hops int) report.Segment {
	s.Verdict, s.Code = report.SegmentUnknown, ""
	s.Message = fmt.Sprintf("the route has %d next hops, and connections that take one of them fail: %s", hops, s.Message)
	return s
}

// mergedHops are the segments of a connection that takes one of several ways.
func mergedHops(lists [][]report.Segment) (out []report.Segment) {
	isWrong := func(s report.Segment) bool { return s.Verdict == report.SegmentWrong }
	all := !slices.ContainsFunc(lists, func(l []report.Segment) bool { return !slices.ContainsFunc(l, isWrong) })
	for _, list := range lists {
		if !all {
			if at := slices.IndexFunc(list, isWrong); at >= 0 {
				list[at] = inPart(list[at], len(lists))
			}
		}
		out = worseOf(out, list)
	}
	return out
}
