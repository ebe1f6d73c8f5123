// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"iter"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// A difference between the API and the rules is nothing unusual for as long as kube-proxy needs to follow. settler
// keeps apart what lasts longer.

// settling is the word for the verdict of a path on which nothing counts yet of what is wrong with it.
const settling report.Verdict = "Settling"

// sightings is in how many passes a finding has to be seen before it counts.
const sightings = 2

// subject is what is found wrong, and with what: the same in the next pass if nothing has changed.
type subject struct {
	service types.NamespacedName // none for what is found of the node
	path    string               // frontend and origin
	code    string
	of      string // the finding's own subject: an endpoint, a chain
}

// sighting is how long a finding has been seen.
type sighting struct {
	first  time.Time // when the node was first read that showed it, as all passes since
	since  time.Time // when the node was first read that showed it, or the Service changed last
	last   time.Time // when the node was last read that showed it
	times  int       // since then
	counts bool
}

// settler decides which findings count: those that were seen in two passes which are apart by the time that kube-proxy
// is given, the latter of them that long after the Service's last change in the API. What counts does so until a pass
// does not show it.
type settler struct {
	seen map[subject]*sighting
}

// pass notes the findings of a pass. at is when it began to read the node, changed returns when the API last changed a
// Service, grace is what kube-proxy is given.
func (s *settler) pass(
	at time.Time, found []subject, changed func(types.NamespacedName) time.Time, grace time.Duration,
) {
	next := make(map[subject]*sighting, len(found))
	for _, f := range found {
		if next[f] != nil {
			continue // several of a kind are one
		}
		x := s.seen[f]
		if x == nil {
			x = &sighting{first: at, since: at}
		}
		next[f] = x
		x.last = at
		if x.counts {
			continue
		}
		var change time.Time
		if f.service.Name != "" {
			change = changed(f.service)
		}
		if change.After(x.since) {
			x.since, x.times = change, 0
		}
		if at.Before(x.since) {
			continue // the node was read before the change
		}
		x.times++
		x.counts = x.times >= sightings && at.Sub(x.since) >= grace
	}
	s.seen = next
}

// counts tells whether a finding counts.
func (s *settler) counts(f subject) bool {
	x := s.seen[f]
	return x != nil && x.counts
}

// countedBefore tells whether a finding counts that has been there since before a time.
func (s *settler) countedBefore(f subject, at time.Time) bool {
	x := s.seen[f]
	return x != nil && x.counts && x.since.Before(at)
}

// waiting returns how many findings do not count yet, and in how much time the first of them may.
func (s *settler) waiting(now time.Time, grace time.Duration) (n int, next time.Duration) {
	for _, x := range s.seen {
		if x.counts {
			continue
		}
		left := max(0, x.since.Add(grace).Sub(now))
		if n == 0 || left < next {
			next = left
		}
		n++
	}
	return n, next
}

// settlingFor is for how long one of the findings that do not count yet has been seen in each pass.
func (s *settler) settlingFor() (d time.Duration) {
	for _, x := range s.seen {
		if !x.counts {
			d = max(d, x.last.Sub(x.first))
		}
	}
	return d
}

// subjectOf names a finding of a path; of the node where path is nil.
func subjectOf(path *report.Path, f *report.Finding) subject {
	out := subject{code: f.Code, of: f.Subject}
	if path == nil {
		return out
	}
	if path.Service != nil {
		out.service = types.NamespacedName{Namespace: path.Service.Namespace, Name: path.Service.Name}
	}
	at := &path.Frontend
	out.path = at.Kind + " " + at.Address + " " + at.Protocol + " " + strconv.Itoa(int(at.Port)) + " " +
		path.Origin.Kind
	// The address of a sample is that of some endpoint of the node, and another one after a roll-out.
	if !path.Origin.Sample {
		out.path += " " + path.Origin.Address
	}
	return out
}

// severe tells whether a finding makes a verdict worse.
func severe(f *report.Finding) bool { return f.Severity != report.Info }

// wrongIn yields what is found wrong in a report: of its paths, and of the node.
func wrongIn(r *report.NodeReport) iter.Seq2[subject, *report.Finding] {
	return func(yield func(subject, *report.Finding) bool) {
		for i := range r.Paths {
			for k := range r.Paths[i].Findings {
				if f := &r.Paths[i].Findings[k]; severe(f) && !yield(subjectOf(&r.Paths[i], f), f) {
					return
				}
			}
		}
		for i := range r.Findings {
			if f := &r.Findings[i]; severe(f) && !yield(subjectOf(nil, f), f) {
				return
			}
		}
	}
}

// subjectsOf lists what is found wrong in a report.
func subjectsOf(r *report.NodeReport) (out []subject) {
	for of := range wrongIn(r) {
		out = append(out, of)
	}
	return out
}

// What kube-proxy is given to follow the API.
const (
	standardPause = time.Second     // minSyncPeriod by default (pkg/proxy/apis/config/v1alpha1/defaults.go)
	graceMargin   = time.Second     // for both to hear of a change
	maxGrace      = 5 * time.Minute // however slow it says it is
	// awayGrace is what it is given while the API cannot be reached from here: kube-proxy may reach it again before, by
	// as much as client-go waits between two attempts (30 s, and as much again by jitter: reflector.go).
	awayGrace = 2 * time.Minute
)

// graceOf is the time that kube-proxy is given: its pause between two syncs, and two of these as they last on average,
// as a change may just miss one.
func graceOf(c *kubeproxy.Config, status *kubeproxy.Status, connected bool) time.Duration {
	pause, average := standardPause, time.Duration(0)
	if c != nil && c.MinSyncPeriod > 0 {
		pause = c.MinSyncPeriod
	}
	for _, x := range status.Syncs {
		average = max(average, x.Average)
	}
	grace := min(maxGrace, pause+2*average+graceMargin)
	if !connected {
		grace = max(grace, awayGrace)
	}
	return grace
}
