// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Ends are what a connection from end to end touches: the client's pod and node, and endpoints with their pods and
// nodes.
type Ends struct {
	Client string               // the client's node
	Pod    string               // namespace/name of the client's pod; "" where it has its node's network namespace
	named  string               // namespace/name of the client's pod
	of     types.NamespacedName // the Service
	pods   map[string][]wirePod // by node: the pods whose network namespaces are read
	follow map[netip.Addr]bool  // endpoints' addresses
	all    bool                 // every endpoint is followed
}

// wirePod is a pod as a helper is asked for it.
type wirePod struct {
	name   string // namespace/name
	params wire.PodParams
}

// MaxEndNodes is how many endpoints' nodes are read where all are asked for: each is in memory while paths are
// followed.
const MaxEndNodes = 16

// FindEnds finds what connections from a pod to a Service touch: without all, one endpoint on each of FewNodes nodes at
// most, the client's own first. It reads the pods of these nodes.
func (s *Session) FindEnds(ctx context.Context, from *Origin, target *cluster.Target, all bool) (*Ends, error) {
	e := &Ends{
		Client: from.Node, Pod: from.Pod, named: cmp.Or(from.Pod, from.HostPod), of: target.Name(),
		pods: map[string][]wirePod{}, follow: map[netip.Addr]bool{},
	}
	type endpoint struct {
		address   netip.Addr
		node, pod string
	}
	var list []endpoint
	for _, slice := range s.Objects.EndpointSlices {
		if slice.Namespace != target.Service.Namespace || slice.Labels["kubernetes.io/service-name"] !=
			target.Service.Name {
			continue
		}
		for i := range slice.Endpoints {
			x := &slice.Endpoints[i]
			out := endpoint{}
			if x.NodeName != nil {
				out.node = *x.NodeName
			}
			if t := x.TargetRef; t != nil && t.Kind == "Pod" {
				out.pod = slice.Namespace + "/" + t.Name
			}
			for _, text := range x.Addresses {
				if a, err := netip.ParseAddr(text); err == nil {
					out.address = a.Unmap()
					list = append(list, out)
				}
			}
		}
	}
	slices.SortStableFunc(list, func(a, b endpoint) int {
		if (a.node == e.Client) != (b.node == e.Client) {
			if a.node == e.Client {
				return -1
			}
			return 1
		}
		return a.address.Compare(b.address)
	})
	limit := FewNodes
	if all {
		limit = MaxEndNodes
	}
	type place struct {
		node string
		v4   bool
	}
	seen := map[place]bool{}
	nodes := map[string]bool{e.Client: true}
	e.all = true
	wanted := map[string]map[string]bool{e.Client: {}}
	if e.Pod != "" {
		wanted[e.Client][e.Pod] = true
	}
	for _, x := range list {
		at := place{x.node, x.address.Is4()}
		beyond := !nodes[x.node] && len(nodes) > limit
		if !all && seen[at] || beyond {
			e.all = false
			continue
		}
		seen[at], nodes[x.node], e.follow[x.address] = true, true, true
		if x.node == "" {
			continue
		}
		if wanted[x.node] == nil {
			wanted[x.node] = map[string]bool{}
		}
		if x.pod != "" {
			wanted[x.node][x.pod] = true
		}
	}
	if err := s.ReadPods(ctx, cluster.Pods{Nodes: slices.Sorted(maps.Keys(wanted))}); err != nil {
		return nil, err
	}
	for node, names := range wanted {
		e.pods[node] = podsOf(s.Objects, node, names)
	}
	return e, nil
}

// podsOf are the pods of some names with a network namespace of their own.
func podsOf(objects *snapshot.Cluster, node string, names map[string]bool) (out []wirePod) {
	for _, p := range objects.Pods {
		name := p.Namespace + "/" + p.Name
		if !names[name] || p.Spec.HostNetwork || p.Spec.NodeName != node {
			continue
		}
		x := wirePod{name: name, params: wire.PodParams{UIDs: []string{string(p.UID)}, Addresses: cluster.PodIPs(p)}}
		for _, key := range snapshot.StaticPodAnnotations {
			if hash := p.Annotations[key]; hash != "" {
				x.params.UIDs = append(x.params.UIDs, hash)
			}
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b wirePod) int { return strings.Compare(a.name, b.name) })
	return out
}

// Nodes are the nodes that are read, the client's first.
func (e *Ends) Nodes() []string {
	out := []string{e.Client}
	for _, n := range slices.Sorted(maps.Keys(e.pods)) {
		if n != e.Client && n != "" {
			out = append(out, n)
		}
	}
	return out
}

// JudgeEndToEnd reads the client's node and those of the endpoints with their pods, side by side, and judges the paths
// of the client's node from end to end. What is wrong in a cluster is read a second time before it is said.
//
// With probes connections are made, too, and name servers asked from the client's pod.
func (s *Session) JudgeEndToEnd(
	ctx context.Context, e *Ends, request Request, probes Probing,
) (report.NodeReport, error) {
	defer s.Progress.Done()
	lists := objectLists{}
	var earlier *report.NodeReport
	for read := 1; ; read++ {
		visited := s.visit(ctx, e, snapshot.NodeFiles)
		if err := ctx.Err(); err != nil {
			return report.NodeReport{}, err
		}
		objects := s.Objects
		if s.live {
			var err error
			if objects, err = lists.get(ctx, s); err != nil {
				return notInspected(e.Client, err), nil
			}
		}
		s.Progress.Say("following connections from %s", e.Client)
		ends := e.judged(visited)
		if probes.Probes > 0 {
			if err := s.askNames(ctx, ends, objects, e); err != nil {
				s.Progress.Note("%s: the Service's name was not asked for: %v", e.named, err)
			}
		}
		got := s.followed(ends, objects, request, nil)
		switch {
		case !s.live || nothingWrong(&got):
		case earlier != nil && confirmed(earlier, &got):
		case read == confirmReads:
			withdraw(earlier, &got, fmt.Sprintf("it was different each of the %d times that it was read", read))
		default:
			earlier = &got
			if err := wait(ctx, confirmPause); err != nil {
				return report.NodeReport{}, err
			}
			continue
		}
		if probes.Probes > 0 {
			got = s.followed(ends, objects, request, func(plain report.NodeReport) report.NodeReport {
				c := &confirmer{Session: s, probes: probes, pause: confirmPause, reads: confirmReads}
				return c.observe(ctx, e.Client, request, plain)
			})
		}
		for _, n := range e.Nodes() {
			s.nodes.Release(n)
		}
		return got, nil
	}
}

// judged are the ends as the judgement takes them.
func (e *Ends) judged(visited map[string]*judge.Visited) *judge.Ends {
	out := &judge.Ends{Client: e.Client, Pod: e.Pod, Named: e.named, Service: e.of, Visited: visited}
	if !e.all {
		out.Follow = func(a netip.Addr) bool { return e.follow[a] }
	}
	return out
}

// followed judges what was read. observe, which may be nil, adds to the report of the client's node what connections
// show.
func (s *Session) followed(
	ends *judge.Ends, objects *snapshot.Cluster, request Request, observe func(report.NodeReport) report.NodeReport,
) (out report.NodeReport) {
	defer recovered(func(defect error) { out = notInspected(ends.Client, defect) })
	client := ends.Visited[ends.Client]
	if client.State == nil {
		return notInspected(ends.Client, errors.New(client.Why))
	}
	index := s.index.get(objects)
	request.Others = func(of judge.Owner) (*snapshot.Node, error) {
		switch v := ends.Visited[of.Node]; {
		case v == nil || v.Files == nil:
			return nil, nil //nolint:nilnil // it was not read
		case of.Pod != "":
			return v.Files.Pod(of.Pod), nil
		default:
			return v.Files, nil
		}
	}
	out = judge.Node(index, client.State, request)
	if observe != nil {
		out = observe(out)
	}
	judge.EndToEnd(index, ends, &out)
	return out
}

// askNames asks name servers from the client's pod, as its resolver would for the Service's name.
func (s *Session) askNames(ctx context.Context, ends *judge.Ends, objects *snapshot.Cluster, e *Ends) (err error) {
	defer recovered(func(defect error) { err = defect })
	questions := judge.NameQuestions(s.index.get(objects), ends)
	if len(questions) == 0 {
		return nil
	}
	h, err := s.helper(ctx, e.Client)
	if err != nil {
		return err
	}
	for _, p := range e.pods[e.Client] {
		if p.name == e.Pod {
			ends.Answers, err = h.Names(ctx, p.params, questions)
		}
	}
	return err
}

// visit reads the nodes and their pods side by side, and loads them.
func (s *Session) visit(ctx context.Context, e *Ends, want []string) map[string]*judge.Visited {
	out := map[string]*judge.Visited{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, node := range e.Nodes() {
		wg.Go(func() {
			files, unread, err := s.readEnd(ctx, e, node, want)
			v := &judge.Visited{Files: files, Pods: unread}
			if err == nil {
				n := loadNode(node, files)
				v.State, err = n.state, n.err
			}
			if err != nil {
				v.State, v.Why = nil, snapshot.Reason(err)
			}
			mu.Lock()
			defer mu.Unlock()
			out[node] = v
		})
	}
	wg.Wait()
	return out
}

// readEnd reads a node with its pods; unread says why some of these were not. want are the names of the node's files
// that suffice; nil: all.
func (s *Session) readEnd(
	ctx context.Context, e *Ends, node string, want []string,
) (files *snapshot.Node, unread map[string]string, err error) {
	if files, err = s.nodes.Read(ctx, node, want); err != nil || !s.live {
		return files, nil, err
	}
	unread = map[string]string{}
	h, err := s.helper(ctx, node)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range e.pods[node] {
		data, missing, err := h.Pod(ctx, p.params, nil)
		if err == nil {
			data[snapshot.UnreadFile] = snapshot.Pack(snapshot.EncodeUnread(missing))
			files, err = with(files, p.name, data)
		}
		if err != nil {
			unread[p.name] = err.Error()
		}
	}
	return files, unread, nil
}

// with adds a pod's files; where they cannot be added, the node stays as it is.
func with(files *snapshot.Node, pod string, data map[string]snapshot.Packed) (*snapshot.Node, error) {
	more, err := files.WithPod(pod, data)
	if err != nil {
		return files, err
	}
	return more, nil
}

// EachEnd is [Session.EachNode] for the nodes and pods of connections from end to end. note is told which pods were not
// read.
func (s *Session) EachEnd(
	ctx context.Context, e *Ends, note func(pod, why string),
	do func(name string, files *snapshot.Node, err error) error,
) error {
	defer s.Progress.Done()
	var mu sync.Mutex
	var failed error
	s.each(e.Nodes(), func(_ int, name string) {
		files, unread, err := s.readEnd(ctx, e, name, nil)
		mu.Lock()
		defer mu.Unlock()
		for _, pod := range slices.Sorted(maps.Keys(unread)) {
			note(pod, unread[pod])
		}
		if failed == nil {
			failed = do(name, files, err)
		}
	})
	return failed
}
