// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
)

// TestDamagedFiles: Services that cannot be read are an error that names the file and where in it; what is evidence
// beside them costs a line of the output, and no other verdict.
func TestDamagedFiles(t *testing.T) {
	_, intact, _ := runPlugin(t, "verify", "-A", "--snapshot", broken)
	last := func(out string) string {
		lines := strings.Split(strings.TrimSpace(out), "\n")
		return lines[len(lines)-1]
	}
	for _, tt := range []struct {
		name  string
		files map[string]string // "" for one that is gone
		code  int
		says  []string
	}{
		{"Services cut", map[string]string{
			"cluster/services.yaml": "", "cluster/services.json": `{"kind":"List","items":[{"kind":"Service","metadata":{"na`,
		}, run.ExitUsage, []string{"cluster/services.json", "cut off", "offset"}},
		{
			"Services that are an error page",
			map[string]string{"cluster/services.yaml": "a: b\n  c: <html>\n"},
			run.ExitUsage,
			[]string{"cluster/services.yaml", "line 2"},
		},
		{"half the Services", map[string]string{
			"cluster/services.yaml": "apiVersion: v1\nitems:\n- kind: Service\n  metadata:\n    name: a\n",
		}, run.ExitUsage, []string{"cluster/services.yaml", `kind ""`}},
		{"pods", map[string]string{"cluster/pods.yaml": "\x00\xff"}, run.ExitMismatch, []string{
			"cluster/pods.yaml was not read:",
		}},
		{"no pods", map[string]string{"cluster/pods.yaml": ""}, run.ExitMismatch, nil},
		{"metrics and proxyMode", map[string]string{
			node + "metrics.txt": "404 page not found\n", node + "proxyMode.txt": "<html>",
		}, run.ExitMismatch, []string{"metrics.txt was not read:", "proxyMode.txt was not read:"}},
		{"healthz of 1.30, metrics cut", map[string]string{
			node + "healthz.json": `{"lastUpdated": "2026-11-20 19:41:06.84 +0000 UTC m=+12.0","currentTime": ` +
				`"2026-11-20 19:41:06.84 +0000 UTC m=+12.0", "nodeEligible": true}`,
			node + "metrics.txt": "kubeproxy_sync_proxy_rules_last_timestamp_seconds 1.7e+09\nkubeproxy_sync",
		}, run.ExitMismatch, []string{"metrics.txt was read in part: it is cut off in line 2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string]content{}
			var gone []string
			for name, data := range tt.files {
				if data == "" {
					gone = append(gone, name)
				} else {
					files[name] = text(data)
				}
			}
			dir := with(t, files, gone...)
			code, stdout, stderr := runPlugin(t, "verify", "-A", "--snapshot", dir)
			if code != tt.code {
				t.Errorf("exit code %d, want %d\n%s%s", code, tt.code, stdout, stderr)
			}
			for _, says := range tt.says {
				if !strings.Contains(stdout+stderr, says) {
					t.Errorf("it does not say %q:\n%s%s", says, stdout, stderr)
				}
			}
			if tt.code == run.ExitUsage {
				return
			}
			if last(stdout) != last(intact) {
				t.Errorf("%q, of the whole snapshot %q", last(stdout), last(intact))
			}
		})
	}
}
