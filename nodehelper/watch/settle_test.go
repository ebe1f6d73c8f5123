// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

var zero = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// after is a time, in seconds.
func after(seconds float64) time.Time { return zero.Add(time.Duration(seconds * float64(time.Second))) }

func TestSettling(t *testing.T) {
	web := types.NamespacedName{Namespace: "shop", Name: "web"}
	missing := subject{service: web, path: "ClusterIP 10.96.0.1 TCP 80 pod", code: "MissingEndpoint", of: "10.244.1.5:80"}
	stale := subject{code: "StaleService", of: "KUBE-SVC-X"}
	type pass struct {
		at      float64
		found   []subject
		changed float64 // of the Service, before the pass is judged
		counts  bool
	}
	for name, passes := range map[string][]pass{
		"seen once": {{at: 10, found: []subject{missing}}},
		"seen twice within kube-proxy's time": {
			{at: 10, found: []subject{missing}}, {at: 11, found: []subject{missing}},
		},
		"seen twice, and kube-proxy had its time": {
			{at: 10, found: []subject{missing}}, {at: 13, found: []subject{missing}, counts: true},
		},
		"the Service has changed in between": {
			{at: 10, found: []subject{missing}},
			{at: 13, found: []subject{missing}, changed: 12},
			{at: 14, found: []subject{missing}, changed: 12},
			{at: 15.5, found: []subject{missing}, changed: 12, counts: true},
		},
		"the Service has changed while the node was read": {
			{at: 10, found: []subject{missing}, changed: 10.1},
			{at: 14, found: []subject{missing}, changed: 10.1},
			{at: 15, found: []subject{missing}, changed: 10.1, counts: true},
		},
		"gone in between": {
			{at: 10, found: []subject{missing}},
			{at: 12},
			{at: 14, found: []subject{missing}},
			{at: 18, found: []subject{missing}, counts: true},
			{at: 19},
		},
		"what counts does so while the Service changes": {
			{at: 10, found: []subject{missing}},
			{at: 14, found: []subject{missing}, counts: true},
			{at: 15, found: []subject{missing}, changed: 15, counts: true},
			{at: 16, changed: 15},
		},
		"of the node": {
			{at: 10, found: []subject{stale}}, {at: 14, found: []subject{stale}, changed: 14, counts: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &settler{}
			for _, p := range passes {
				s.pass(after(p.at), p.found, func(types.NamespacedName) time.Time {
					if p.changed == 0 {
						return time.Time{}
					}
					return after(p.changed)
				}, 3*time.Second)
				if got := s.counts(missing) || s.counts(stale); got != p.counts {
					t.Errorf("after %v s it counts: %t", p.at, got)
				}
			}
		})
	}
}

// A finding of a sample is the same one when another endpoint of the node stands for its pods: after a roll-out it
// counts still, since when it did. The address of an origin that was asked for is another origin.
func TestAFindingOutlivesItsSample(t *testing.T) {
	from := func(address string, sample bool) []subject {
		return subjectsOf(&report.NodeReport{Paths: []report.Path{{
			Service:  &report.ObjectRef{Namespace: "shop", Name: "web"},
			Frontend: report.Frontend{Kind: "ClusterIP", Address: "10.96.0.1", Port: 80, Protocol: "TCP"},
			Origin:   report.Origin{Kind: "pod", Address: address, Sample: sample}, Verdict: report.Mismatch,
			Findings: []report.Finding{{Code: "MissingEndpoint", Subject: "10.244.1.5:80", Severity: report.Error}},
		}}})
	}
	never := func(types.NamespacedName) time.Time { return time.Time{} }
	for _, sample := range []bool{true, false} {
		s := &settler{}
		s.pass(after(10), from("10.244.1.7", sample), never, time.Second)
		s.pass(after(20), from("10.244.1.7", sample), never, time.Second)
		now := from("10.244.1.8", sample)
		s.pass(after(30), now, never, time.Second)
		if got := s.counts(now[0]); got != sample {
			t.Errorf("sample %t: it counts: %t", sample, got)
		}
		if since := s.seen[now[0]].since; sample && !since.Equal(after(10)) {
			t.Errorf("it is there since %v", since)
		}
	}
}

func TestWaiting(t *testing.T) {
	s := &settler{}
	never := func(types.NamespacedName) time.Time { return time.Time{} }
	one, two := subject{code: "A"}, subject{code: "B"}
	s.pass(after(10), []subject{one}, never, 3*time.Second)
	s.pass(after(11), []subject{one, two}, never, 3*time.Second)
	if n, next := s.waiting(after(11), 3*time.Second); n != 2 || next != 2*time.Second {
		t.Errorf("%d findings wait, the first for %v", n, next)
	}
	s.pass(after(20), []subject{one, two}, never, 3*time.Second)
	if n, _ := s.waiting(after(20), 3*time.Second); n != 0 {
		t.Errorf("%d findings wait", n)
	}
}

func TestGrace(t *testing.T) {
	slow := map[string]*kubeproxy.Sync{"IPv4": {Average: 20 * time.Second}, "IPv6": {Average: time.Second}}
	slowly := &kubeproxy.Config{MinSyncPeriod: 10 * time.Second}
	stuck := map[string]*kubeproxy.Sync{"": {Average: time.Hour}}
	for name, c := range map[string]struct {
		config    *kubeproxy.Config
		syncs     map[string]*kubeproxy.Sync
		connected bool
		want      time.Duration
	}{
		"nothing is known":      {connected: true, want: 2 * time.Second},
		"it pauses for longer":  {config: slowly, connected: true, want: 11 * time.Second},
		"its syncs take long":   {syncs: slow, connected: true, want: 42 * time.Second},
		"it says it takes long": {syncs: stuck, connected: true, want: 5 * time.Minute},
		"the API is away":       {syncs: slow, want: 2 * time.Minute},
	} {
		if got := graceOf(c.config, &kubeproxy.Status{Syncs: c.syncs}, c.connected); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
