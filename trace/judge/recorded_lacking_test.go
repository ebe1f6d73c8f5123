// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/faultdata"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// TestRecordedFaultsWithLessOfTheAPI: a person may not be allowed to read all objects. Then a path whose connections
// failed is no Match, either, unless the reason is one that the files of its node alone do not show; and one whose
// connections worked is no Mismatch.
func TestRecordedFaultsWithLessOfTheAPI(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(recordedFaults, "*", "*.fault"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no fault is recorded: %v", err)
	}
	for _, lack := range []struct {
		name string
		of   func(c *snapshot.Cluster, node string)
	}{
		{"no pods", func(c *snapshot.Cluster, _ string) {
			c.Pods, c.Missing = nil, append(slices.Clone(c.Missing), "pods")
		}},
		{"no Nodes", func(c *snapshot.Cluster, _ string) {
			c.Nodes, c.Missing = nil, append(slices.Clone(c.Missing), "nodes")
		}},
		{"no Nodes, and the pods of one", func(c *snapshot.Cluster, node string) {
			c.Nodes, c.Missing = nil, append(slices.Clone(c.Missing), "nodes")
			c.Pods = slices.DeleteFunc(slices.Clone(c.Pods), func(p *corev1.Pod) bool { return p.Spec.NodeName != node })
		}},
		{"neither", func(c *snapshot.Cluster, _ string) {
			c.Nodes, c.Pods, c.Missing = nil, nil, append(slices.Clone(c.Missing), "nodes", "pods")
		}},
		{"one namespace", func(c *snapshot.Cluster, _ string) {
			c.Services = slices.DeleteFunc(slices.Clone(c.Services), func(s *corev1.Service) bool {
				return s.Namespace != faultdata.Namespace
			})
			c.EndpointSlices = slices.DeleteFunc(slices.Clone(c.EndpointSlices), func(s *discoveryv1.EndpointSlice) bool {
				return s.Namespace != faultdata.Namespace
			})
		}},
	} {
		t.Run(lack.name, func(t *testing.T) {
			t.Parallel()
			for _, file := range files {
				f, err := faultdata.Read(file)
				if err != nil {
					t.Fatal(err)
				}
				c, n := openFault(t, filepath.Join(filepath.Dir(file), "healthy"), f, nil)
				lack.of(c, f.Node)
				if strings.HasPrefix(f.From, "pod/") && len(c.Pods) == 0 {
					f.From = "10.245.2.10" // a pod is asked for by its name; without the right to read it, by its address
				}
				r := judgeOpened(t, f, c, n)
				if len(r.Paths) == 0 {
					t.Errorf("%s: no path: %s", filepath.Base(file), r.Error)
					continue
				}
				p := &r.Paths[0]
				switch {
				case f.Failed > 0 && !f.Beyond && !f.Aside && p.Verdict == report.Match:
					t.Errorf("%s: %d of %d fail, and it is a Match", filepath.Base(file), f.Failed, f.Connections)
				case f.Failed == 0 && p.Verdict == report.Mismatch:
					t.Errorf("%s: nothing fails, and it is %s %v", filepath.Base(file), p.Verdict, p.Codes())
				}
			}
		})
	}
}
