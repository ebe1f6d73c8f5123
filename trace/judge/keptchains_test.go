// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Where a restart of kube-proxy does not write an endpoint's chain again, a command writes that chain alone. The table
// was deleted for it: no Service of the node worked until the restart was over.
func TestARestartThatKeepsChains(t *testing.T) {
	for version, want := range map[string]string{
		"v1.32.13": "", "v1.33.0": "at once", "v1.35.8": "at once", "v1.36.0": "", "": "when",
	} {
		t.Run(version, func(t *testing.T) {
			w := openCaptured(t, "nftables")
			if version == "" {
				delete(w.files, snapshot.MetricsFile)
			} else {
				w.says(version)
			}
			w.emptied("endpoint-", "/8080")
			seen := 0
			for _, p := range w.run().Paths {
				for _, f := range p.Findings {
					k := slices.IndexFunc(f.Commands, func(c report.Command) bool {
						return strings.HasPrefix(c.Line, "nft 'flush chain ip kube-proxy endpoint-")
					})
					if !strings.Contains(f.Message, "nft kube-proxy endpoint-") ||
						!strings.Contains(f.Message, " is empty") {
						continue
					}
					seen++
					got := ""
					if k >= 0 {
						if got = "at once"; f.Commands[k].When != "" {
							got = "when"
						}
					}
					if got != want || k > 0 || want == "at once" && len(f.Commands) > 1 || strings.Contains(remedyText(&f), "delete") {
						t.Errorf("%s: %q %+v", f.Message, got, f.Commands)
					}
				}
			}
			if seen == 0 {
				t.Error("no chain is said to be empty")
			}
		})
	}
}
