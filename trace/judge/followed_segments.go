// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// observeBehind adds to the segments of a path what the kernels of the nodes saw of its connections. It returns what
// they do that the walk does not say.
func (t *tour) observeBehind(p *report.Path, endpoints []endtoend.Endpoint) (found []issue) {
	for i := range endpoints {
		if fates := t.seenOf(p, &endpoints[i]); len(fates) > 0 {
			found = append(found, observed(p, &endpoints[i], fates)...)
		}
	}
	endtoend.MarkLost(p.Segments)
	return found
}

// observed adds what was seen of connections to one endpoint.
func observed(p *report.Path, to *endtoend.Endpoint, fates []fate) (found []issue) {
	at := to.At.String()
	segment := func(name string) *report.Segment {
		k := slices.IndexFunc(p.Segments, func(s report.Segment) bool { return s.Segment == name && s.Endpoint == at })
		if k < 0 {
			return nil
		}
		return &p.Segments[k]
	}
	worst := len(behindNode)
	for i := range fates {
		if fates[i].lost {
			worst = min(worst, fates[i].passed)
		}
	}
	var stopped *report.Segment // where the walk says that connections are lost
	for k, name := range behindNode {
		s := segment(name)
		if s == nil {
			continue
		}
		s.Seen = seenBy(fates, name, countPassed(fates, k))
		if s.Verdict == report.SegmentWrong && kinds[s.Code].severity == mismatch && stopped == nil && k < worst {
			stopped = s
		}
	}
	if stopped != nil && stopped.Seen.Passed == len(fates) {
		found = append(found, disagreesAt(at, fmt.Sprintf("the walk says that connections are lost there (%s), and the "+
			"kernels saw %s pass: this tool may read it wrongly, or it has changed in between", stopped.Place,
			number(len(fates), "connection"))))
	}
	if worst == len(behindNode) {
		return found
	}
	texts, lost := textsOfLost(fates, worst)
	s := segment(behindNode[worst])
	switch {
	case s == nil: // the walk has stopped before
		if stopped == nil {
			return found
		}
		stopped.Verdict, stopped.Code, stopped.Owner = report.SegmentUnknown, "", ""
		stopped.Message += "; the kernels saw connections pass"
		p.Segments = append(p.Segments, report.Segment{Segment: behindNode[worst], Endpoint: at})
		s = &p.Segments[len(p.Segments)-1]
	case s.Verdict == report.SegmentWrong:
		s.Evidence = append(slices.Clip(s.Evidence), slices.DeleteFunc(texts, func(e report.Evidence) bool {
			return slices.Contains(s.Evidence, e) // the walk names the same rule
		})...)
		return found
	case s.Verdict == report.SegmentUnknown && worst == slices.Index(behindNode, report.SegmentEndpointNode) &&
		!lost.discarded:
		// A program may hand packets to the pod where nobody sees them (bpf_redirect_peer).
		s.Message += "; by the kernel " + lost.text
		s.Evidence = append(slices.Clip(s.Evidence), texts...)
		return found
	case s.Verdict == report.SegmentRight:
		found = append(found, disagreesAt(at, "by what was read, connections pass there ("+s.Message+"), and the kernel "+
			"loses them: the cause was not read, was read wrongly, or changed in between"))
	}
	*s = report.Segment{
		Segment: s.Segment, Endpoint: at, Place: lost.place, Verdict: report.SegmentWrong, Code: PacketLost,
		Message: lost.text, Evidence: append(texts, s.Evidence...), Owner: lost.owner,
		Seen: seenBy(fates, s.Segment, countPassed(fates, worst)),
	}
	p.Segments = slices.DeleteFunc(p.Segments, func(s report.Segment) bool {
		return s.Endpoint == at && slices.Index(behindNode, s.Segment) > worst
	})
	return found
}

// countPassed counts the connections that have passed a segment.
func countPassed(fates []fate, k int) (n int) {
	for i := range fates {
		if fates[i].passed > k {
			n++
		}
	}
	return n
}

// textsOfLost says of connections that were lost in one segment what was seen, each thing once.
func textsOfLost(fates []fate, at int) (texts []report.Evidence, lost *fate) {
	count := map[string]int{}
	var order []string
	for i := range fates {
		f := &fates[i]
		if !f.lost || f.passed != at {
			continue
		}
		if lost == nil || f.discarded && !lost.discarded {
			lost = f
		}
		text := f.place + ": " + f.text
		if count[text] == 0 {
			order = append(order, text)
		}
		count[text]++
	}
	for _, text := range order[:min(len(order), maxEvidence)] {
		texts = append(texts, say(fmt.Sprintf("the kernel, of %d of %s: %s", count[text],
			number(len(fates), "connection"), text))...)
	}
	if lost != nil {
		if lost.rule != (report.Evidence{}) {
			texts = slices.Insert(texts, 0, lost.rule)
		}
		texts = append(texts, say(lost.around...)...)
	}
	return texts, lost
}

// disagreesAt says that walk and kernel differ about connections to an endpoint.
func disagreesAt(endpoint, message string) issue {
	return issue{
		code: WalkDisagrees, subject: endpoint, endpoints: []string{endpoint}, expected: "what the walk says",
		actual: "what the kernels saw", message: message,
	}
}

// seenBy is what was seen of connections in a segment that some of them have passed.
func seenBy(fates []fate, segment string, passed int) *report.SegmentSeen {
	out := &report.SegmentSeen{Connections: len(fates), Passed: passed}
	for i := range fates {
		seen := fates[i].seen[segment]
		out.Rules = addRules(out.Rules, seen.Rules...)
		for _, why := range seen.Untraced {
			if !slices.Contains(out.Untraced, why) {
				out.Untraced = append(out.Untraced, why)
			}
		}
	}
	return out
}
