// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"reflect"
	"slices"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// TestCoverage: what a file would have told is not covered without it, and a file that a collector looked for and that
// does not exist on the node tells that there is nothing.
func TestCoverage(t *testing.T) {
	all := []string{
		"rules", "routes", "routing policy", "settings", "bridges", "neighbours", "ends of tunnels",
		"programs of tc and BPF", "IPsec policies",
	}
	looked := func(do func(w *capturedNode)) func(w *capturedNode) {
		return func(w *capturedNode) {
			w.files[snapshot.ProgramsFile] = []byte("# none\n")
			do(w)
		}
	}
	for _, tt := range []struct {
		name string
		base string
		do   func(w *capturedNode)
		want report.Coverage
	}{
		{"all files", "v1.28-iptables", looked(func(*capturedNode) {}), report.Coverage{Judged: all}},
		{
			"of a helper that did not know all files", "v1.28-iptables", func(*capturedNode) {},
			report.Coverage{Judged: all[:5], NotJudged: []report.Gap{
				{Part: "neighbours", Files: []string{snapshot.NeighbourFile}},
				{Part: "ends of tunnels", Files: []string{snapshot.BridgeFDBFile}},
				{Part: "programs of tc and BPF", Files: []string{snapshot.ProgramsFile}},
				{Part: "IPsec policies", Files: []string{snapshot.XfrmFile}},
			}},
		},
		{
			"garbled rules of routing", "v1.28-iptables",
			looked(func(w *capturedNode) { w.files[snapshot.RuleFile] = []byte("{") }),
			report.Coverage{
				Judged: []string{
					"rules", "routes", "settings", "bridges", "neighbours", "ends of tunnels",
					"programs of tc and BPF", "IPsec policies",
				},
				NotJudged: []report.Gap{{Part: "routing policy", Files: []string{snapshot.RuleFile}}},
			},
		},
		{
			"looked for, and not on the node", "v1.28-iptables",
			looked(func(w *capturedNode) { delete(w.files, snapshot.LinkFile) }),
			report.Coverage{Judged: all},
		},
		{
			"settings of all interfaces alone", "v1.28-iptables",
			looked(func(w *capturedNode) {
				w.files[snapshot.SysctlFile] = []byte("net/ipv4/ip_forward=1\nnet/ipv4/conf/all/rp_filter=0\n")
			}),
			report.Coverage{
				Judged:    slices.Concat(all[:3], all[4:]),
				NotJudged: []report.Gap{{Part: "settings", Files: []string{snapshot.SysctlFile}}},
			},
		},
		{
			"made by hand, without a file", "iptables", func(w *capturedNode) { delete(w.files, snapshot.SysctlFile) },
			report.Coverage{Judged: []string{"rules", "routes"}, NotJudged: []report.Gap{
				{Part: "routing policy", Files: []string{snapshot.RuleFile, snapshot.Rule6File}},
				{Part: "settings", Files: []string{snapshot.SysctlFile}},
				{Part: "bridges", Files: []string{snapshot.LinkFile}},
				{Part: "neighbours", Files: []string{snapshot.NeighbourFile}},
				{Part: "ends of tunnels", Files: []string{snapshot.BridgeFDBFile}},
				{Part: "programs of tc and BPF", Files: []string{snapshot.ProgramsFile}},
				{Part: "IPsec policies", Files: []string{snapshot.XfrmFile}},
			}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, tt.base)
			tt.do(w)
			if got := w.run().Coverage; got == nil || !reflect.DeepEqual(*got, tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
