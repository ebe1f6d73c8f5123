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
	wrongAt := func(address string) *report.NodeReport {
		return &report.NodeReport{Paths: []report.Path{{
			Service: &report.ObjectRef{Namespace: "shop", Name: "web"}, Verdict: report.Mismatch,
			Frontend: report.Frontend{Kind: "ClusterIP", Address: address},
		}}}
	}
	wrong := wrongAt("10.96.0.1")
	type pass struct {
		at     float64
		report *report.NodeReport
	}
	const reading = 0.25 // seconds that a pass reads the node
	for name, c := range map[string]struct {
		changes   []float64
		announced []float64
		passes    []pass
		polled    bool
		want      []time.Duration
	}{
		"the rules followed before the first pass": {
			changes: []float64{1}, announced: []float64{0.5, 1.4, 1.8}, passes: []pass{{2, right}},
			want: []time.Duration{400 * time.Millisecond},
		},
		"they followed after a pass": {
			changes: []float64{1}, announced: []float64{1.2, 2.5}, passes: []pass{{2, wrong}, {3, right}},
			want: []time.Duration{1500 * time.Millisecond},
		},
		"the first of several changes counts": {
			changes: []float64{1, 1.5}, announced: []float64{2.5}, passes: []pass{{2, wrong}, {3, right}},
			want: []time.Duration{1500 * time.Millisecond},
		},
		"they followed while the node was read": {
			changes: []float64{1}, announced: []float64{2.2}, passes: []pass{{2, right}},
			want: []time.Duration{1200 * time.Millisecond},
		},
		"no other rules were needed": {changes: []float64{1}, announced: []float64{0.5}, passes: []pass{{2, right}}},
		"they are wrong still":       {changes: []float64{1}, announced: []float64{1.2}, passes: []pass{{2, wrong}}},
		"the node was read before":   {changes: []float64{1}, announced: []float64{0.8}, passes: []pass{{0.9, right}}},
		"the other family is wrong": {
			changes: []float64{1}, announced: []float64{1.5}, passes: []pass{{2, wrongAt("fd00::1")}},
			want: []time.Duration{500 * time.Millisecond},
		},
		"the kernel announces nothing": {
			changes: []float64{1}, polled: true, passes: []pass{{2, wrong}, {12, right}},
			want: []time.Duration{11 * time.Second},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &latency{}
			for _, at := range c.changes {
				l.changed(web, after(at))
			}
			var announced []time.Time
			for _, at := range c.announced {
				announced = append(announced, after(at))
			}
			var got []time.Duration
			for _, p := range c.passes {
				for _, x := range l.pass(p.report, after(p.at), after(p.at+reading), announced, c.polled) {
					if got = append(got, x.time); x.family != corev1.IPv4Protocol {
						t.Errorf("it is of family %s", x.family)
					}
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
