// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/maruel/natural"

	"github.com/svcproxy/kubectl-svcproxy/internal/ownaddr"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// NodeReader reads the files of nodes: their rules, addresses, routes, and kube-proxy's state.
type NodeReader interface {
	// Known names the nodes that can be read, in order; nil if that is unknown.
	Known(objects *snapshot.Cluster) []string
	// Read returns one node's files. want are the names of the files that suffice; nil: all files. An error is of this
	// node only: others can still be read.
	Read(ctx context.Context, node string, want []string) (*snapshot.Node, error)
	// Release ends what Read began on a node, which will not be read again.
	Release(node string)
	// Close releases all nodes.
	Close()
}

// snapshotReader reads the nodes of a snapshot.
type snapshotReader struct{ *snapshot.Snapshot }

func (r snapshotReader) Known(*snapshot.Cluster) []string { return r.NodeNames() }

func (r snapshotReader) Read(_ context.Context, node string, _ []string) (*snapshot.Node, error) {
	return r.Node(node)
}

// Release does nothing.
func (snapshotReader) Release(string) {}

// Close does nothing.
func (snapshotReader) Close() {}

// noReader is for commands that only read the API.
type noReader struct{}

// Known names the nodes of the cluster.
func (noReader) Known(objects *snapshot.Cluster) []string { return nodeNames(objects) }

// Read fails.
func (noReader) Read(_ context.Context, node string, _ []string) (*snapshot.Node, error) {
	return nil, snapshot.ErrorOf(node, errors.New("this command does not read nodes"))
}

// Release does nothing.
func (noReader) Release(string) {}

// Close does nothing.
func (noReader) Close() {}

// podReader reads the nodes of a cluster by helper pods.
type podReader struct {
	large    large
	launcher *launch.Launcher
	// system returns a node's operating system; "" where that is not known.
	system func(node string) string
	note   func(format string, args ...any)

	mu      sync.Mutex
	helpers map[string]*launch.Helper
}

func (r *podReader) Known(objects *snapshot.Cluster) []string { return nodeNames(objects) }

func (r *podReader) Read(ctx context.Context, node string, want []string) (*snapshot.Node, error) {
	h, err := r.helper(ctx, node)
	if err != nil {
		return nil, err
	}
	return collect(ctx, h, want, func(ctx context.Context) error { return r.large.take(ctx, node) })
}

// probe has the node's helper make connections.
func (r *podReader) probe(ctx context.Context, node string, params wire.ProbeParams) ([]byte, error) {
	h, err := r.helper(ctx, node)
	if err != nil {
		return nil, err
	}
	return h.Probe(ctx, params)
}

// judge has the node's helper judge it; nil without an error where that is none that does. A node without a helper is
// an unreachableError.
func (r *podReader) judge(
	ctx context.Context, node string, params func() (*wire.JudgeParams, error),
) (map[string]snapshot.Packed, error) {
	h, err := r.helper(ctx, node)
	if err != nil {
		return nil, unreachableError{err}
	}
	if !h.Judges() {
		return nil, nil
	}
	p, err := params()
	if err != nil {
		return nil, err
	}
	files, err := h.Judge(ctx, p)
	if _, remote := errors.AsType[*wire.RemoteError](err); err != nil && !remote {
		r.Release(node) // the connection is no more: who reads the node makes a new one
	}
	return files, err
}

// unreachableError is why there is no helper on a node.
type unreachableError struct{ error }

// helper returns the helper of a node, and launches it at the first time.
func (r *podReader) helper(ctx context.Context, node string) (*launch.Helper, error) {
	r.mu.Lock()
	h := r.helpers[node]
	r.mu.Unlock()
	if h != nil {
		return h, nil
	}
	if system := r.system(node); system != "" && system != "linux" {
		return nil, snapshot.ErrorOf(node, fmt.Errorf("the operating system is %s: this tool reads Linux nodes", system))
	}
	h, err := r.launcher.Open(ctx, node)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.helpers == nil {
		r.helpers = map[string]*launch.Helper{}
	}
	r.helpers[node] = h
	return h, nil
}

func (r *podReader) Release(node string) {
	r.large.release(node)
	r.mu.Lock()
	h := r.helpers[node]
	delete(r.helpers, node)
	r.mu.Unlock()
	if h == nil {
		return
	}
	if err := h.Close(); err != nil {
		r.note("%v", err)
	}
}

func (r *podReader) Close() {
	r.mu.Lock()
	nodes := slices.Collect(maps.Keys(r.helpers))
	r.mu.Unlock()
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() { r.Release(n) })
	}
	wg.Wait()
	r.launcher.Close()
}

// systemOf returns the operating system of a node, as its Node object has it.
func (s *Session) systemOf(node string) string {
	for _, n := range s.Objects.Nodes {
		if n.Name == node {
			return n.Labels[corev1.LabelOSStable]
		}
	}
	return ""
}

// localReader reads the machine that it runs on.
type localReader struct {
	options launch.Options
	serve   launch.Serve
}

// Known names the Node that this machine is: by its host name, else by its addresses.
func (*localReader) Known(objects *snapshot.Cluster) []string {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	own := map[netip.Addr]bool{}
	if addrs, err := ownaddr.List(); err == nil {
		for _, a := range addrs {
			own[a] = true
		}
	}
	return whichNode(objects, strings.ToLower(host), own)
}

// whichNode finds the Node of a machine.
func whichNode(objects *snapshot.Cluster, host string, own map[netip.Addr]bool) []string {
	for _, is := range []func(*corev1.Node) bool{
		func(n *corev1.Node) bool { return n.Name == host },
		func(n *corev1.Node) bool { return n.Labels[corev1.LabelHostname] == host },
		func(n *corev1.Node) bool {
			return slices.ContainsFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool {
				ip, err := netip.ParseAddr(a.Address)
				return a.Type == corev1.NodeInternalIP && err == nil && own[ip.Unmap()]
			})
		},
	} {
		if i := slices.IndexFunc(objects.Nodes, is); i >= 0 {
			return []string{objects.Nodes[i].Name}
		}
	}
	return nil
}

// helper starts a helper in this process.
func (r *localReader) helper(ctx context.Context, node string) (*launch.Helper, error) {
	return launch.Local(ctx, node, r.options, r.serve)
}

func (r *localReader) Read(ctx context.Context, node string, want []string) (*snapshot.Node, error) {
	h, err := r.helper(ctx, node)
	if err != nil {
		return nil, err
	}
	files, err := collect(ctx, h, want, nil)
	if e := h.Close(); err == nil {
		err = e
	}
	return files, err
}

// probe makes connections from this machine.
func (r *localReader) probe(ctx context.Context, node string, params wire.ProbeParams) ([]byte, error) {
	h, err := r.helper(ctx, node)
	if err != nil {
		return nil, err
	}
	data, err := h.Probe(ctx, params)
	if e := h.Close(); err == nil {
		err = e
	}
	return data, err
}

func (*localReader) Release(string) {}
func (*localReader) Close()         {}

// helperReader reads a node by a helper that stays after the node is released, and that has to undo changes if the
// run is interrupted: the end of the context does not interrupt an answer, as that would end the connection.
type helperReader struct {
	NodeReader
	helper *launch.Helper
}

func (r helperReader) Read(ctx context.Context, _ string, want []string) (*snapshot.Node, error) {
	return collect(context.WithoutCancel(ctx), r.helper, want, nil)
}

// Release does nothing: the helper is closed by its owner.
func (helperReader) Release(string) {}

// probe has the helper make connections.
func (r helperReader) probe(ctx context.Context, _ string, params wire.ProbeParams) ([]byte, error) {
	return r.helper.Probe(context.WithoutCancel(ctx), params)
}

// collect reads a node; want are the names of files, nil is all that there are. large is called before a large answer
// is taken into memory; it may be nil.
func collect(
	ctx context.Context, h *launch.Helper, want []string, large func(context.Context) error,
) (*snapshot.Node, error) {
	return filesOf(h)(h.Collect(ctx, want, large))
}

// filesOf makes a node's files of what its helper has collected.
func filesOf(
	h *launch.Helper,
) func(files map[string]snapshot.Packed, unread map[string]string, err error) (*snapshot.Node, error) {
	return func(files map[string]snapshot.Packed, unread map[string]string, err error) (*snapshot.Node, error) {
		if err != nil {
			return nil, err
		}
		files[snapshot.UnreadFile] = snapshot.Pack(snapshot.EncodeUnread(unread))
		return snapshot.NewPackedNode(h.Node(), files), nil
	}
}

// nodeNames returns the names of the cluster's nodes, worker-2 before worker-10.
func nodeNames(objects *snapshot.Cluster) []string {
	names := make([]string, 0, len(objects.Nodes))
	for _, n := range objects.Nodes {
		names = append(names, n.Name)
	}
	slices.SortFunc(names, natural.Compare)
	return names
}
