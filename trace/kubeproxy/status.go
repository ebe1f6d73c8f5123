// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"maps"
	"slices"
	"time"
)

// Process is the name of kube-proxy's process.
const Process = "kube-proxy"

// Embedding are the processes that contain kube-proxy.
var Embedding = []string{"k3s", "k3s-server", "k3s-agent", "kubelite"}

// RetryTime is the time after which kube-proxy retries a failed sync, unless syncPeriod is set
// (pkg/proxy/apis/config/v1alpha1/defaults.go). Changes that are pending for longer are not waiting for a sync in
// progress.
const RetryTime = 30 * time.Second

// Status is what kube-proxy reports about itself, and whether it runs.
type Status struct {
	Reported string // the mode, by /proxyMode
	Version  string // "v1.36.3", by its metrics; "": not known

	Processes map[string]int    // PIDs by name, of those that are what they are named
	Cgroups   map[string]string // control groups by name, as /proc/PID/cgroup has them; none where that is not known
	NotTaken  []NotTaken        // processes that merely have such a name
	Listed    bool              // processes were collected
	Responds  bool              // it responds at one of its addresses
	Healthz   *Health           // nil: /healthz was not read
	Livez     *Health           // nil: /livez was not read
	Syncs     map[string]*Sync
	Failures  int // failed writes since it started, of all families; -1: not known
	Pending   int // changes seen and not written yet, of all families; -1: not known
}

// NotTaken is a process that merely has the name of one.
type NotTaken struct {
	PID       int
	Name, Why string
}

// Sync is the progress of a family's rules. Times are those of the node. A kube-proxy that does not report families
// separately has the family "".
type Sync struct {
	// Unix time, in seconds, of the last change that was seen and of the last write that succeeded; 0: never
	Queued, Synced float64
	Average        time.Duration // of a write

	Failures int // failed writes of the family since kube-proxy started; -1: not known
}

// Waits tells whether a change was seen after the last write.
func (x *Sync) Waits() bool { return x.Queued > x.Synced }

// Overdue returns the families whose changes have been pending for too long, by the clock of kube-proxy's own response.
func (s *Status) Overdue() []string {
	h := s.Response()
	if h == nil {
		return nil
	}
	now := h.CurrentTime
	var out []string
	for _, family := range slices.Sorted(maps.Keys(s.Syncs)) {
		x := s.Syncs[family]
		if x.Waits() && now.Sub(UnixTime(x.Queued)) > RetryTime+2*x.Average {
			out = append(out, family)
		}
	}
	return out
}

// Down tells whether no kube-proxy runs on the node, as far as that is known.
func (s *Status) Down() bool {
	return s.Listed && !s.Responds && s.Processes[Process] == 0 &&
		!slices.ContainsFunc(Embedding, func(name string) bool { return s.Processes[name] != 0 })
}

// LastSync returns when kube-proxy last wrote its rules, the older one of its families (RFC 3339); "" where that is not
// known.
func (s *Status) LastSync() string {
	var oldest *Sync
	for _, x := range s.Syncs {
		if x.Synced > 0 && (oldest == nil || x.Synced < oldest.Synced) {
			oldest = x
		}
	}
	if oldest == nil {
		return ""
	}
	return oldest.LastSync()
}

// LastSync returns when the family's rules were last written (RFC 3339); "" where that is not known.
func (x *Sync) LastSync() string {
	if x.Synced <= 0 {
		return ""
	}
	return time.Unix(int64(x.Synced), 0).UTC().Format(time.RFC3339)
}

// FailuresOf returns the failed writes of families; those of all where they are not counted separately, and -1 where
// nothing is known.
func (s *Status) FailuresOf(families []string) int {
	sum := 0
	for _, f := range families {
		x := s.Syncs[f]
		if x == nil || x.Failures < 0 {
			return s.Failures
		}
		sum += x.Failures
	}
	return sum
}

// UnixTime converts a Unix time in seconds.
func UnixTime(seconds float64) time.Time {
	return time.Unix(0, int64(seconds*float64(time.Second)))
}
