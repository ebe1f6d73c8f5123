// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// A file of a healthy node that is missing, empty, cut off, or a page in place of what it should be, makes nothing
// wrong: what depends on it is not known. The files were once read one by one for that, and the list of virtual servers
// was not among them.
func TestAFileThatIsSpoiledMakesNothingWrong(t *testing.T) {
	for _, at := range []struct{ name, node string }{
		{"iptables", "node1"},
		{"iptables-legacy", "node1"},
		{"ipvs", "node1"},
		{"nftables", "node1"},
		{"real-2node-iptables", "node1"},
		{"real-2node-nftables", "node1"},
		{"v1.28-iptables", "node1"},
		{"v1.31-nftables", "node3"},
	} {
		t.Run(at.name, func(t *testing.T) {
			t.Parallel()
			c, n := openSnapshot(t, filepath.Join("testdata", "snapshots", at.name), at.node)
			files := snap.FilesAndUnread(t, n)
			judged := func(files map[string][]byte) report.NodeReport {
				return Files(c, snapshot.NewNode(at.node, files), Request{Backwards: true, PerPathService: true})
			}
			if r := judged(files); r.Verdict != report.Match {
				t.Fatalf("it is %s", r.Verdict)
			}
			for _, file := range slices.Sorted(maps.Keys(files)) {
				for how, data := range snap.Spoiled(files[file]) {
					// A collector that lists what it could not read has found nothing to list, no rules, or no sets.
					rules := nodestate.IsRules(file) || file == snapshot.IPSetFile
					if files[snapshot.UnreadFile] != nil && (how == "empty" || rules && how != "a page") {
						continue
					}
					spoiled := maps.Clone(files)
					if spoiled[file] = data; data == nil {
						delete(spoiled, file)
					}
					if r := judged(spoiled); r.Verdict == report.Mismatch || r.Verdict == report.Warning {
						t.Errorf("%s %s: %s %+v", file, how, r.Verdict, r.Summary)
						for _, f := range slices.Concat(r.Findings, wrongOf(&r)) {
							if f.Severity == report.Error || f.Severity == report.Warn {
								t.Logf("%s %s: %s", f.Code, f.Subject, f.Message)
								break
							}
						}
					}
				}
			}
		})
	}
}

// wrongOf are the findings of the paths that are not right.
func wrongOf(r *report.NodeReport) (out []report.Finding) {
	for i := range r.Paths {
		out = append(out, r.Paths[i].Findings...)
	}
	return out
}
