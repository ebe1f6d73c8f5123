// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// obstacle is what is known of whether something stops the packets that come to an end of the walk. Nothing does if it
// is nil, or has neither evidence nor what was not read. Most ends have none, and a dozen checks ask about each.
type obstacle struct {
	evidence []string // that it does; of several, as report.Evidence has them
	message  string   // in place of that of the kind
	remedy   report.Remedy
	set      []string // the settings that would let packets pass, as sysctl takes them
	may      bool     // it is not certain
	doubt    string   // what is said then; "": that it is so on some of the ways
	unread   string   // what decides it, and was not collected: then the rest is empty
}

// stoppedBy is an obstacle that is certain.
func stoppedBy(evidence ...string) *obstacle { return &obstacle{evidence: evidence} }

// shownBy is stoppedBy for evidence that may be nil: then nothing stops packets.
func shownBy(evidence []string) *obstacle {
	if evidence == nil {
		return nil
	}
	return &obstacle{evidence: evidence}
}

// citing makes a check of one that returns the evidence alone.
func citing(
	find func(p *pathCase, o *expect.Origin, end *netfilter.Outcome) []string,
) func(p *pathCase, o *expect.Origin, end *netfilter.Outcome) *obstacle {
	return func(p *pathCase, o *expect.Origin, end *netfilter.Outcome) *obstacle {
		return shownBy(find(p, o, end))
	}
}

func (s *obstacle) found() bool { return s != nil && (s.evidence != nil || s.unread != "") }

func (s *obstacle) certain() bool { return s.evidence != nil && !s.may }

// stoppedEnd is an end of the walk with what stops packets there.
type stoppedEnd struct {
	end netfilter.Outcome
	*obstacle
}

func (e *stoppedEnd) to() netip.AddrPort {
	return netip.AddrPortFrom(e.end.Packet.Dst, e.end.Packet.DstPort)
}

// stoppedEnds asks of each end of the walk, and of each way by which packets may leave there, what stops packets. sure
// are the ends of connections that are certain to be stopped: ends that are certain, and those at an endpoint to which
// no branch of the walk leads that is not stopped. may are the others at which something may stop packets.
func (p *pathCase) stoppedEnds(check func(end *netfilter.Outcome) *obstacle) (sure, may []stoppedEnd) {
	var found []stoppedEnd
	for i := range p.res.Outcomes {
		if s := byEveryHop(&p.res.Outcomes[i], check); s.found() {
			found = append(found, stoppedEnd{p.res.Outcomes[i], s})
		}
	}
	for i := range found {
		e := &found[i]
		if e.certain() && (e.end.Certain || p.leadsNowhereElse(e, found)) {
			sure = append(sure, *e)
		} else {
			may = append(may, *e)
		}
	}
	return sure, may
}

// byEveryHop asks check of an end, by each way that packets may leave there: what stops them on some of these only may
// stop them.
func byEveryHop(at *netfilter.Outcome, check func(end *netfilter.Outcome) *obstacle) *obstacle {
	if len(at.Hops) == 0 {
		return check(at)
	}
	out := check(at)
	free := !out.found()
	for _, hop := range at.Hops {
		by := *at
		by.Packet.Out, by.Packet.NextHop = hop.Out, hop.NextHop
		s := check(&by)
		switch {
		case !s.found():
			free = true
			continue
		case !out.found():
			out = s
			continue
		}
		both := *out // which others may have, too
		both.may = both.may || s.may || s.unread != "" || both.unread != ""
		if both.unread == "" || s.evidence == nil {
			both.evidence, both.set = union(both.evidence, s.evidence), union(both.set, s.set)
		} else {
			both = *s
			both.may = true
		}
		out = &both
	}
	return out.unless(free)
}

// unless makes an obstacle one that is not certain, where some packets are free of it.
func (s *obstacle) unless(free bool) *obstacle {
	if !s.found() || s.may || !free {
		return s
	}
	out := *s
	out.may = true
	return &out
}

func union(list, more []string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(slices.Clip(list), s)
		}
	}
	return list
}

// leadsNowhereElse tells whether no branch of the walk arrives at the endpoint of an end without being stopped: which
// branch the packets take does not matter then.
func (p *pathCase) leadsNowhereElse(e *stoppedEnd, found []stoppedEnd) bool {
	to := e.to()
	if p.got.lost || !slices.ContainsFunc(p.want.Endpoints, func(x expect.Endpoint) bool { return x.Address == to }) {
		return false
	}
	stopped, all := 0, 0
	for i := range p.res.Outcomes {
		if x := &p.res.Outcomes[i]; (x.End == netfilter.Sent || x.End == netfilter.Delivered) &&
			netip.AddrPortFrom(x.Packet.Dst, x.Packet.DstPort) == to {
			all++
		}
	}
	for i := range found {
		if found[i].to() == to && found[i].certain() {
			stopped++
		}
	}
	return stopped == all
}

// doubted says of what may stop packets that it does so on some of the ways which they may take, or if a setting is
// what it must not be: the path is Unknown for it.
func (p *pathCase) doubted(is issue, may []stoppedEnd) []issue {
	var evidence, endpoints []string
	var out []issue
	for i := range may {
		e := &may[i]
		endpoints = union(endpoints, []string{e.to().String()})
		evidence = union(evidence, e.evidence)
		if unread := (issue{
			code: NotCollected, message: e.unread + " was not collected (" + snapshot.SysctlFile + "), and decides here",
		}); e.unread != "" && !slices.ContainsFunc(out, func(o issue) bool { return o.message == unread.message }) {
			out = append(out, unread)
		}
	}
	p.unsettled = true
	if evidence == nil {
		return out
	}
	is.subject, is.endpoints, is.severity = cut(endpoints, 4), endpoints, note
	is.actual = mayNotArrive
	is.message = cmp.Or(may[0].doubt, "on some of the paths that packets may take: "+is.message)
	is.evidence = say(evidence...)
	return append([]issue{is}, out...)
}
