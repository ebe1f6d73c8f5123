// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// says makes kube-proxy say that it is of another version.
func (w *capturedNode) says(version string) {
	w.t.Helper()
	w.edit("metrics.txt", func(l string) []string { return []string{strings.ReplaceAll(l, "v1.36.3", version)} })
}

// oldIPVSFilter takes from ipvs mode the rules that 1.28.0 lacks.
func (w *capturedNode) oldIPVSFilter() {
	w.drop(v4, "-A KUBE-IPVS-FILTER", "KUBE-EXTERNAL-IP-LOCAL")
	w.drop(v6, "-A KUBE-IPVS-FILTER", "KUBE-6-EXTERNAL-IP-LOCAL")
}

// A patch release has the base chains of a later minor version (1.33.13 those of 1.34): the rules are judged by their
// shape, whatever number kube-proxy says.
func TestBaseChainsGoBeforeTheVersion(t *testing.T) {
	for _, version := range []string{"v1.33.13", "v1.35.8", "v1.34.0", "v1.37.2", "v1.38.0"} {
		w := openCaptured(t, "nftables")
		w.says(version)
		r := w.run()
		for i := range r.Paths {
			// shop/samenode has hints for nodes, which 1.33 uses only with a feature gate.
			if p := &r.Paths[i]; p.Verdict == report.Mismatch && p.Service.Name != "samenode" {
				t.Errorf("%s: %s is a mismatch: %+v", version, pathKey(p), p.Findings)
			}
		}
		newer := false
		for _, f := range r.Findings {
			newer = newer || f.Code == NewerKubeProxy && f.Severity == report.Info
		}
		if newer != (version == "v1.38.0") {
			t.Errorf("%s: it is said that kube-proxy is newer than known: %t", version, newer)
		}
	}
}

// What a version of kube-proxy refuses by a fault of its own is a warning that says so. Where a later version lacks the
// rule, somebody has deleted it.
func TestFaultOfAVersion(t *testing.T) {
	for version, want := range map[string]report.Verdict{
		"v1.28.0": report.Warning, "v1.29.15": report.Warning, "v1.30.0": report.Mismatch, "v1.37.2": report.Mismatch,
	} {
		w := openCaptured(t, "ipvs")
		w.says(version)
		w.oldIPVSFilter()
		r, met := w.run(), 0
		for i := range r.Paths {
			p := &r.Paths[i]
			if p.Service.Name != "extip-local" || p.Frontend.Kind != string(expect.ExternalIP) ||
				p.Origin.Kind == string(expect.FromNode) {
				continue
			}
			met++
			if p.Verdict != want || (p.Findings[0].Code == expect.ReasonKubeProxyBug) != (want == report.Warning) {
				t.Errorf("%s: %s is %s, want %s: %+v", version, pathKey(p), p.Verdict, want, p.Findings)
			}
		}
		if met == 0 {
			t.Errorf("%s: no path to the external IP was judged", version)
		}
	}
}
