// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Process is the name of kube-proxy's process.
const Process = "kube-proxy"

// embedding are the processes that contain kube-proxy.
var embedding = []string{"k3s", "k3s-server", "k3s-agent", "kubelite"}

// RetryTime is the time after which kube-proxy retries a failed sync, unless syncPeriod is set
// (pkg/proxy/apis/config/v1alpha1/defaults.go). Changes that are pending for longer are not waiting for a sync in
// progress.
const RetryTime = 30 * time.Second

// Responses are the responses of kube-proxy's HTTP addresses; nil where one was not collected.
type Responses struct {
	ProxyMode, Healthz, Metrics []byte
	// Any: at least one of its addresses responded, these or others.
	Any bool
}

// Status is what kube-proxy reports about itself, and whether it runs.
type Status struct {
	Reported string // the mode, by /proxyMode
	Version  string // "v1.36.3", by its metrics; "": not known

	Processes map[string]int // PIDs by name
	Listed    bool           // processes were collected
	Responds  bool           // it responds at one of its addresses
	Health    *Health        // nil: /healthz was not collected
	Syncs     map[string]*Sync
	Failures  int // failed writes since it started; -1: not known
	Pending   int // changes seen and not written yet; -1: not known
}

// Sync is the progress of a family's rules. Times are those of the node. A kube-proxy that does not report families
// separately has the family "".
type Sync struct {
	// Unix time, in seconds, of the last change that was seen and of the last write that succeeded; 0: never
	Queued, Synced float64
	Average        time.Duration // of a write
}

// Health is the response of /healthz (pkg/proxy/healthcheck/proxy_health.go). Before 1.29 it had neither healthy nor
// status.
type Health struct {
	LastUpdated  time.Time `json:"lastUpdated"`
	CurrentTime  time.Time `json:"currentTime"`
	NodeEligible *bool     `json:"nodeEligible"`
	Healthy      *bool     `json:"healthy"`
	Status       map[string]struct {
		LastUpdated time.Time `json:"lastUpdated"`
		Healthy     bool      `json:"healthy"`
	} `json:"status"`
}

// Unhealthy returns the families whose changes are overdue; ok is false when there are none.
func (h *Health) Unhealthy() (families []string, ok bool) {
	for _, f := range slices.Sorted(maps.Keys(h.Status)) {
		if !h.Status[f].Healthy {
			families = append(families, f)
		}
	}
	// skew is the tolerance of comparisons: a healthy kube-proxy of any version reports the current time as lastUpdated.
	const skew = time.Second
	old := h.Healthy == nil && h.CurrentTime.Sub(h.LastUpdated) > skew
	return families, len(families) > 0 || old || h.Healthy != nil && !*h.Healthy
}

// Read parses the responses. Listed and Processes are set by the caller.
func (s *Status) Read(a *Responses) error {
	s.Reported, s.Responds = strings.TrimSpace(string(a.ProxyMode)), a.Any
	if len(a.Healthz) > 0 {
		s.Health = &Health{}
		if err := json.Unmarshal(a.Healthz, s.Health); err != nil {
			return fmt.Errorf("healthz.json is not what kube-proxy answers: %w", err)
		}
	}
	s.readMetrics(a.Metrics)
	return nil
}

// Overdue returns the families whose changes have been pending for too long, by the clock of kube-proxy's own response.
func (s *Status) Overdue() []string {
	if s.Health == nil {
		return nil
	}
	now := s.Health.CurrentTime
	var out []string
	for _, family := range slices.Sorted(maps.Keys(s.Syncs)) {
		x := s.Syncs[family]
		if x.Queued > x.Synced && now.Sub(UnixTime(x.Queued)) > RetryTime+2*x.Average {
			out = append(out, family)
		}
	}
	return out
}

// Down tells whether no kube-proxy runs on the node, as far as that is known.
func (s *Status) Down() bool {
	return s.Listed && !s.Responds && s.Processes[Process] == 0 &&
		!slices.ContainsFunc(embedding, func(name string) bool { return s.Processes[name] != 0 })
}

// LastSync returns when kube-proxy last wrote its rules, the older one of its families (RFC 3339); "" where that is not
// known.
func (s *Status) LastSync() string {
	var oldest float64
	for _, x := range s.Syncs {
		if x.Synced > 0 && (oldest == 0 || x.Synced < oldest) {
			oldest = x.Synced
		}
	}
	if oldest == 0 {
		return ""
	}
	return time.Unix(int64(oldest), 0).UTC().Format(time.RFC3339)
}

// UnixTime converts a Unix time in seconds.
func UnixTime(seconds float64) time.Time {
	return time.Unix(0, int64(seconds*float64(time.Second)))
}
