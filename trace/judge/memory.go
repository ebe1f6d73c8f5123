// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/digest"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Memory is what one judgement of a node leaves for the next one: which of its paths were a match, without anything to
// say of them, and what each of these was decided by. The next judgement takes such a path for a match again where all
// of that is still the same, and judges all others, so that its report is that of a judgement without Memory.
//
// What decides a path is: the expectation, which is computed anew and compared; the chains that its packets came to,
// by their content; and what all paths share. Where any of the latter has changed (Services, Nodes, the node's network,
// settings, sets, virtual servers, base chains, kube-proxy's configuration, what is inferred of it), nothing is taken
// over. What changes without that are endpoints, and the chains of single Services.
//
// A Memory is for one node and one goroutine. The zero Memory remembers nothing.
type Memory struct {
	shared *shared
	paths  map[pathName]remembered

	// Reused and Anew count the paths of the last judgement: those that were taken over, and those that were judged.
	Reused, Anew int
}

// Forget has the next judgement judge everything.
func (m *Memory) Forget() { m.shared, m.paths = nil, nil }

// pathName names a path of a node.
type pathName struct {
	frontend expect.Frontend
	origin   expect.Origin
	quiet    bool
}

// remembered is a path that was a match, and nothing else.
type remembered struct {
	want   digest.Sum
	chains []int32 // that its packets came to, by their numbers
}

// shared is what all paths of a judgement go by.
type shared struct {
	cluster *Cluster // what sameObjects compares of it: the index of many endpoints is not kept beside the next one
	beside  *nodestate.State
	prints  *netfilter.Prints
	classes []int32 // the chains that classes of packets came to
	watched []int32 // the chains that tell pods apart
	node    sharedNode
}

// sharedNode is what the preparation of a node has made of its files and of the objects, but for what is computed anew
// for each path.
type sharedNode struct {
	Mode, Reported string
	Shown          [5]string
	Config         kubeproxy.Config
	Stored         *kubeproxy.Config
	Sources        map[kubeproxy.Setting]origin
	Unread         map[netfilter.Family]string
	PodCIDRs       []netip.Prefix
	Programmed     map[netfilter.Family]bool
	Backends       map[netfilter.Family]map[netfilter.Backend]bool
	HasFrontends   map[netfilter.Family]bool
	ClusterIPs     map[netip.Addr]bool
	Frontends      map[frontendKey]bool
}

func (n *node) shared() *shared {
	out := &shared{
		cluster: &Cluster{
			Cluster: n.cluster.Cluster, mirrors: n.cluster.mirrors, endpoints: n.cluster.endpoints,
		},
		beside: n.Beside(), prints: n.Rules.Prints(),
		node: sharedNode{
			Mode: n.mode.name(), Reported: n.reported, Shown: shownModes(&n.shown), Config: n.config, Stored: n.stored,
			Sources: n.values.sources, Unread: n.unread, PodCIDRs: n.podCIDRs,
			Programmed: n.survey.programmed, Backends: n.survey.backends, HasFrontends: n.survey.hasFrontends,
			ClusterIPs: n.survey.clusterIPs, Frontends: n.survey.frontends,
		},
	}
	for c := range n.distinct.chains {
		out.watched = append(out.watched, c.Number())
	}
	slices.Sort(out.watched)
	return out
}

// shownModes is what the report says of the mode, without how kube-proxy fares.
func shownModes(m *report.Mode) [5]string {
	return [5]string{m.Configured, m.ConfigSource, m.KubeProxyVersion, m.Actual, m.Backend}
}

// sameObjects tells whether two clusters are the same but for their EndpointSlices.
func (s *shared) sameObjects(o *shared) bool {
	a, b := s.cluster, o.cluster
	if a.Cluster == b.Cluster {
		return true
	}
	ownKnown := s.beside.Host.KnowsAddresses(true) && s.beside.Host.KnowsAddresses(false)
	return sameAll(a.Services, b.Services) && sameAll(a.Nodes, b.Nodes) &&
		sameAll(a.Pods, b.Pods) && sameAll(a.ConfigMaps, b.ConfigMaps) && reflect.DeepEqual(a.mirrors, b.mirrors) &&
		slices.Equal(a.Missing, b.Missing) && reflect.DeepEqual(a.Unread, b.Unread) && maps.Equal(a.Left, b.Left) &&
		(ownKnown || a.endpoints.Equal(b.endpoints))
}

// sameAll tells whether two lists have the same objects in the same order, of whatever version: a Node has another one
// with each heartbeat.
func sameAll[T any, P interface {
	*T
	metav1.Object
}](a, b []*T) bool {
	return slices.EqualFunc(a, b, func(x, y *T) bool {
		if x == y {
			return true
		}
		p, q := *x, *y
		P(&p).SetResourceVersion("")
		P(&q).SetResourceVersion("")
		return reflect.DeepEqual(&p, &q)
	})
}

// moved compares what all paths share with what they share now, and says what became of each chain; ok is false where
// nothing can be taken over.
func (s *shared) moved(now *shared) (m netfilter.Moves, ok bool) {
	if !s.sameObjects(now) || !reflect.DeepEqual(&s.node, &now.node) || !s.beside.SameBeside(now.beside) {
		return m, false
	}
	m, ok = s.prints.Moved(now.prints)
	if !ok || slices.ContainsFunc(s.classes, func(at int32) bool { return m.Numbers[at] == netfilter.Changed }) {
		return m, false
	}
	watched := make([]int32, len(s.watched))
	for i, at := range s.watched {
		watched[i] = m.Numbers[at]
	}
	slices.Sort(watched)
	return m, slices.Equal(watched, now.watched)
}

// recall is a judgement with a Memory in progress.
type recall struct {
	*Memory

	now   *shared
	moves *netfilter.Moves // of the chains of the last judgement; nil where nothing is taken over

	mu   sync.Mutex
	next map[pathName]remembered
}

// recalled begins a judgement with the request's Memory; nil where it has none, or where a path is more than what a
// Memory remembers of it.
func (n *node) recalled(req *Request) *recall {
	m := req.Memory
	if m == nil {
		return nil
	}
	if req.Steps || req.Matching || req.From != nil || req.Select != nil || req.Services != nil || req.Others != nil ||
		len(n.values.open) > 0 || n.Connections != nil || n.Probes != nil || n.Tracked != nil {
		m.Forget()
		return nil
	}
	r := &recall{Memory: m, now: n.shared(), next: make(map[pathName]remembered, len(m.paths))}
	if m.shared != nil {
		if moves, ok := m.shared.moved(r.now); ok {
			r.moves, r.now.classes = &moves, renumbered(m.shared.classes, moves.Numbers)
		}
	}
	return r
}

// renumbered returns the numbers of chains in the later reading; nil where one of them has changed.
func renumbered(chains, numbers []int32) []int32 {
	out := make([]int32, len(chains))
	for i, at := range chains {
		if out[i] = numbers[at]; out[i] == netfilter.Changed {
			return nil
		}
	}
	return out
}

// match tells whether a path is a match as it was the last time. d is any Digest.
func (r *recall) match(n *node, job *pathJob, d *digest.Digest) bool {
	if r == nil || r.moves == nil {
		return false
	}
	name := job.name()
	was, ok := r.paths[name]
	if !ok {
		return false
	}
	chains := renumbered(was.chains, r.moves.ButFor)
	if chains == nil {
		return false
	}
	want := n.exp.Path(job.frontend, job.from.Origin)
	if n.digestOf(d, &want) != was.want || r.touches(job, &want) {
		return false
	}
	was.chains = chains
	r.keep(name, was)
	return true
}

// touches tells whether packets of a path that was a match may go to an address of which rules treat packets otherwise
// now: after translation that is an endpoint's, before and without it the frontend's.
func (r *recall) touches(job *pathJob, want *expect.Path) bool {
	t := r.moves.Touched
	return len(t) > 0 && (t[job.frontend.Address] || slices.ContainsFunc(want.Endpoints, func(e expect.Endpoint) bool {
		return t[e.Address.Addr()]
	}))
}

func (r *recall) keep(name pathName, x remembered) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next[name] = x
}

// judged notes a path that was judged.
func (r *recall) judged(w *worker, job *pathJob, out *judged) {
	if r == nil || out.Verdict != report.Match || len(out.Findings) > 0 || out.Observed != nil || w.watched ||
		w.asked || w.wanted.Unsure != "" {
		return
	}
	chains := w.trail.Met()
	if len(chains) == 0 {
		return
	}
	r.keep(job.name(), remembered{w.digestOf(w.digest, &w.wanted), slices.Clone(chains)})
}

// end leaves what the next judgement may take over.
func (r *recall) end(workers []*worker) {
	if r == nil {
		return
	}
	for _, w := range workers {
		r.now.classes = append(r.now.classes, w.classTrail.Met()...)
	}
	slices.Sort(r.now.classes)
	r.now.classes = slices.Compact(r.now.classes)
	r.shared, r.paths = r.now, r.next
}

// count notes how many paths were taken over, and how many judged.
func (m *Memory) count(workers []*worker) {
	m.Reused, m.Anew = 0, 0
	for _, w := range workers {
		m.Reused, m.Anew = m.Reused+w.reused, m.Anew+w.anew
	}
}

func (j *pathJob) name() pathName { return pathName{j.frontend, j.from.Origin, j.from.quiet} }

// digestOf is the digest of all that is expected of a path, and of which of its addresses are on the node, as far as
// EndpointSlices of whatever Service tell it.
func (n *node) digestOf(d *digest.Digest, p *expect.Path) digest.Sum {
	d.Reset()
	d.Flag(p.Origin.Address.IsValid() && n.local(p.Origin.Address))
	for _, text := range []string{string(p.Action), string(p.Masquerade), p.Reason, p.Why, p.Unsure, p.OneOf} {
		d.Text(text)
	}
	d.Number(int(p.AffinitySeconds))
	texts := func(list []string) {
		d.Number(len(list))
		for _, text := range list {
			d.Text(text)
		}
	}
	d.Number(len(p.Endpoints))
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		address := e.Address.Addr().As16()
		d.Text(string(address[:]))
		d.Flag(e.Address.Addr().Is4())
		d.Text(e.Address.Addr().Zone())
		d.Number(int(e.Address.Port()))
		d.Flag(n.local(e.Address.Addr()))
		d.Text(e.Node)
		d.Text(e.Pod)
		d.Text(e.Zone)
		texts(e.Slices)
		for _, is := range []bool{e.Ready, e.Serving, e.Terminating, e.Local} {
			d.Flag(is)
		}
		texts(e.HintZones)
		texts(e.HintNodes)
	}
	return d.Sum()
}
