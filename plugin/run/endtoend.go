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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Ends are what a connection from end to end touches: the client's pod and node, and endpoints with their pods and
// nodes.
type Ends struct {
	// Clients are the client's node; of a client outside of the cluster the nodes that its packets come in to, each of
	// which is followed on its own.
	Clients []string
	Pod     string               // namespace/name of the client's pod; "" where it has its node's network namespace
	outside bool                 // the client is outside of the cluster
	named   string               // namespace/name of the client's pod
	of      types.NamespacedName // the Service
	pods    map[string][]wirePod // by node: the pods whose network namespaces are read
	follow  map[netip.Addr]bool  // endpoints' addresses
	all     bool                 // every endpoint is followed
}

// wirePod is a pod as a helper is asked for it.
type wirePod struct {
	name   string // namespace/name
	params wire.PodParams
}

// MaxEndNodes is how many endpoints' nodes are read where all are asked for: each is in memory while paths are
// followed.
const MaxEndNodes = 16

// FindEnds finds what connections from a pod, or from outside to each of some nodes, to a Service touch: without all,
// one endpoint on each of FewNodes nodes at most, the client's own first. It reads the pods of these nodes.
func (s *Session) FindEnds(
	ctx context.Context, from *Origin, clients []string, target *cluster.Target, all bool,
) (*Ends, error) {
	e := &Ends{
		Clients: clients, Pod: from.Pod, named: cmp.Or(from.Pod, from.HostPod), of: target.Name(),
		outside: from.IsOutside(), pods: map[string][]wirePod{}, follow: map[netip.Addr]bool{},
	}
	limit := FewNodes
	if all {
		limit = MaxEndNodes
	}
	type place struct {
		node string
		v4   bool
	}
	seen := map[place]bool{}
	wanted := map[string]map[string]bool{} // pods by node
	want := func(node, pod string) {
		if wanted[node] == nil {
			wanted[node] = map[string]bool{}
		}
		if pod != "" {
			wanted[node][pod] = true
		}
	}
	for _, n := range e.Clients {
		want(n, e.Pod)
	}
	limit += len(wanted)
	e.all = true
	for _, x := range e.endpoints(s.Objects, target.Name()) {
		at := place{x.node, x.address.Is4()}
		beyond := x.node != "" && wanted[x.node] == nil && len(wanted) >= limit
		if !all && seen[at] || beyond {
			e.all = false
			continue
		}
		seen[at], e.follow[x.address] = true, true
		if x.node != "" {
			want(x.node, x.pod)
		}
	}
	limit = len(wanted) + nameNodes
	if all {
		limit = MaxEndNodes
	}
	for _, name := range nameServices(s.Objects, e.Pod) {
		for _, x := range e.endpoints(s.Objects, name) {
			if x.node != "" && (wanted[x.node] != nil || len(wanted) < limit) {
				want(x.node, x.pod)
			}
		}
	}
	if err := s.ReadPods(ctx, cluster.Pods{Nodes: slices.Sorted(maps.Keys(wanted))}); err != nil {
		return nil, err
	}
	for node, names := range wanted {
		e.pods[node] = podsOf(s.Objects, node, named(names))
	}
	return e, nil
}

// nameNodes is how many nodes are read for the name servers of the client's pod alone, unless all endpoints are asked
// for.
const nameNodes = 1

// end is an endpoint, as an EndpointSlice has it.
type end struct {
	address   netip.Addr
	node, pod string
}

// endpoints are those of a Service, those on the client's node first.
func (e *Ends) endpoints(objects *snapshot.Cluster, of types.NamespacedName) (list []end) {
	for _, slice := range objects.EndpointSlices {
		if expect.ServiceOf(slice) != of {
			continue
		}
		for i := range slice.Endpoints {
			x := &slice.Endpoints[i]
			out := end{}
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
	slices.SortStableFunc(list, func(a, b end) int {
		if own := slices.Contains(e.Clients, a.node); own != slices.Contains(e.Clients, b.node) {
			if own {
				return -1
			}
			return 1
		}
		return a.address.Compare(b.address)
	})
	return list
}

// nameServices are the Services that a pod asks for names, as far as the API tells: those that its dnsConfig names, and
// those that serve DNS where the kubelet writes the cluster's (ClusterFirst). What its resolv.conf says is known only
// when its node is read.
func nameServices(objects *snapshot.Cluster, pod string) (out []types.NamespacedName) {
	k := slices.IndexFunc(objects.Pods, func(p *corev1.Pod) bool { return p.Namespace+"/"+p.Name == pod })
	if pod == "" || k < 0 {
		return nil
	}
	spec := &objects.Pods[k].Spec
	for _, svc := range objects.Services {
		asked := spec.DNSPolicy == "" || spec.DNSPolicy == corev1.DNSClusterFirst ||
			spec.DNSPolicy == corev1.DNSClusterFirstWithHostNet
		if c := spec.DNSConfig; c != nil {
			asked = asked || slices.Contains(c.Nameservers, svc.Spec.ClusterIP)
		}
		if asked && judge.ServesNames(svc) {
			out = append(out, types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name})
		}
	}
	slices.SortFunc(out, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// named asks for pods of some names.
func named(names map[string]bool) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool { return names[p.Namespace+"/"+p.Name] }
}

// podsOf are those of a node's pods that are asked for, and have a network namespace of their own.
func podsOf(objects *snapshot.Cluster, node string, asked func(*corev1.Pod) bool) (out []wirePod) {
	for _, p := range objects.Pods {
		if p.Spec.HostNetwork || p.Spec.NodeName != node || !asked(p) {
			continue
		}
		x := wirePod{
			name:   p.Namespace + "/" + p.Name,
			params: wire.PodParams{UIDs: []string{string(p.UID)}, Addresses: cluster.PodIPs(p)},
		}
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
	out := slices.Clone(e.Clients)
	for _, n := range slices.Sorted(maps.Keys(e.pods)) {
		if !slices.Contains(out, n) && n != "" {
			out = append(out, n)
		}
	}
	return out
}

// JudgeEndToEnd reads the client's node and those of the endpoints with their pods, side by side, and judges the paths
// of the client's node from end to end; of a client outside of the cluster those of each node that it comes in to. What
// is wrong in a cluster is read a second time before it is said.
//
// With probes connections are made, too, and name servers asked from the client's pod, or health-check ports.
func (s *Session) JudgeEndToEnd(
	ctx context.Context, e *Ends, request func(node string) Request, probes Probing,
) ([]report.NodeReport, error) {
	defer s.Progress.Done()
	lists := objectLists{}
	earlier := make([]*report.NodeReport, len(e.Clients))
	for read := 1; ; read++ {
		visited := s.visit(ctx, e, snapshot.NodeFiles)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		objects := s.Objects
		var err error
		if s.live {
			objects, err = lists.get(ctx, s)
		}
		ends, got, again := make([]*judge.Ends, len(e.Clients)), make([]report.NodeReport, len(e.Clients)), false
		if err != nil {
			for i, client := range e.Clients {
				got[i] = notInspected(client, err)
			}
			return got, nil
		}
		for i, client := range e.Clients {
			s.Progress.Say("following connections from %s", client)
			ends[i] = e.judged(client, visited)
			if probes.Probes > 0 {
				s.askEnds(ctx, ends[i], objects, e)
			}
			got[i] = s.followed(ends[i], objects, request(client), nil)
			again = !s.settled(earlier[i], &got[i], read) || again
		}
		if again {
			for i := range got {
				earlier[i] = &got[i]
			}
			if err := wait(ctx, confirmPause); err != nil {
				return nil, err
			}
			continue
		}
		if probes.Probes > 0 {
			for i, client := range e.Clients {
				got[i] = s.followed(ends[i], objects, request(client), func(plain report.NodeReport) report.NodeReport {
					c := &confirmer{
						Session: s, probes: probes, pause: confirmPause, reads: confirmReads,
						followings: s.followingsOf(ends[i], e),
					}
					return c.observe(ctx, client, request(client), plain)
				})
			}
		}
		for _, n := range e.Nodes() {
			s.nodes.Release(n)
		}
		return got, nil
	}
}

// settled tells whether a report can be given: nothing is wrong in it, or the same as in the earlier one, which may be
// nil. What is not confirmed at the last reading is withdrawn.
func (s *Session) settled(earlier, got *report.NodeReport, read int) bool {
	switch {
	case !s.live || nothingWrong(got):
	case earlier != nil && confirmed(earlier, got):
	case read == confirmReads:
		withdraw(earlier, got, fmt.Sprintf("it was different at each of the %d readings", read))
	default:
		return false
	}
	return true
}

// askEnds asks name servers from the client's pod, and health-check ports of the node that a client outside of the
// cluster comes in to.
func (s *Session) askEnds(ctx context.Context, ends *judge.Ends, objects *snapshot.Cluster, e *Ends) {
	if !e.outside {
		if err := s.askNames(ctx, ends, objects, e); err != nil {
			s.Progress.Note("%s: the Service's name was not asked for: %v", e.named, err)
		}
		return
	}
	if err := s.askHealth(ctx, ends, objects); err != nil {
		s.Progress.Note("%s: health-check ports were not asked: %v", ends.Client, err)
	}
}

// askHealth asks health-check ports on the node that a client outside of the cluster comes in to.
func (s *Session) askHealth(ctx context.Context, ends *judge.Ends, objects *snapshot.Cluster) (err error) {
	defer recovered(func(defect error) { err = defect })
	ports := judge.HealthQuestions(s.index.get(objects), ends)
	if len(ports) == 0 {
		return nil
	}
	h, err := s.helper(ctx, ends.Client)
	if err != nil {
		return err
	}
	ends.Health, err = h.Health(ctx, ports)
	return err
}

// judged are the ends of connections of a client's node as the judgement takes them.
func (e *Ends) judged(client string, visited map[string]*judge.Visited) *judge.Ends {
	out := &judge.Ends{Client: client, Pod: e.Pod, Named: e.named, Service: e.of, Visited: visited}
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
	h, err := s.helper(ctx, ends.Client)
	if err != nil {
		return err
	}
	for _, p := range e.pods[ends.Client] {
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
