// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"io"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// attachTime is what it takes to have a helper's container and to be attached to it, at the least: the kubelet needs
// longer to start one.
const attachTime = 500 * time.Millisecond

// helpers are real ones in this process, which read this machine; what is judged is a captured node of the same name.
type benchReader struct {
	snapshotReader
	helpers map[string]*launch.Helper
}

func (r *benchReader) helper(ctx context.Context, node string) (*launch.Helper, error) {
	if h := r.helpers[node]; h != nil {
		return h, nil
	}
	time.Sleep(attachTime)
	return launch.Local(ctx, node, launch.Options{}, func(ctx context.Context, in io.Reader, out io.Writer) error {
		return nodehelper.Serve(ctx, in, out, nodehelper.Options{Root: "/"})
	})
}

// Read has the machine read, and returns the captured node.
func (r *benchReader) Read(ctx context.Context, node string, want []string) (*snapshot.Node, error) {
	h, err := r.helper(ctx, node)
	if err != nil {
		return nil, err
	}
	if _, err := collect(ctx, h, want, func(context.Context) error { return nil }); err != nil {
		return nil, err
	}
	return r.snapshotReader.Read(ctx, node, want)
}

// What a connection from end to end costs, beside the path on the client's node alone: two nodes, and a pod on each,
// whose network namespaces are read. Helpers and their readings are real. Nodes are machines of their own, and are read
// side by side: here one after the other, and the longer one counts.
//
//	go test -run '^$' -bench EndToEnd ./plugin/run
func BenchmarkEndToEnd(b *testing.B) {
	testutil.NeedRoot(b, "ip", "iptables-nft", "nsenter")
	capture, objects := snap.Open(b, "../../testdata/endtoend/vxlan.tar.gz")
	const pod, other = "shop/web-76bbf6d6cc-m4dxw", "shop/other"
	pods := map[string]*testutil.Namespace{}
	addresses := map[string]netip.Addr{
		pod: netip.MustParseAddr("10.251.1.5"), other: netip.MustParseAddr("10.251.2.5"),
	}
	for name, a := range addresses {
		pods[name] = testutil.NewNamespace(b)
		pods[name].Run(b, "ip", "addr", "add", a.String()+"/32", "dev", "lo")
		pods[name].Run(b, "iptables-nft", "-A", "INPUT", "-j", "ACCEPT")
	}
	params := func(name string) []wirePod {
		return []wirePod{{name: name, params: wire.PodParams{Addresses: []netip.Addr{addresses[name]}}}}
	}
	e := &Ends{
		Clients: []string{"node3"}, Pod: pod, named: pod, of: types.NamespacedName{Namespace: "shop", Name: "web"}, all: true,
		pods: map[string][]wirePod{"node3": params(pod), "node1": params(other)},
	}
	request := Request{Services: []types.NamespacedName{e.of}, From: &RequestOrigin{Kind: "pod", Pod: pod}, Matching: true}
	session := func() *Session {
		r := &benchReader{snapshotReader: snapshotReader{capture}, helpers: map[string]*launch.Helper{}}
		for _, node := range []string{"node1", "node3"} {
			h, err := r.helper(b.Context(), node)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = h.Close() })
			r.helpers[node] = h
		}
		return &Session{
			Objects: objects, index: &objectIndex{}, live: true, nodes: r, helper: r.helper,
			Progress: NewProgress(terminal.NewStream(io.Discard, os.Getenv)), slots: newSlots(), others: &others{},
		}
	}
	s := session()
	one := func() {
		files, err := s.nodes.Read(b.Context(), "node3", snapshot.NodeFiles)
		if err != nil {
			b.Fatal(err)
		}
		n := loadNode("node3", files)
		s.judgeNode(&n, objects, request)
	}
	read := func(node string) *judge.Visited {
		files, unread, err := s.readEnd(b.Context(), e, node, snapshot.NodeFiles)
		if err != nil || len(unread) > 0 {
			b.Fatalf("%s was not read: %v %v", node, err, unread)
		}
		n := loadNode(node, files)
		return &judge.Visited{State: n.state, Files: files, Pods: unread}
	}
	timed := func(do func()) time.Duration {
		begin := time.Now()
		do()
		return time.Since(begin)
	}
	var ones, boths []time.Duration
	for b.Loop() {
		ones = append(ones, timed(one))
		visited := map[string]*judge.Visited{}
		client := timed(func() { visited["node3"] = read("node3") })
		endpoint := timed(func() { visited["node1"] = read("node1") })
		judged := timed(func() { s.followed(e.judged("node3", visited), objects, request, nil) })
		boths = append(boths, max(client, endpoint)+judged)
	}
	slices.Sort(ones)
	slices.Sort(boths)
	a, c := ones[len(ones)/2], boths[len(boths)/2]
	b.ReportMetric(float64(a.Milliseconds()), "ms/node")
	b.ReportMetric(float64(c.Milliseconds()), "ms/end-to-end")
	b.ReportMetric(float64(c)/float64(a), "ratio-without-attaching")
	b.ReportMetric(float64(c+attachTime)/float64(a+attachTime), "ratio")
}
