// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// answers are what kube-proxies print of the same moment, by the code of their versions: /healthz and /livez of one
// that is healthy, whose changes wait, and of a node that drains (pkg/proxy/healthcheck: proxier_health.go,
// proxy_health.go).
type answers struct {
	version        string
	healthz, livez func(healthy, eligible bool) string // livez is nil before 1.28
}

var (
	answered = time.Now()
	written  = answered.Add(-10 * time.Minute)
)

// zones are those that the clock of a node may be in: Go prints abbreviations, or the offset where there is none.
var zones = []*time.Location{
	time.UTC, time.FixedZone("CEST", 2*3600), time.FixedZone("", -3*3600-1800), time.FixedZone("+0545", 5*3600+45*60),
}

// last is what kube-proxy prints as lastUpdated: the time of the answer while the response has status 200.
func last(ok bool) time.Time {
	if ok {
		return answered
	}
	return written
}

func versions(zone *time.Location) []answers {
	in := func(t time.Time) time.Time {
		if zone == nil {
			return t // with its reading of the monotonic clock
		}
		return t.In(zone)
	}
	until127 := func(healthy, _ bool) string {
		return fmt.Sprintf(`{"lastUpdated": %q,"currentTime": %q}`, in(last(healthy)), in(answered))
	}
	until132 := func(healthy, eligible bool) string {
		return fmt.Sprintf(`{"lastUpdated": %q,"currentTime": %q, "nodeEligible": %v}`, in(last(healthy && eligible)),
			in(answered), eligible)
	}
	since133 := func(live bool) func(healthy, eligible bool) string {
		return func(healthy, eligible bool) string {
			a := map[string]any{
				"lastUpdated": in(last(healthy && (eligible || live))), "currentTime": in(answered), "healthy": healthy,
				"status": map[string]any{
					"IPv4": map[string]any{"lastUpdated": in(written), "healthy": healthy},
					"IPv6": map[string]any{"lastUpdated": in(written), "healthy": true},
				},
			}
			if !live {
				a["nodeEligible"] = eligible
			}
			text, err := json.Marshal(a)
			if err != nil {
				panic(err)
			}
			return string(text)
		}
	}
	return []answers{
		{"1.24 to 1.27", until127, nil},
		{"1.28 to 1.32", until132, until127},
		{"since 1.33", since133(false), since133(true)},
	}
}

// TestHealthOfEveryVersion reads what every kube-proxy answers, in every zone, by one response and by both.
func TestHealthOfEveryVersion(t *testing.T) {
	for _, zone := range append(slices.Clone(zones), nil) {
		for _, v := range versions(zone) {
			for _, c := range []struct {
				name              string
				healthy, eligible bool
			}{{"healthy", true, true}, {"late", false, true}, {"drains", true, false}, {"drains, late", false, false}} {
				if !c.eligible && v.livez == nil {
					continue // these versions do not look at the node
				}
				for _, of := range []string{"healthz", "livez", "both"} {
					var s Status
					if of != "livez" {
						s.Healthz = parsed(t, v.healthz(c.healthy, c.eligible))
					}
					if of != "healthz" && v.livez != nil {
						s.Livez = parsed(t, v.livez(c.healthy, c.eligible))
					}
					if s.Healthz == nil && s.Livez == nil {
						continue
					}
					name := fmt.Sprintf("%s %s by %s in %v", v.version, c.name, of, zone)
					checkHealth(t, name, &s, c.healthy, c.eligible)
				}
			}
		}
	}
}

func checkHealth(t *testing.T, name string, s *Status, healthy, eligible bool) {
	t.Helper()
	by, families := s.Unhealthy()
	// Only /healthz tells that a node drains; of a version before 1.33 it tells nothing else then.
	vague := !eligible && s.Livez == nil && s.Healthz.Healthy == nil
	if wantLate := !healthy && !vague; (by != nil) != wantLate {
		t.Errorf("%s: late %v, want %v", name, by != nil, wantLate)
	}
	if s.Healthy() != (healthy && !vague) {
		t.Errorf("%s: healthy %v", name, s.Healthy())
	}
	if by != nil && by.Families != nil && !slices.Equal(families, []string{"IPv4"}) {
		t.Errorf("%s: families %q", name, families)
	}
	if s.Healthz != nil && s.Healthz.Draining() == eligible {
		t.Errorf("%s: draining %v", name, s.Healthz.Draining())
	}
	if got := s.Response().CurrentTime; !got.Equal(answered.Round(0)) {
		t.Errorf("%s: %v, want %v", name, got, answered)
	}
	if s.LastSync() != "" {
		t.Errorf("%s: a last sync without metrics: %s", name, s.LastSync())
	}
}

func parsed(t *testing.T, text string) *Health {
	t.Helper()
	h, err := ParseHealth([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return h
}

// TestNoHealth is what is no response of kube-proxy's.
func TestNoHealth(t *testing.T) {
	for text, why := range map[string]string{
		"": "empty", "ok": "not what kube-proxy answers", "404 page not found\n": "not what kube-proxy answers",
		"[]": "not what kube-proxy answers", "null": "no currentTime", "{}": "no currentTime",
		`{"kind":"Status","code":403}`: "no currentTime", `{"currentTime":"now"}`: `"now" is not a time`,
		`{"currentTime":1700000000}`: "not what kube-proxy answers", `{"currentTime":"2026-11-20 19:41"}`: "is not a time",
		`{"lastUpdated": "2026-01-02 15:04:05 +0000 UTC","currentTime": "2026-01-02 15:04:0`: "not what kube-proxy answers",
	} {
		if h, err := ParseHealth([]byte(text)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %+v %v, want %q", text, h, err, why)
		}
	}
}

// TestStartingUp: before its first write kube-proxy has no time of it, and is healthy.
func TestStartingUp(t *testing.T) {
	for _, text := range []string{
		`{"lastUpdated": "2026-01-02 15:04:05 +0000 UTC","currentTime": "2026-01-02 15:04:05 +0000 UTC", "nodeEligible": true}`,
		`{"lastUpdated":"2026-01-02T15:04:05.2Z","currentTime":"2026-01-02T15:04:05.1Z","healthy":true,"status":{}}`,
	} {
		s := Status{Healthz: parsed(t, text)}
		if !s.Healthy() {
			t.Errorf("%s: not healthy", text)
		}
	}
	s := Status{Healthz: parsed(t, `{"lastUpdated": "0001-01-01 00:00:00 +0000 UTC","currentTime": `+
		`"2026-01-02 15:04:05 +0000 UTC m=+0.1", "nodeEligible": false}`)}
	if by, _ := s.Unhealthy(); by != nil || !s.Healthz.Draining() {
		t.Errorf("%+v", s.Healthz)
	}
}

// TestHalfMetrics: what metrics show that are cut is used, and what they do not show is not counted as nothing.
func TestHalfMetrics(t *testing.T) {
	const whole = "# HELP kubeproxy_x x\n" +
		"kubeproxy_sync_proxy_rules_endpoint_changes_pending 2\n" +
		"kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family=\"IPv6\"} 17\n" +
		"kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family=\"IPv4\"} 1.7952036651e+09\n" +
		"kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"} 1.7952036641e+09\n" +
		"kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv6\"} 1.7952036642e+09\n" +
		"kubeproxy_sync_proxy_rules_service_changes_pending 3\n" +
		"kubernetes_build_info{git_version=\"v1.36.3\"} 1\n"
	var s Status
	if err := s.ReadMetrics([]byte(whole)); err != nil {
		t.Fatal(err)
	}
	v4, v6 := s.Syncs["IPv4"], s.Syncs["IPv6"]
	if s.Failures != 17 || s.Pending != 5 || v4.Failures != 0 || !v4.Waits() || v6.Failures != 17 || v6.Waits() ||
		s.Version != "v1.36.3" {
		t.Errorf("%+v %+v %+v", s, v4, v6)
	}
	for n := range len(whole) {
		var s Status
		err := s.ReadMetrics([]byte(whole[:n]))
		if err == nil && whole[n-1] != '\n' {
			t.Fatalf("%q passed", whole[:n])
		}
		for family, x := range s.Syncs {
			if x.Queued != 0 && x.Queued != 1.7952036651e+09 || x.Synced != 0 && x.Synced < 1.7952036641e+09 {
				t.Fatalf("%q: %s %+v", whole[:n], family, x)
			}
			if x.Failures == 0 || s.Pending >= 0 || s.Failures == 0 || s.Version != "" {
				t.Fatalf("%q: %+v %s %+v", whole[:n], s, family, x)
			}
		}
	}
	for _, text := range []string{"", "\n", "404 page not found\n", "<html>\n<p>a 1</p>\n", "refused", "# EOF\n"} {
		if err := s.ReadMetrics([]byte(text)); err == nil {
			t.Errorf("%q passed", text)
		}
	}
}
