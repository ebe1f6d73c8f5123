// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// TestOneStateIsJudgedByMany: judging changes nothing, so that the same state and objects give the same report, again
// and by eight at once.
func TestOneStateIsJudgedByMany(t *testing.T) {
	for _, name := range []string{"iptables", "iptables-legacy", "nftables", "ipvs", "real-2node-nftables"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, files := openSnapshot(t, "testdata/snapshots/"+name, "node1")
			state, err := nodestate.Load(files)
			if err != nil {
				t.Fatal(err)
			}
			objects := NewCluster(c)
			judged := func() []byte {
				r := Node(objects, state, Request{Backwards: true, Matching: true, PerPathService: true, Steps: true})
				data, err := json.Marshal(r)
				if err != nil {
					t.Error(err)
				}
				return data
			}
			first := judged()
			if !bytes.Contains(first, []byte(`"verdict":"Match"`)) {
				t.Fatalf("nothing was judged: %.300s", first)
			}
			if again := judged(); !bytes.Equal(first, again) {
				t.Error("the second report differs")
			}
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					if r := judged(); !bytes.Equal(first, r) {
						t.Error("a report that was made beside others differs")
					}
				})
			}
			wg.Wait()
		})
	}
}

// TestAReportKeepsNoStateAlive: of nodes of 5,000 Services with something wrong nothing is kept but the report.
func TestAReportKeepsNoStateAlive(t *testing.T) {
	testutil.Long(t)
	c, files := openSnapshot(t, "testdata/snapshots/scale-iptables", "node1")
	saved, _, err := files.File(snapshot.IPTablesFile)
	if err != nil {
		t.Fatal(err)
	}
	// A DNAT that leads elsewhere, and a chain without its rules, so that rules are quoted.
	broken := strings.Replace(string(saved), "-j DNAT --to-destination 10.", "-j DNAT --to-destination 11.", 20)
	if broken == string(saved) {
		t.Fatal("the fault changes nothing")
	}
	files = files.With(snapshot.IPTablesFile, []byte(broken))
	objects := NewCluster(c)
	var reports []report.NodeReport
	judge := func() {
		state, err := nodestate.Load(files)
		if err != nil {
			t.Fatal(err)
		}
		r := Node(objects, state, Request{Backwards: true, PerPathService: true, Steps: true})
		if len(r.Paths) == 0 || len(r.Paths[0].Steps) == 0 || len(r.Paths[0].Findings) == 0 {
			t.Fatalf("nothing is wrong: %+v", r.Summary)
		}
		reports = append(reports, r)
	}
	alive := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what the first one found to finalise
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	judge()
	judge()
	before := alive()
	const more = 2
	for range more {
		judge()
	}
	grown := alive() - before
	// A node's rules take some 50 MB; what its report holds is in proportion to what is wrong.
	perNode := grown / more
	t.Logf("%d KB a node", perNode>>10)
	if perNode > 1<<20 {
		t.Errorf("a node's report keeps %d KB alive", perNode>>10)
	}
	runtime.KeepAlive(reports)
}
