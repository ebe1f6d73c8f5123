// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// captures are the captured nodes of all modes.
var captures = []string{
	"iptables", "iptables-legacy", "real-2node-iptables", "scale-iptables", "nftables", "real-2node-nftables", "ipvs",
}

// silent is a captured node without some of what kube-proxy says of itself.
type silent struct {
	name    string
	files   []string // that are not there
	objects bool     // nor are the ConfigMap and kube-proxy's pods
}

var ownWords = []string{
	snapshot.ConfigzFile, snapshot.MetricsFile, snapshot.ProxyModeFile, snapshot.HealthzFile, snapshot.LivezFile,
	snapshot.ProxyConfigFile, snapshot.FlagsFile, snapshot.VersionsFile,
}

var silences = []silent{
	{"nothing", ownWords, true},
	{"all but the version", slices.DeleteFunc(slices.Clone(ownWords),
		func(f string) bool { return f == snapshot.MetricsFile }), true},
	{"all but the configuration", []string{snapshot.MetricsFile, snapshot.VersionsFile}, false},
}

func (s *silent) hush(w *capturedNode) {
	for _, f := range s.files {
		delete(w.files, f)
	}
	if s.objects {
		w.cluster.ConfigMaps = nil
	}
	for _, p := range w.cluster.Pods {
		if p.Labels["k8s-app"] == "kube-proxy" {
			for i := range p.Spec.Containers {
				p.Spec.Containers[i].Image = ""
			}
		}
	}
}

// TestRulesTellTheConfiguration: of a healthy node without kube-proxy's words nothing is a mismatch, and nearly all
// paths are judged.
func TestRulesTellTheConfiguration(t *testing.T) {
	testutil.Long(t)
	for _, name := range captures {
		for _, s := range silences {
			t.Run(filepath.Join(name, s.name), func(t *testing.T) {
				w := openCaptured(t, name)
				s.hush(w)
				r := w.run()
				if r.Error != "" {
					t.Fatal(r.Error)
				}
				judged := r.Summary.Matched + r.Summary.ByDesign
				t.Logf("%-20s without %-30s %5d paths, %5.1f %% judged, %d Mismatch, %d Unknown, %d Warning", name, s.name,
					r.Summary.Paths, 100*float64(judged)/float64(r.Summary.Paths), r.Summary.Mismatched, r.Summary.Unknown,
					r.Summary.Warnings)
				for _, v := range r.Mode.Values {
					t.Logf("  %-20s %-40s %-10s %s", v.Name, v.Value, v.Source, v.Detail)
				}
				if r.Summary.Mismatched > 0 || judged*100 < r.Summary.Paths*95 || r.Summary.Matched == 0 {
					t.Errorf("%+v", r.Summary)
				}
				shown := map[string]int{}
				for i := range r.Paths {
					p := &r.Paths[i]
					if p.Verdict == report.Match || p.Verdict == report.ByDesign {
						continue
					}
					for _, f := range p.Findings {
						shown[f.Code]++
						if shown[f.Code] < 4 {
							t.Logf("  %s %s: %s", pathKey(p), p.Verdict, f.Message)
						}
					}
				}
				for _, f := range r.Findings {
					if f.Severity != report.Info {
						t.Errorf("node: %s", fmt.Sprint(f.Code, f.Subject, f.Message))
					}
				}
			})
		}
	}
}
