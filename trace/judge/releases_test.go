// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"path/filepath"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// TestKubeProxiesOfOtherReleases: what real kube-proxies of other releases have written for Services of every kind is
// right, and nothing else is said of their nodes.
func TestKubeProxiesOfOtherReleases(t *testing.T) {
	for _, tt := range []struct {
		name, node, version, mode string
		paths                     int
	}{
		{"v1.28-iptables", "node1", "v1.28.15", "iptables", 52},
		{"v1.30-iptables", "node1", "v1.30.14", "iptables", 52},
		{"v1.31-nftables", "node3", "v1.31.14", "nftables", 46},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, n := openSnapshot(t, filepath.Join("testdata", "snapshots", tt.name), tt.node)
			r := Files(c, n, Request{Backwards: true, Matching: true, PerPathService: true})
			if r.Error != "" {
				t.Fatal(r.Error)
			}
			s := r.Summary
			if r.Verdict != report.Match || s.Paths != tt.paths || s.Matched+s.ByDesign != s.Paths {
				t.Errorf("%s %+v", r.Verdict, s)
			}
			m := r.Mode
			if m.Actual != tt.mode || m.Reported != tt.mode || m.KubeProxyVersion != tt.version || m.Health != "healthy" ||
				m.LastSync == "" {
				t.Errorf("%+v", m)
			}
			for _, f := range r.Findings {
				// The cluster had a ConfigMap for each mode: kubeadm's is that of iptables mode.
				if f.Code != ModeMismatch || tt.mode != "nftables" {
					t.Errorf("%s %s: %s", f.Code, f.Subject, f.Message)
				}
			}
			for i := range r.Paths {
				for _, f := range r.Paths[i].Findings {
					if f.Severity != report.Info {
						t.Errorf("%s: %s %s: %s", pathKey(&r.Paths[i]), f.Code, f.Subject, f.Message)
					}
				}
			}
		})
	}
}
