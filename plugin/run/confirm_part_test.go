// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"context"
	"os"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// TestAPartOfANodeIsReadFirst: of a node what one Service needs is read, and the whole where something is wrong, or
// where what was left out decides.
func TestAPartOfANodeIsReadFirst(t *testing.T) {
	lost := without("-A KUBE-SERVICES")
	for _, tt := range []struct {
		name         string
		states       []state
		cut          bool // a chain that all packets meet is among what was left out
		parts, reads int  // reads of parts, and all reads
		want         report.Verdict
	}{
		{name: "right at once", states: []state{{}}, parts: 1, reads: 1, want: report.Match},
		{name: "wrong, and so is the whole", states: []state{{rules: lost}}, parts: 1, reads: 2, want: report.Mismatch},
		{
			name: "wrong at first: a sync was in progress", states: []state{{rules: lost}, {}}, parts: 1, reads: 2,
			want: report.Match,
		},
		{name: "what was left out decides", states: []state{{}}, cut: true, parts: 1, reads: 2, want: report.Match},
		{
			name: "what was left out decides, and the whole is wrong", states: []state{{rules: lost}}, cut: true, parts: 1,
			reads: 3, want: report.Mismatch,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMoving(t, tt.states)
				s := m.session()
				parts := 0
				s.part = func(ctx context.Context, node string, services []types.NamespacedName) (*snapshot.Node, error) {
					parts++
					if len(services) != 1 || services[0].Name != "frontend" {
						t.Errorf("a part for %v", services)
					}
					files, err := m.Read(ctx, node, nil)
					if err != nil || !tt.cut {
						return files, err
					}
					return files.With(snapshot.NFTDumpFile, cutDump(t)), nil
				}
				reports, err := s.Judge(t.Context(), Task{Nodes: []string{"worker-1"}, Request: frontendOfShop})
				if err != nil {
					t.Fatal(err)
				}
				if got := int(m.reads.Load()); parts != tt.parts || got != tt.reads {
					t.Errorf("%d parts and %d readings, want %d and %d", parts, got, tt.parts, tt.reads)
				}
				if reports[0].Verdict != tt.want || reports[0].Whole != "" {
					t.Errorf("%s, want %s: %+v", reports[0].Verdict, tt.want, reports[0])
				}
			})
		})
	}
}

// cutDump is a dump of a table of somebody's, of whose chains none was read.
func cutDump(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile("../../trace/nftables/testdata/extra.nl")
	if err != nil {
		t.Fatal(err)
	}
	cut := bytes.Replace(data, []byte(`"generation"`),
		[]byte(`"parts":[{"family":"ip","name":"filter"},{"family":"inet","name":"extra"}],"generation"`), 1)
	if bytes.Equal(cut, data) {
		t.Fatal("the header has no generation")
	}
	return cut
}
