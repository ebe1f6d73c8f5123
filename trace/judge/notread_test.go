// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// capturedEnds are the files of a snapshot of connections from end to end, by node, those of pods below pods/.
type capturedEnds struct {
	t       *testing.T
	cluster *snapshot.Cluster
	files   map[string]map[string][]byte
}

const (
	endsClient = "node3"
	endsPod    = "shop/web-76bbf6d6cc-m4dxw"
)

// openEnds reads vxlan.tar.gz. Files that its helper did not know are as newer ones write them.
func openEnds(t *testing.T) *capturedEnds {
	t.Helper()
	s, objects := snap.Open(t, "../../testdata/endtoend/vxlan.tar.gz")
	out := &capturedEnds{t, objects, map[string]map[string][]byte{}}
	for _, node := range []string{"node1", "node2", endsClient} {
		n, err := s.Node(node)
		if err != nil {
			t.Fatal(err)
		}
		all := snap.Files(t, n)
		all[snapshot.ProgramsFile] = []byte("# nothing is attached\n")
		for _, pod := range n.Pods() {
			folder := "pods/" + strings.Replace(pod, "/", "_", 1) + "/"
			for _, name := range snapshot.PodFiles {
				if data, ok, err := n.Pod(pod).File(name); err != nil {
					t.Fatal(err)
				} else if ok {
					all[folder+name] = data
				}
			}
			all[folder+snapshot.ProgramsFile] = []byte("# nothing is attached\n")
			all[folder+snapshot.StoppedFile] = []byte("\n")
		}
		out.files[node] = all
	}
	return out
}

// change returns the snapshot with other files of a node; nil removes one.
func (c *capturedEnds) change(node string, files map[string][]byte) *capturedEnds {
	out := &capturedEnds{c.t, c.cluster, maps.Clone(c.files)}
	out.files[node] = maps.Clone(c.files[node])
	for name, data := range files {
		if data == nil {
			delete(out.files[node], name)
		} else {
			out.files[node][name] = data
		}
	}
	return out
}

// judged follows the connections of the client's pod to the ClusterIP of shop/web.
func (c *capturedEnds) judged() report.NodeReport {
	c.t.Helper()
	ends := &Ends{Client: endsClient, Pod: endsPod, Visited: map[string]*Visited{}}
	for node, files := range c.files {
		n := snapshot.NewNode(node, files)
		s, err := nodestate.Load(n)
		if err != nil {
			ends.Visited[node] = &Visited{Why: err.Error()}
			continue
		}
		ends.Visited[node] = &Visited{State: s, Files: n}
	}
	own := ends.Visited[endsClient]
	if own.State == nil {
		return report.NodeReport{Error: own.Why}
	}
	index := NewCluster(c.cluster)
	r := Node(index, own.State, Request{
		Services: []types.NamespacedName{{Namespace: "shop", Name: "web"}}, Matching: true,
		From:   &From{Kind: expect.FromPod, Pod: endsPod},
		Select: func(f expect.Frontend) bool { return f.Kind == expect.ClusterIP },
	})
	EndToEnd(index, ends, &r)
	return r
}

// undecided are files without which nothing is open about a connection of IPv4 over VXLAN and direct routes to pods.
var undecided = map[string]string{
	snapshot.ConntrackFile:    "connections that there were before",
	snapshot.TimeFile:         "when it was read",
	snapshot.NFTHooksFile:     "without it each order is tried",
	snapshot.WireGuardFile:    "no interface is of WireGuard",
	snapshot.JournalFile:      "what the command program has written is among the rules",
	snapshot.ProbesFile:       "connections that were made",
	snapshot.ResolvConfFile:   "the name is judged apart",
	snapshot.PacketFile:       "a socket listens",
	snapshot.SocketCountsFile: "without it no port is taken to be missing",
	snapshot.IPSetFile:        "no rule asks for a set",
	snapshot.IP6TablesFile:    "IPv6",
	snapshot.Route6File:       "IPv6",
	snapshot.Rule6File:        "IPv6",
	snapshot.ProcessesFile:    "kube-proxy itself",
	snapshot.ConfigzFile:      "kube-proxy itself",
	snapshot.MetricsFile:      "kube-proxy itself",
	snapshot.ProxyModeFile:    "kube-proxy itself",
	snapshot.HealthzFile:      "kube-proxy itself",
	snapshot.LivezFile:        "kube-proxy itself",
	snapshot.VersionsFile:     "kube-proxy itself",
	snapshot.ProxyConfigFile:  "kube-proxy itself",
	snapshot.FlagsFile:        "kube-proxy itself",

	snapshot.IP6TablesNFTFile: "IPv6", snapshot.IP6TablesLegacyFile: "IPv6",
}

// mayLack are files that a namespace may do without: where the collector lists what it could not read, one that is
// missing is not there.
var mayLack = []string{
	snapshot.IPTablesNFTFile, snapshot.IPTablesLegacyFile, snapshot.IPTablesFile, snapshot.NFTFile,
	snapshot.IPVSFile, snapshot.XfrmFile, snapshot.EbtablesFile,
}

// Each file of each node and each pod that a connection passes, removed and marked as unreadable in turn: it is never a
// Match that does not name the file. What a collector does not list is not known to be absent.
func TestWhatWasNotReadIsNotRight(t *testing.T) {
	base := openEnds(t)
	if r := base.judged(); r.Verdict != report.Match {
		t.Fatalf("%s %s: %+v", r.Verdict, r.Error, r.Findings)
	}
	for node := range base.files {
		n := snapshot.NewNode(node, base.files[node])
		folders := []string{""}
		for _, pod := range n.Pods() {
			folders = append(folders, "pods/"+strings.Replace(pod, "/", "_", 1)+"/")
		}
		for _, folder := range folders {
			names := snapshot.NodeFiles
			if folder != "" {
				names = snapshot.PodFiles
			}
			for _, name := range names {
				if folder == "" && name == snapshot.StoppedFile {
					continue // no endpoint has the host network
				}
				base.without(node, folder, name)
			}
		}
	}
}

// without judges the snapshot without a file: removed, of a snapshot made by hand, and unreadable.
func (c *capturedEnds) without(node, folder, name string) {
	c.t.Helper()
	if undecided[name] != "" || folder == "" && name == snapshot.ListenFile { // no endpoint has the node's namespace
		return
	}
	unread := func(data string) map[string][]byte {
		return map[string][]byte{folder + name: nil, folder + snapshot.UnreadFile: []byte(data)}
	}
	ways := map[string]map[string][]byte{}
	// A person gives the rules of the backends that the node has (docs/snapshots.md).
	if !nodestate.IsRules(name) && name != snapshot.IPVSFile && name != snapshot.UnreadFile {
		ways["by hand"] = map[string][]byte{folder + name: nil, folder + snapshot.UnreadFile: nil}
	}
	if name != snapshot.UnreadFile {
		ways["unreadable"] = unread(`{"` + name + `":"permission denied"}`)
	}
	if !slices.Contains(mayLack, name) && name != snapshot.UnreadFile && c.files[node][folder+name] != nil {
		ways["removed"] = map[string][]byte{folder + name: nil}
	}
	for how, files := range ways {
		r := c.change(node, files).judged()
		named := r.Coverage != nil && slices.ContainsFunc(r.Coverage.NotJudged, func(g report.Gap) bool {
			return slices.Contains(g.Files, name)
		})
		if r.Error == "" && r.Verdict != report.Unknown && !named {
			c.t.Errorf("%s, %s%s, %s: %s", node, folder, name, how, r.Verdict)
		}
	}
}
