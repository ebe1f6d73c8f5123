// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"net/netip"
	"slices"
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

// took is one measurement.
type took struct {
	family corev1.IPFamily
	time   time.Duration
}

// pass returns what a pass has shown. at is when it began to read the node, end when it had read it. Where the kernel
// announces changes, announced has the times at which it did, in order, and a change took effect with the first
// announcement after both the change and the last reading that did not show it: one without any needed no other rules.
// Where the kernel does not, polled is set, and the reading itself is the time.
func (l *latency) pass(
	r *report.NodeReport, at, end time.Time, announced []time.Time, polled bool,
) (out []took) {
	if len(l.changes) == 0 {
		return nil
	}
	wrong := wrongFamilies(r)
	for of, c := range l.changes {
		switch {
		case !at.After(c.at):
			continue // the node was read before the change
		case wrong[of]:
			c.wrong = at
			continue
		}
		delete(l.changes, of)
		after := c.at
		if c.wrong.After(after) {
			after = c.wrong
		}
		if polled {
			out = append(out, took{of.family, at.Sub(c.at)})
			continue
		}
		i := slices.IndexFunc(announced, func(t time.Time) bool { return t.After(after) && !t.After(end) })
		if i >= 0 {
			out = append(out, took{of.family, announced[i].Sub(c.at)})
		}
	}
	return out
}

// wrongFamilies are the Services of which a path is not right, or not known to be. A path without an address is of both
// families.
func wrongFamilies(r *report.NodeReport) map[familyOf]bool {
	out := map[familyOf]bool{}
	for i := range r.Paths {
		p := &r.Paths[i]
		if p.Service == nil || p.Verdict == report.Match || p.Verdict == report.ByDesign {
			continue
		}
		name := types.NamespacedName{Namespace: p.Service.Namespace, Name: p.Service.Name}
		a, err := netip.ParseAddr(p.Frontend.Address)
		if err != nil || a.Is4() {
			out[familyOf{name, corev1.IPv4Protocol}] = true
		}
		if err != nil || a.Is6() {
			out[familyOf{name, corev1.IPv6Protocol}] = true
		}
	}
	return out
}
