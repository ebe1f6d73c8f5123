// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"maps"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// familyOf is one IP family of a Service.
type familyOf struct {
	service types.NamespacedName
	family  corev1.IPFamily
}

// change is a change of endpoints that the rules do not follow yet, as far as is known.
type change struct {
	at    time.Time // of the first change since the rules were right
	wrong time.Time // when the node was last read before the rules were right; zero: never
}

// latency measures the time from a change of endpoints in the API until the rules are right. It is for one goroutine.
type latency struct {
	changes map[familyOf]*change
}

// changed notes that a Service's endpoints have changed.
func (l *latency) changed(of familyOf, at time.Time) {
	if l.changes == nil {
		l.changes = map[familyOf]*change{}
	}
	if l.changes[of] == nil {
		l.changes[of] = &change{at: at}
	}
}

// oldest returns when the first of the changes happened that the rules do not follow yet; zero for none.
func (l *latency) oldest() time.Time {
	var first time.Time
	for _, c := range l.changes {
		if first.IsZero() || c.at.Before(first) {
			first = c.at
		}
	}
	return first
}

// took is what became of one change.
type took struct {
	family corev1.IPFamily
	time   time.Duration
	why    string // it was not measured; "": it was
}

// Why a change is not measured.
const (
	whyNotAttributed = "not_attributed" // when, or with which of many changes of the rules, is not known closely enough
	whyNotJudged     = "not_judged"     // a path of the Service is unknown, or was wrong before
)

// unmeasured are all of these.
var unmeasured = []string{whyNotAttributed, whyNotJudged}

// A measurement counts if its bounds are so close together: a bucket of the histogram, or a tenth of the time.
const (
	closeTogether  = time.Second
	polledTogether = 2 * DefaultPoll // where the kernel does not announce changes
	closeShare     = 0.1
)

// pass returns what a pass has shown. at is when it began to read the node, end when it had read it. Where the kernel
// announces changes, a change took effect with one of the announcements after both the change and the last reading that
// did not show it, but which one is not known: the time is up to the last of them, and where the first was much earlier
// it is not measured. A change without any needed no other rules. Where the kernel does not announce changes, polled is
// set, and the reading itself is the time, unless that was long after the last one. before tells whether a finding
// counted before a time.
func (l *latency) pass(
	r *report.NodeReport, at, end time.Time, heard *announced, polled bool, before func(subject, time.Time) bool,
) (out []took) {
	if len(l.changes) == 0 {
		return nil
	}
	paths := pathsOf(r, l.changes)
	for of, c := range l.changes {
		if !at.After(c.at) {
			continue // the node was read before the change
		}
		shown := followed
		for _, p := range paths[of] {
			shown = max(shown, showsOf(p, func(s subject) bool { return before(s, c.at) }))
		}
		if shown == behind {
			c.wrong = at
			continue
		}
		delete(l.changes, of)
		if shown == unclear {
			out = append(out, took{family: of.family, why: whyNotJudged})
			continue
		}
		after := c.at
		if c.wrong.After(after) {
			after = c.wrong
		}
		if polled {
			x := took{family: of.family, time: at.Sub(c.at)}
			if doubt := at.Sub(after); doubt > max(polledTogether, time.Duration(closeShare*float64(x.time))) {
				x.time, x.why = 0, whyNotAttributed // passes were far apart, for the budget
			}
			out = append(out, x)
			continue
		}
		first, last, ok := heard.between(after, end)
		took := took{family: of.family, time: last.Sub(c.at)}
		switch doubt := last.Sub(first); {
		case !ok && c.wrong.IsZero():
			continue
		case !ok || doubt > max(closeTogether, time.Duration(closeShare*float64(took.time))):
			took.time, took.why = 0, whyNotAttributed
		}
		out = append(out, took)
	}
	return out
}

// shows is what a path says about a change of endpoints; the greater one decides.
type shows uint8

const (
	followed shows = iota // the rules follow
	unclear               // nothing
	behind                // they do not
)

// showsOf says what a path shows. It shows that the rules do not follow if they lead to other endpoints than they must,
// and not if it is wrong for another reason, such as a route. before tells whether a finding was there before the
// change.
func showsOf(p *report.Path, before func(subject) bool) shows {
	switch p.Verdict {
	case report.Match, report.ByDesign, report.Warning: // of a warning, connections work
		return followed
	case report.Unknown:
		return unclear
	case report.Mismatch:
	}
	if sameEnds(p) {
		return followed
	}
	for i := range p.Findings {
		if f := &p.Findings[i]; f.Severity == report.Error && !before(subjectOf(p, f)) {
			return behind
		}
	}
	return unclear
}

// sameEnds tells whether the rules lead to the endpoints that they must lead to, whatever becomes of packets then. Of a
// path that must lead to none it is not known.
func sameEnds(p *report.Path) bool {
	want, got := map[netip.AddrPort]bool{}, map[netip.AddrPort]bool{}
	add := func(to map[netip.AddrPort]bool, e *report.Endpoint) {
		if at, ok := e.AddrPort(); ok {
			to[at] = true
		}
	}
	for i := range p.Expected.Endpoints {
		add(want, &p.Expected.Endpoints[i])
	}
	for i := range p.Actual.Outcomes {
		if e := p.Actual.Outcomes[i].Endpoint; e != nil {
			add(got, e)
		}
	}
	return len(want) > 0 && maps.Equal(want, got)
}

// pathsOf are the paths of the Services that have changed. A path without an address is of both families.
func pathsOf(r *report.NodeReport, changed map[familyOf]*change) map[familyOf][]*report.Path {
	out := map[familyOf][]*report.Path{}
	for i := range r.Paths {
		p := &r.Paths[i]
		if p.Service == nil {
			continue
		}
		name := types.NamespacedName{Namespace: p.Service.Namespace, Name: p.Service.Name}
		a, err := netip.ParseAddr(p.Frontend.Address)
		for family, is := range map[corev1.IPFamily]bool{corev1.IPv4Protocol: a.Is4(), corev1.IPv6Protocol: a.Is6()} {
			if of := (familyOf{name, family}); changed[of] != nil && (is || err != nil) {
				out[of] = append(out[of], p)
			}
		}
	}
	return out
}
