// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// hostileYAML are configurations that take time or memory.
var hostileYAML = []string{
	strings.Repeat("[", 5_000), strings.Repeat("{a: ", 5_000), strings.Repeat("- ", 5_000),
	strings.Repeat("? ", 5_000),
	strings.Repeat("---\n", 5_000), strings.Repeat("--- a\n", 5_000), strings.Repeat("&a ", 5_000),
	"a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c]\n",
	"a: &a {b: *a}\n", strings.Repeat("a: 1\n", 5_000), "a: 0x" + strings.Repeat("f", 5_000),
	"a: " + strings.Repeat("9:", 2_000) + "1",
}

// FuzzConfig feeds kube-proxy's configuration, as a file, as /configz and as a ConfigMap.
func FuzzConfig(f *testing.F) {
	for _, pattern := range []string{
		"../../testdata/snapshots/*/nodes/*/configz.json", "../../testdata/snapshots/*/nodes/*/kube-proxy-config.yaml",
	} {
		for _, data := range testutil.Files(f, pattern) {
			f.Add(data)
		}
	}
	for _, text := range hostileYAML {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		testutil.Promptly(t, func() {
			for _, parse := range []func([]byte) (Config, error){ParseConfig, ParseConfigz} {
				if c, err := parse(data); err == nil && (c.MasqueradeBit < 0 || c.MasqueradeBit > 31) {
					t.Errorf("masqueradeBit %d passed", c.MasqueradeBit)
				}
			}
			_, _ = ParseConfigMap(&corev1.ConfigMap{Data: map[string]string{"config.conf": string(data)}})
		})
	})
}

// FuzzStatus feeds what kube-proxy answers.
func FuzzStatus(f *testing.F) {
	for _, data := range testutil.Files(f, "../../testdata/snapshots/*/nodes/*/metrics.txt") {
		f.Add([]byte("iptables"), []byte(`{"lastUpdated":"2026-01-01T00:00:00Z"}`), data)
	}
	for _, data := range testutil.Files(f, "../../testdata/snapshots/*/nodes/*/healthz.json") {
		f.Add([]byte("nftables\n"), data, []byte("kubeproxy_sync_proxy_rules_last_timestamp_seconds NaN\n"))
	}
	f.Add([]byte("\x1b[2J"), []byte(strings.Repeat(`{"status":`, 1000)), []byte(strings.Repeat(
		"kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"} 1e400\n", 100)))
	f.Fuzz(func(t *testing.T, mode, healthz, metrics []byte) {
		testutil.Promptly(t, func() {
			var s Status
			if _, err := ParseMode(mode); err == nil && len(mode) > 100 {
				t.Errorf("the mode %q", mode)
			}
			_ = s.ReadMetrics(metrics)
			s.Healthz, _ = ParseHealth(healthz)
			s.Livez = s.Healthz
			s.Overdue()
			s.LastSync()
			s.Down()
			s.Unhealthy()
			s.Healthy()
		})
	})
}
