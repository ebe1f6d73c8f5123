// SPDX-License-Identifier: Apache-2.0

// Package judge compares what kube-proxy must have programmed on a node with what the node's rules do, and names every
// difference with its cause, the evidence and the remedy. It changes neither the cluster's objects nor the node's
// state: both can be judged any number of times, by any number of goroutines, with the same report.
package judge

import (
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/internal/parallel"
	"github.com/svcproxy/kubectl-svcproxy/trace/digest"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Request says what to judge on a node.
type Request struct {
	// Services are the Services to judge; nil means all of them.
	Services []types.NamespacedName
	// Select keeps the frontends that it returns true for; nil keeps all.
	Select func(expect.Frontend) bool
	// From overrides the default origins; nil keeps them (pod and node for ClusterIPs, external and node for the rest).
	From *From
	// NodeAlone asks only which proxy the node runs, and whether it is healthy: no path is judged.
	NodeAlone bool
	// PathsAlone asks only about paths: how kube-proxy fares, and its rules at large, are not judged, and what is found of
	// the node counts as information.
	PathsAlone bool
	// Backwards also goes from the rules to the API: every chain and frontend in the rules must belong to a Service.
	Backwards bool
	// Steps records the rules that each packet meets.
	Steps bool
	// Matching keeps paths whose verdict is Match in the report (trace, verify --show-all).
	Matching bool
	// PerPathService writes the Service into each path (verify).
	PerPathService bool
	// Others returns the files of another Node, or of a pod of the node, [PeerFiles] at least; nil where they were not
	// read. What is set by hand on the node is compared with what they say of themselves. nil: nothing of others is known.
	Others func(Owner) (*snapshot.Node, error)
	// Done ends the judgement when it is closed: what was not judged by then is Unknown, as [NotJudged] says. nil: never.
	Done <-chan struct{}
	// Memory is what the last judgement of the node has left; nil: nothing is taken over, nor left. It counts for requests
	// for all Services alone, of which only what is not a match is reported, and for states of [nodestate.LoadToCompare].
	Memory *Memory
	// WithoutRows leaves out the rows and summaries of paths ([report.Complete]): of Services with many endpoints they
	// are most of a report's memory.
	WithoutRows bool
}

// From is the origin asked for by --from.
type From struct {
	Kind    expect.OriginKind
	Address netip.Addr // zero: choose one
	Pod     string     // namespace/name of a pod, where one was named
}

// Node judges one node: it computes what kube-proxy must have programmed, walks a packet for each frontend and origin,
// and reports. What cannot be judged becomes NodeReport.Error or an Unknown path, never a match. The report keeps
// nothing of the state alive.
func Node(c *Cluster, s *nodestate.State, req Request) report.NodeReport {
	n, err := newNode(c, s, req.Done)
	n.peers.read = req.Others
	n.peers.held.asked = len(req.Services) > 0
	out := report.NodeReport{Node: n.Name, Verdict: report.Unknown}
	if err != nil {
		return n.withheld(err)
	}
	mode := n.shown
	out.Mode = &mode
	var atLarge, unowned []issue
	var beside parallel.Group
	if !req.PathsAlone {
		beside.Go(func() { atLarge = n.detect(stageRules, stageDuplicates, &req) })
	}
	if req.Backwards && !req.NodeAlone {
		beside.Go(func() { unowned = n.detect(stageBackwards, stageBackwards, &req) })
	}
	var judged verdicts
	if !req.NodeAlone {
		judged = n.paths(&req)
	}
	beside.Wait()
	if !req.PathsAlone {
		for _, is := range atLarge {
			if is.code == ModeLeftover {
				mode.Leftovers = append(mode.Leftovers, is.subject)
			}
		}
		out.Findings = n.findings(atLarge)
	}
	if req.NodeAlone {
		more := append(n.configMapDiffers(), n.detect(stageCoverage, stageCoverage, &req)...)
		out.Findings = append(out.Findings, n.findings(more)...)
		out.Verdict = report.WithFindings(report.Match, out.Findings)
		if mode.Actual == "" && mode.Reported == "" {
			out.Verdict = report.Worse(out.Verdict, report.Unknown) // nothing says which mode it is
		}
		return out
	}
	paths := withoutQuiet(judged.list)
	rest := slices.Concat(unowned, n.detect(stageCoverage, stageAsked, &req), n.watchHangs(paths, &req))
	out.Findings = append(out.Findings, n.findings(rest)...)
	out.Verdict = report.ByDesign
	out.Coverage = n.covered()
	if judged.matched > 0 {
		out.Summary.Paths, out.Summary.Matched = judged.matched, judged.matched
		out.Verdict = report.Together(out.Verdict, report.Match)
	}
	if len(paths) > judged.matched {
		out.Paths = slices.Grow(out.Paths, len(paths))
	}
	for _, p := range paths {
		out.Summary.Count(p.Verdict)
		out.Verdict = report.Together(out.Verdict, p.Verdict)
		if p.Verdict != report.Match || req.Matching {
			if !req.WithoutRows {
				report.Complete(&p.Path)
			}
			out.Paths = append(out.Paths, p.Path)
		}
	}
	if req.PathsAlone {
		for i := range out.Findings {
			out.Findings[i].Severity = report.Info
		}
	}
	out.Verdict = report.WithFindings(out.Verdict, out.Findings)
	out.Asks = n.peers.wanted
	return out
}

// Files loads a node's files and judges the node, for one judgement alone.
func Files(objects *snapshot.Cluster, files *snapshot.Node, req Request) report.NodeReport {
	load := nodestate.Load
	if req.Memory != nil {
		load = nodestate.LoadToCompare
	}
	s, err := load(files)
	if err != nil {
		return Unread(files.Name, err)
	}
	return Node(NewCluster(objects), s, req)
}

// Unread is the report of a node whose files could not be loaded.
func Unread(node string, err error) report.NodeReport {
	return report.NodeReport{Node: node, Verdict: report.Unknown, Error: snapshot.Reason(err)}
}

// withheld is the report of a node of which nothing is claimed, with what is known all the same.
func (n *node) withheld(err error) report.NodeReport {
	out := Unread(n.Name, err)
	if replaced, ok := errors.AsType[replacedError](err); ok {
		out.Findings = n.findings([]issue{n.replaced(replaced.by)})
	}
	if n.shown.ConfigSource != "" {
		mode := n.shown
		out.Mode = &mode
	}
	return out
}

// detect runs the detectors of some stages that judge the node as a whole.
func (n *node) detect(from, to stage, req *Request) []issue {
	var out []issue
	for _, d := range detectors(onNode) {
		switch {
		case d.stage < from || d.stage > to:
		case d.asked != nil:
			out = append(out, d.asked(n, req)...)
		default:
			out = append(out, d.node(n)...)
		}
	}
	return out
}

// pathJob is one path to judge.
type pathJob struct {
	svc      *corev1.Service
	frontend expect.Frontend
	from     from
}

// judged is a path with its verdict. quiet paths are left out unless something is wrong with them, or may be.
type judged struct {
	report.Path

	quiet bool
}

// withoutQuiet leaves out the quiet paths on which all is well, and those on which nothing is wrong, or not known, that
// another path of the frontend does not show.
func withoutQuiet(paths []judged) []judged {
	type fact struct {
		frontend report.Frontend
		code     string
	}
	shown := map[fact]bool{}
	show := func(p *judged) {
		for _, f := range p.Findings {
			shown[fact{p.Frontend, f.Code}] = true
		}
	}
	type source struct {
		frontend report.Frontend
		from     string
	}
	// The origins that paths are shown from, and those, and the frontends, of which one is not right.
	claimed, open, opened := map[source]bool{}, map[source]bool{}, map[report.Frontend]bool{}
	wrongForPods := map[report.Frontend]bool{}
	for i := range paths {
		p := &paths[i]
		if p.quiet {
			continue
		}
		show(p)
		at := source{p.Frontend, p.Origin.Kind}
		claimed[at] = true
		if p.Verdict == report.Unknown || p.Verdict == report.Mismatch {
			open[at], opened[p.Frontend] = true, true
		}
		if p.Origin.Kind == string(expect.FromPod) && p.Verdict == report.Mismatch {
			wrongForPods[p.Frontend] = true
		}
	}
	wrong := wrongServices(paths)
	return slices.DeleteFunc(paths, func(p judged) bool {
		if !p.quiet {
			return false
		}
		if p.Origin.Kind == string(expect.FromPod) && wrongForPods[p.Frontend] {
			return true // what an endpoint meets on its way to itself is a consequence
		}
		if isShortCut(&p) && wrong[serviceOf(&p)] {
			return true
		}
		if at := (source{p.Frontend, p.Origin.Kind}); p.Verdict == report.Unknown {
			if open[at] || !claimed[at] && opened[p.Frontend] {
				return true // nothing that is shown says that it is right
			}
			claimed[at], open[at] = true, true
			return false
		}
		news := slices.ContainsFunc(p.Findings, func(f report.Finding) bool { return !shown[fact{p.Frontend, f.Code}] })
		show(&p)
		return p.Verdict != report.Mismatch || !news
	})
}

// NewWalker prepares walks over a node's rules as the judgement makes them. It is for one goroutine.
func NewWalker(
	s *nodestate.State, network *host.Network, options ...netfilter.WalkerOption,
) *netfilter.Walker {
	return netfilter.NewWalker(s.Rules, network, s.Sets, append(options, netfilter.WithClientLists(clientLists()...),
		netfilter.WithPorts(network.Port),
		netfilter.WithSockets(func(proto uint8, port uint16) (listens, known bool) {
			return slices.ContainsFunc(s.Sockets, func(x host.Socket) bool {
				return x.Port == port && protocolNumber(corev1.Protocol(strings.ToUpper(x.Protocol))) == proto
			}), s.SocketsRead
		}),
		netfilter.WithoutIPsec(s.Reading(snapshot.XfrmFile).State == nodestate.Whole &&
			!slices.ContainsFunc(s.Rules.Tables, func(t *netfilter.Table) bool {
				return t.Backend == netfilter.BackendProgram && t.Name == "xfrm"
			})))...)
}

// newWorker prepares the judgement of paths. With remember it notes what decides them.
func (n *node) newWorker(req *Request, remember bool) *worker {
	w := &worker{node: n, req: req, detectors: detectors(onPath)}
	var options []netfilter.WalkerOption
	if remember {
		w.digest, w.trail, w.classTrail = digest.New(), n.Rules.NewTrail(), n.Rules.NewTrail()
		options = append(options, netfilter.WithTrails(w.trail, w.classTrail))
	}
	w.walker = NewWalker(n.State, n.net, options...)
	return w
}

// batch is how many Services a worker takes at once, at most.
const batch = 32

// verdicts are the paths of a node, judged.
type verdicts struct {
	list []judged
	// matched counts the paths that are a match, and that there is nothing to say of: most of a node's.
	matched int
}

// add adds a path.
func (v *verdicts) add(p judged, shown bool) {
	switch {
	case p.Verdict != report.Match || len(p.Findings) > 0 || shown:
		v.list = append(v.list, p)
	case !p.quiet:
		v.matched++
	}
}

// paths judges every path asked for, on all processors, in a stable order.
func (n *node) paths(req *Request) (all verdicts) {
	asked := n.asked(req)
	known := n.recalled(req)
	order := n.inOrder(asked)
	results := make([]struct{ paths, ignored verdicts }, len(asked))
	workers := make([]*worker, min(runtime.GOMAXPROCS(0), (len(asked)+batch-1)/batch))
	// Few at a time towards the end, where the dear ones are.
	size := max(1, min(batch, len(asked)/(8*max(1, len(workers)))))
	var begun atomic.Int64
	var judging parallel.Group
	for i := range workers {
		w := n.newWorker(req, known != nil)
		workers[i] = w
		judging.Go(func() {
			for at := int(begun.Add(1)-1) * size; at < len(order); at = int(begun.Add(1)-1) * size {
				for _, i := range order[at:min(at+size, len(order))] {
					svc, out := asked[i], &results[i]
					if reason, why := n.ignored(svc); reason != "" {
						out.ignored.add(n.leftAlone(svc, reason, why, req), req.Matching)
					} else if why := n.exp.Beyond(svc); why != "" {
						out.paths.add(n.notJudged(svc, why, req), true)
					} else {
						w.service(svc, known, &out.paths)
					}
				}
			}
		})
	}
	judging.Wait()
	known.end(workers)
	if req.Memory != nil {
		req.Memory.count(workers)
	}
	count := 0
	for i := range results {
		count += len(results[i].paths.list) + len(results[i].ignored.list)
	}
	all.list = slices.Grow(all.list, count)
	for i := range results {
		all.list = append(all.list, results[i].paths.list...)
		all.matched += results[i].paths.matched + results[i].ignored.matched
		results[i].paths.list = nil // many paths are much memory
	}
	for i := range results {
		all.list = append(all.list, results[i].ignored.list...)
	}
	return all
}

// service judges the paths of one Service that are asked for.
func (w *worker) service(svc *corev1.Service, known *recall, out *verdicts) {
	clear(w.hopsTo)
	clear(w.links)
	clear(w.lists)
	if len(w.untolds) > mostUntold {
		clear(w.untolds)
	}
	for _, f := range w.frontends(svc) {
		if w.req.Select != nil && !w.req.Select(f) {
			continue
		}
		for _, o := range append(w.originsOf(svc, f, w.req.From), w.shortCut(svc, f, w.req.From)...) {
			if w.stopped() {
				out.add(w.notJudged(svc, ended, w.req), true)
				return
			}
			job := pathJob{svc, f, o}
			if known.match(w.node, &job, w.digest) {
				w.reused++
				out.add(judged{report.Path{Verdict: report.Match}, o.quiet}, w.req.Matching)
				continue
			}
			w.anew++
			w.trail.Begin()
			p := judged{w.path(svc, f, o.Origin), o.quiet}
			known.judged(w, &job, &p)
			list := w.forOthers(&job, &p.Path)
			if list == nil {
				list = []judged{p}
			}
			for _, p := range list {
				out.add(p, w.req.Matching)
			}
		}
	}
}
