// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

func TestLatency(t *testing.T) {
	web := familyOf{types.NamespacedName{Namespace: "shop", Name: "web"}, corev1.IPv4Protocol}
	right := &report.NodeReport{}
	endpoint := func(address string) *report.Endpoint { return &report.Endpoint{Address: address, Port: 80} }
	with := func(v report.Verdict, change func(*report.Path)) *report.NodeReport {
		p := report.Path{
			Service: &report.ObjectRef{Namespace: "shop", Name: "web"}, Verdict: v,
			Frontend: report.Frontend{Kind: "ClusterIP", Address: "10.96.0.1"},
			Expected: report.Expected{Endpoints: []report.Endpoint{*endpoint("10.244.1.5"), *endpoint("10.244.1.6")}},
			Actual:   report.Actual{Outcomes: []report.Outcome{{Endpoint: endpoint("10.244.1.5")}}},
			Findings: []report.Finding{{Code: "MissingEndpoint", Subject: "10.244.1.6:80", Severity: report.Error}},
		}
		if change != nil {
			change(&p)
		}
		return &report.NodeReport{Paths: []report.Path{p}}
	}
	wrong := with(report.Mismatch, nil)
	otherFamily := with(report.Mismatch, func(p *report.Path) { p.Frontend.Address = "fd00::1" })
	warned := with(report.Warning, func(p *report.Path) { p.Findings[0].Severity = report.Warn })
	unknown := with(report.Unknown, func(p *report.Path) { p.Findings = nil })
	noRoute := with(report.Mismatch, func(p *report.Path) {
		p.Actual.Outcomes = append(p.Actual.Outcomes, report.Outcome{Endpoint: endpoint("10.244.1.6"), Action: "Drop"})
		p.Findings[0] = report.Finding{Code: "NoRoute", Severity: report.Error}
	})
	const early = "WrongBefore"
	wrongBefore := with(report.Mismatch, func(p *report.Path) {
		p.Actual.Outcomes, p.Findings[0].Code = nil, early
	})
	wrongNow := with(report.Mismatch, func(p *report.Path) {
		p.Actual.Outcomes = nil
		p.Findings = append(p.Findings, report.Finding{Code: early, Severity: report.Error})
	})
	before := func(s subject, at time.Time) bool { return s.code == early && at.Equal(after(1)) }
	type pass struct {
		at     float64
		report *report.NodeReport
	}
	const reading = 0.25 // seconds that a pass reads the node
	for name, c := range map[string]struct {
		changes   []float64
		announced []float64
		gap       float64 // announcements until then are not known
		passes    []pass
		polled    bool
		want      []took
		pending   bool
	}{
		"the rules followed before the first pass": {
			changes: []float64{1}, announced: []float64{0.5, 1.4, 1.8}, passes: []pass{{2, right}},
			want: []took{{time: 800 * time.Millisecond}},
		},
		"they followed after a pass": {
			changes: []float64{1}, announced: []float64{1.2, 2.5}, passes: []pass{{2, wrong}, {3, right}},
			want: []took{{time: 1500 * time.Millisecond}},
		},
		"the first of several changes counts": {
			changes: []float64{1, 1.5}, announced: []float64{2.5}, passes: []pass{{2, wrong}, {3, right}},
			want: []took{{time: 1500 * time.Millisecond}},
		},
		"they followed while the node was read": {
			changes: []float64{1}, announced: []float64{2.2}, passes: []pass{{2, right}},
			want: []took{{time: 1200 * time.Millisecond}},
		},
		"passes are far apart, and other rules changed all the time": {
			changes: []float64{1}, announced: []float64{1.2, 5, 30, 59}, passes: []pass{{60, right}},
			want: []took{{why: whyNotAttributed}},
		},
		"it took long, and passes are apart by a small part of that": {
			changes: []float64{1}, announced: []float64{1.2, 5, 30, 59, 62, 64}, passes: []pass{{61, wrong}, {65, right}},
			want: []took{{time: 63 * time.Second}},
		},
		"announcements were lost": {
			changes: []float64{1}, announced: []float64{1.2, 5}, gap: 5, passes: []pass{{6, right}},
			want: []took{{why: whyNotAttributed}},
		},
		"announcements were lost within a second": {
			changes: []float64{1}, announced: []float64{1.9}, gap: 1.9, passes: []pass{{3, right}},
			want: []took{{time: 900 * time.Millisecond}},
		},
		"they were lost before the change": {
			changes: []float64{1}, announced: []float64{0.5, 5}, gap: 0.5, passes: []pass{{6, right}},
			want: []took{{time: 4 * time.Second}},
		},
		"it is right without another rule": {
			changes: []float64{1}, announced: []float64{1.2}, passes: []pass{{2, wrong}, {3, right}},
			want: []took{{why: whyNotAttributed}},
		},
		"no other rules were needed": {changes: []float64{1}, announced: []float64{0.5}, passes: []pass{{2, right}}},
		"they are wrong still": {
			changes: []float64{1}, announced: []float64{1.2}, passes: []pass{{2, wrong}}, pending: true,
		},
		"the node was read before": {
			changes: []float64{1}, announced: []float64{0.8}, passes: []pass{{0.9, right}}, pending: true,
		},
		"the other family is wrong": {
			changes: []float64{1}, announced: []float64{1.5}, passes: []pass{{2, otherFamily}},
			want: []took{{time: 500 * time.Millisecond}},
		},
		"a warning is left": {
			changes: []float64{1}, announced: []float64{1.5}, passes: []pass{{2, warned}},
			want: []took{{time: 500 * time.Millisecond}},
		},
		"the rules are right, and there is no route": {
			changes: []float64{1}, announced: []float64{1.5}, passes: []pass{{2, noRoute}},
			want: []took{{time: 500 * time.Millisecond}},
		},
		"a path is not known": {
			changes: []float64{1}, announced: []float64{1.5}, passes: []pass{{2, unknown}, {9999, right}},
			want: []took{{why: whyNotJudged}},
		},
		"a path was wrong before": {
			changes: []float64{1}, announced: []float64{1.5}, passes: []pass{{2, wrongBefore}, {9999, right}},
			want: []took{{why: whyNotJudged}},
		},
		"a path was wrong before, and is more so now": {
			changes: []float64{1}, announced: []float64{1.5}, passes: []pass{{2, wrongNow}}, pending: true,
		},
		"the kernel announces nothing": {
			changes: []float64{1}, polled: true, passes: []pass{{2, wrong}, {12, right}},
			want: []took{{time: 11 * time.Second}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &latency{}
			for _, at := range c.changes {
				l.changed(web, after(at))
			}
			heard := &announced{gap: after(c.gap)}
			for _, at := range c.announced {
				heard.times = append(heard.times, after(at))
			}
			for i := range c.want {
				c.want[i].family = corev1.IPv4Protocol
			}
			var got []took
			for _, p := range c.passes {
				got = append(got, l.pass(p.report, after(p.at), after(p.at+reading), heard, c.polled, before)...)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
			if pending := !l.oldest().IsZero(); pending != c.pending {
				t.Errorf("a change is pending: %t", pending)
			}
		})
	}
}

// Of very many announcements the older half is forgotten: what was announced then is not known.
func TestAnnouncementsAreBounded(t *testing.T) {
	a := &announcements{}
	for i := range maxAnnounced + 1 {
		a.add(after(float64(i)), false)
	}
	heard, _ := a.all()
	half := float64(maxAnnounced / 2)
	if n := len(heard.times); n != maxAnnounced/2+1 || !heard.gap.Equal(after(half-1)) {
		t.Errorf("%d are kept, and until %v none is known", n, heard.gap)
	}
	for _, c := range []struct{ after, first float64 }{{half - 3, half - 3}, {half - 1, half}, {half + 5, half + 6}} {
		first, last, ok := heard.between(after(c.after), after(half+10))
		if !ok || !first.Equal(after(c.first)) || !last.Equal(after(half+10)) {
			t.Errorf("after %v: from %v to %v, %t", c.after, first, last, ok)
		}
	}
}
