// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// noInspector is for commands that look at the API alone.
type noInspector struct{}

func (noInspector) Known(objects *snapshot.Cluster) []string { return nodeNames(objects) }

func (noInspector) Inspect(_ context.Context, node string) (*snapshot.Node, error) {
	return nil, fmt.Errorf("node %s is not to be inspected", node)
}

func (noInspector) Release(string) {}
func (noInspector) Close()         {}

// podInspector inspects the nodes of a cluster by helper pods.
type podInspector struct {
	*scene
	launcher *launch.Launcher

	mu       sync.Mutex
	sessions map[string]*launch.Session
}

func (p *podInspector) Known(objects *snapshot.Cluster) []string { return nodeNames(objects) }

func (p *podInspector) Inspect(ctx context.Context, node string) (*snapshot.Node, error) {
	s, err := p.session(ctx, node)
	if err != nil {
		return nil, err
	}
	return collect(ctx, s, p.files)
}

// session returns the helper of a node, and launches it at the first time.
func (p *podInspector) session(ctx context.Context, node string) (*launch.Session, error) {
	p.mu.Lock()
	s := p.sessions[node]
	p.mu.Unlock()
	if s != nil {
		return s, nil
	}
	if i := slices.IndexFunc(p.objects.Nodes, func(n *corev1.Node) bool { return n.Name == node }); i >= 0 {
		if system := p.objects.Nodes[i].Labels[corev1.LabelOSStable]; system != "" && system != "linux" {
			return nil, fmt.Errorf("node %s runs %s: this tool reads Linux nodes", node, system)
		}
	}
	s, err := p.launcher.Open(ctx, node)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sessions == nil {
		p.sessions = map[string]*launch.Session{}
	}
	p.sessions[node] = s
	return s, nil
}

func (p *podInspector) Release(node string) {
	p.mu.Lock()
	s := p.sessions[node]
	delete(p.sessions, node)
	p.mu.Unlock()
	if s == nil {
		return
	}
	if err := s.Close(); err != nil {
		p.progress.note("%v", err)
	}
}

func (p *podInspector) Close() {
	p.mu.Lock()
	nodes := slices.Collect(maps.Keys(p.sessions))
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() { p.Release(n) })
	}
	wg.Wait()
	p.launcher.Close()
}

// localInspector inspects the machine that it runs on.
type localInspector struct {
	*scene
	options launch.Options
	serve   launch.Serve
}

// Known names the Node that this machine is: by its host name, else by its addresses.
func (l *localInspector) Known(objects *snapshot.Cluster) []string {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	own := map[netip.Addr]bool{}
	if addrs, err := net.InterfaceAddrs(); err == nil {
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				own[p.Addr().Unmap()] = true
			}
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

func (l *localInspector) Inspect(ctx context.Context, node string) (*snapshot.Node, error) {
	s, err := launch.Local(ctx, node, l.options, l.serve)
	if err != nil {
		return nil, err
	}
	files, err := collect(ctx, s, l.files)
	if e := s.Close(); err == nil {
		err = e
	}
	return files, err
}

func (*localInspector) Release(string) {}
func (*localInspector) Close()         {}

// collect reads a node; want are the names of files, nil is all that there are.
func collect(ctx context.Context, s *launch.Session, want []string) (*snapshot.Node, error) {
	files, unread, err := s.Collect(ctx, want)
	if err != nil {
		return nil, err
	}
	files[snapshot.UnreadFile] = snapshot.EncodeUnread(unread)
	return snapshot.NewNode(s.Node(), files), nil
}

func nodeNames(objects *snapshot.Cluster) []string {
	names := make([]string, 0, len(objects.Nodes))
	for _, n := range objects.Nodes {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return names
}
