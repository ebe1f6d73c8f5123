// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// What /proc/locks says of a file's lock.
func TestLockOf(t *testing.T) {
	const others = "1: FLOCK  ADVISORY  WRITE 15738 fe:00:4694662 0 EOF\n" +
		"2: POSIX  ADVISORY  WRITE 99 00:1a:815 0 EOF\n" + // of another kind
		"3: FLOCK  ADVISORY  WRITE 98 00:1a:8150 0 EOF\n" +
		"4: FLOCK  ADVISORY  WRITE 97 00:1b:815 0 EOF\n" +
		"4: -> FLOCK  ADVISORY  WRITE 96 00:1b:815 0 EOF\n"
	for name, tt := range map[string]struct {
		locks string
		want  Lock
	}{
		"nobody": {others, LockFree},
		"one":    {others + "5: FLOCK  ADVISORY  WRITE 4711 00:1a:815 0 EOF\n", LockHeld},
		"one, and another": {others + "5: FLOCK  ADVISORY  WRITE 4711 00:1a:815 0 EOF\n" +
			"5: -> FLOCK  ADVISORY  WRITE 4712 00:1a:815 0 EOF\n", LockWaited},
		"nothing": {"", LockFree},
		"cut":     {"5: FLOCK  ADVISORY  WRITE\n5: ->\n5:\n", LockFree},
	} {
		if got := lockOf(tt.locks, 0, 0x1a, 815); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// What lasts for a moment is counted by looks.
func TestLooks(t *testing.T) {
	m := newMetrics()
	m.tracked = func() *snapshot.Tracked { return &snapshot.Tracked{InsertFailed: 7, Drop: 2} }
	var s seen
	for i, now := range []Moment{
		{Lock: LockFree},
		{Lock: LockHeld}, // no kube-proxy was there yet
		{Lock: LockHeld, Proxy: "10"},
		{Lock: LockWaited, Proxy: "10"},
		{Lock: LockFree},
		{},
		{Proxy: "20"},
		{Proxy: "20"},
		{Proxy: "30"}, // between two looks
	} {
		s.look(m, now, after(float64(i)))
	}
	w := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
	(&Agent{metrics: m}).Handler().ServeHTTP(w, request)
	for _, want := range []string{
		`svcproxy_xtables_lock_looks_total{state="free"} 2`, `svcproxy_xtables_lock_looks_total{state="held"} 2`,
		`svcproxy_xtables_lock_looks_total{state="waited"} 1`, "svcproxy_kube_proxy_absent_seconds_total 2",
		"svcproxy_kube_proxy_starts_total 2", `svcproxy_conntrack_failures_total{reason="insert_failed"} 7`,
		`svcproxy_conntrack_failures_total{reason="drop"} 2`,
	} {
		if !strings.Contains(w.Body.String(), "\n"+want+"\n") {
			t.Errorf("%s is missing", want)
		}
	}
}
