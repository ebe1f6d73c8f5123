// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"fmt"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// waysOf are the outcomes of a packet by each way that it may leave by: of a route with several next hops each
// connection takes one, by its hash (fib_select_multipath in net/ipv4/fib_semantics.c).
func waysOf(o *netfilter.Outcome) []netfilter.Outcome {
	out := make([]netfilter.Outcome, 0, 1+len(o.Ways))
	one := *o
	one.Ways = nil
	out = append(out, one)
	for _, way := range o.Ways {
		one.Packet.Out, one.Packet.NextHop = way.Out, way.NextHop
		out = append(out, one)
	}
	return out
}

// byEveryWay judges a packet by each way that it may leave by. What is wrong by some alone may be taken by no
// connection that somebody sees.
func byEveryWay(o *netfilter.Outcome, judge func(p *netfilter.Packet) report.Segment) (worst report.Segment) {
	list := waysOf(o)
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
func inPart(s report.Segment, ways int) report.Segment {
	s.Verdict, s.Code = report.SegmentUnknown, ""
	s.Message = fmt.Sprintf("the route has %d next hops, and connections that take one of them fail: %s", ways, s.Message)
	return s
}

// mergedWays are the segments of a connection that takes one of several ways.
func mergedWays(lists [][]report.Segment) (out []report.Segment) {
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
