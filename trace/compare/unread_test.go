// SPDX-License-Identifier: Apache-2.0

package compare_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/trace/compare"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// mayBeSo tells whether a file may be as it is on a node that has less: where one ends whose lines say something by
// themselves nobody can tell; and a collector that lists what it could not read has found nothing to print, or no
// rules.
func mayBeSo(file, how string, listsUnread bool) bool {
	switch {
	case listsUnread && (how == "empty" || nodestate.IsRules(file) && how != "a page"):
		return true
	case how == "cut":
		return slices.Contains([]string{
			snapshot.IPSetFile, snapshot.IPVSFile, snapshot.ListenFile, snapshot.VersionsFile, snapshot.ProcessesFile,
			snapshot.UnreadFile,
		}, file)
	}
	return false
}

// Missing data never counts as absent: a file that is missing, cut off, or not what it should be, on one side makes
// no difference of rules, settings and the like; what cannot be compared for it is named.
func TestAFileThatWasNotReadMakesNoDifference(t *testing.T) {
	for _, x := range []struct{ dir, node string }{
		{"snapshots/iptables", "node1"},
		{"snapshots/v1.28-iptables", "node1"},
		{"snapshots/nftables", "node1"},
		{"snapshots/v1.31-nftables", "node3"},
		{"snapshots/ipvs", "node1"},
	} {
		t.Run(x.dir, func(t *testing.T) {
			t.Parallel()
			whole := open(t, x.dir, x.node)
			was := whole.facts(t, alone)
			_, listsUnread := whole.files[snapshot.UnreadFile]
			for _, file := range slices.Sorted(maps.Keys(whole.files)) {
				for how, data := range snap.Spoiled(whole.files[file]) {
					now := *whole
					now.files = maps.Clone(whole.files)
					if now.files[file] = data; data == nil {
						delete(now.files, file)
					}
					if mayBeSo(file, how, listsUnread) {
						continue
					}
					is := now.facts(t, alone)
					for _, d := range []struct {
						order string
						lines []string
					}{{"spoiled after", changesOf(was, is)}, {"spoiled before", changesOf(is, was)}} {
						if len(d.lines) > 0 {
							t.Errorf("%s %s, %s:\n\t%s", file, how, d.order, strings.Join(d.lines[:min(len(d.lines), 5)], "\n\t"))
						}
					}
				}
			}
		})
	}
}

// Sets of nftables are in the file of its rules: where that was not collected, they did not go.
func TestSetsThatWereNotCollectedDidNotGo(t *testing.T) {
	whole := open(t, "snapshots/v1.30-iptables", "node1") // which is judged without it
	now := *whole
	now.files = maps.Clone(whole.files)
	for _, file := range []string{snapshot.NFTFile, snapshot.UnreadFile} {
		delete(now.files, file)
		delete(whole.files, file)
	}
	whole.files[snapshot.NFTFile] = []byte(`{"nftables":[{"table":{"family":"inet","name":"x","handle":1}},` +
		`{"chain":{"family":"inet","table":"x","name":"i","handle":3,"type":"filter","hook":"input","prio":0,` +
		`"policy":"accept"}},{"set":{"family":"inet","name":"s","table":"x","type":"ipv4_addr","handle":2,"elem":["192.0.2.1"]}}]}`)
	d := compare.Captures(whole.facts(t, alone), now.facts(t, alone))
	if got := lines(&d); !slices.Contains(got, "not compared: sets: after: nftables: not collected") {
		t.Errorf("it says %q", got)
	}
	for _, line := range changesOf(whole.facts(t, alone), now.facts(t, alone)) {
		if strings.HasPrefix(line, "sets ") {
			t.Error(line)
		}
	}
}

// changesOf are the differences of parts.
func changesOf(a, b *compare.Facts) []string {
	d := compare.Captures(a, b)
	return slices.DeleteFunc(lines(&d), func(l string) bool {
		return strings.HasPrefix(l, "finding ") || strings.HasPrefix(l, "not compared: ")
	})
}

// Kinds of API objects that one side has not read were once passed over in silence.
func TestObjectsThatWereNotReadAreNamed(t *testing.T) {
	whole := open(t, "snapshots/iptables", "node1").objects
	without := *whole
	without.Missing, without.Nodes = append(slices.Clone(whole.Missing), "nodes"), nil
	without.Unread = map[string]string{"cluster/nodes.json": "it is not JSON"}
	changes, left, not := compare.Objects(whole, &without)
	if len(changes)+left > 0 || len(not) != 1 || not[0].Part != compare.PartNodes ||
		not[0].Why != "after: cluster/nodes.json: it is not JSON" {
		t.Errorf("%v %d %v", changes, left, not)
	}
}

// What broke is listed and counted, also where more paths differ than are listed.
func TestPathsThatBrokeAreListedFirst(t *testing.T) {
	path := func(i int, v report.Verdict, endpoint string) report.Path {
		return report.Path{
			Frontend: report.Frontend{Kind: "ClusterIP", Address: "10.96.0.1", Port: int32(i), Protocol: "TCP"},
			Origin:   report.Origin{Kind: "pod"}, Verdict: v,
			Actual: report.Actual{Outcomes: []report.Outcome{{
				Action: "DNAT", Endpoint: &report.Endpoint{Address: endpoint, Port: 80},
			}}},
		}
	}
	const paths = 7000
	before, after := report.NodeReport{Node: "node1"}, report.NodeReport{Node: "node1"}
	for i := range paths {
		before.Paths = append(before.Paths, path(i, report.Match, "10.244.1.1"))
		v := report.Match
		if i >= paths-10 {
			v = report.Mismatch
		}
		after.Paths = append(after.Paths, path(i, v, "10.244.1.2"))
	}
	n := compare.Captures(compare.Unread(before), compare.Unread(after))
	d := &report.Diff{Nodes: []report.NodeDiff{n}}
	compare.Count(d)
	if s := d.Summary; s.Paths != paths || s.Broke != 10 || len(n.Paths)+n.PathsLeft != paths ||
		n.Paths[0].After.Verdict != report.Mismatch || n.Paths[9].After.Verdict != report.Mismatch {
		t.Errorf("%+v, %d listed, the first %s", s, len(n.Paths), n.Paths[0].After.Verdict)
	}
}
