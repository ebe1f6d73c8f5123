// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// threeNodes is a cluster whose nodes are those of a snapshot, but for one that cannot be read.
type threeNodes struct {
	*snapshot.Snapshot

	objects *snapshot.Cluster
	lost    string
}

func (n *threeNodes) Objects(context.Context) (*snapshot.Cluster, error) { return n.objects, nil }

func (n *threeNodes) Proxied(context.Context, *snapshot.Cluster) (*snapshot.Cluster, error) {
	c := *n.objects
	return &c, nil
}

func (n *threeNodes) Narrowed() error { return nil }

func (n *threeNodes) Pods(context.Context, *snapshot.Cluster, cluster.Pods) error { return nil }

func (n *threeNodes) Known(*snapshot.Cluster) []string { return n.NodeNames() }
func (n *threeNodes) Release(string)                   {}
func (n *threeNodes) Close()                           {}

func (n *threeNodes) Read(_ context.Context, node string, _ []string) (*snapshot.Node, error) {
	if node == n.lost {
		return nil, errors.New("no route to host")
	}
	return n.Node(node)
}

// TestCompareNodesOfACluster: two nodes of a running cluster are read side by side; one that cannot be read is said,
// and nothing is claimed of the other.
func TestCompareNodesOfACluster(t *testing.T) {
	capture, objects := snap.Open(t, "../../testdata/endtoend/vxlan.tar.gz")
	web := func(string) Request {
		return Request{Services: []types.NamespacedName{{Namespace: "shop", Name: "web"}}, Matching: true, Steps: true}
	}
	for _, lost := range []string{"", "node2"} {
		synctest.Test(t, func(t *testing.T) {
			n := &threeNodes{capture, objects, lost}
			s := &Session{
				index: &objectIndex{}, config: Config{Parallel: 2, Helper: launch.Options{Timeout: time.Minute}},
				source: n, nodes: n, Objects: objects, live: true,
				Progress: NewProgress(terminal.NewStream(io.Discard, os.Getenv)),
			}
			d, err := s.CompareNodes(t.Context(), "node1", "node2", web)
			switch {
			case err != nil:
				t.Error(err)
			case lost != "" && (d.After.Error == "" || d.Before.Error != "" || len(d.Changes)+len(d.Paths) > 0):
				t.Errorf("%s is lost: %+v", lost, d)
			case lost == "" && (d.Before.Verdict != report.Match || d.After.Verdict != report.Match || len(d.Paths) > 0 ||
				len(d.Changes) == 0):
				t.Errorf("%+v", d)
			}
		})
	}
}
