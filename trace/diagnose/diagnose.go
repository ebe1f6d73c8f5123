// SPDX-License-Identifier: Apache-2.0

// Package diagnose holds what kube-proxy must have programmed against what the kernel's rules do, and names every
// difference with its cause, the evidence and the remedy.
package diagnose

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"maps"
	"net/netip"
	"runtime"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Request says what to look at on a node.
type Request struct {
	// Services are the Services to judge; nil means all of them.
	Services []types.NamespacedName
	// Select keeps the frontends that it returns true for; nil keeps all.
	Select func(expect.Frontend) bool
	// From overrides the default origins; nil keeps them (pod and node for ClusterIPs, external and node for the rest).
	From *From
	// NodeAlone asks only which proxy the node runs and how it fares: no path is judged.
	NodeAlone bool
	// PathsAlone asks only about paths: how kube-proxy fares, and its rules at large, are not looked at, and what is found of the node counts as
	// information.
	PathsAlone bool
	// Backwards also walks from the rules to the API: every chain and frontend in the rules must belong to a Service.
	Backwards bool
	// Steps records the rules that each packet meets.
	Steps bool
	// Matching keeps paths whose verdict is Match in the report (trace, verify --show-all).
	Matching bool
	// PerPathService writes the Service into each path (verify).
	PerPathService bool
}

// From is the origin asked for by --from.
type From struct {
	Kind    expect.OriginKind
	Address netip.Addr // zero: choose one
	Pod     string     // namespace/name of a pod, where one was named
}

// Node judges one node: it reads the node's files, computes what kube-proxy must have programmed, walks a packet for
// each frontend and origin, and reports. What cannot be read becomes NodeReport.Error or an Unknown path, never a match.
func Node(cluster *snapshot.Cluster, files *snapshot.Node, req Request) report.NodeReport {
	return Read(files).Judge(cluster, req)
}

// Judge is Node for rules that have been read before. A Reading can be judged once.
func (r *Reading) Judge(cluster *snapshot.Cluster, req Request) report.NodeReport {
	out := report.NodeReport{Node: r.node.name, Verdict: report.Unknown}
	n, err := r.load(cluster)
	if err != nil {
		return r.withheld(err)
	}
	out.Mode = &n.mode
	if !req.PathsAlone {
		out.Findings = n.nodeWide()
	}
	if req.NodeAlone {
		out.Findings = append(append(out.Findings, n.configMapDiffers()...), n.notCollected()...)
		out.Verdict = report.WithFindings(report.Match, out.Findings)
		if n.mode.Actual == "" && n.mode.Reported == "" {
			out.Verdict = report.Worse(out.Verdict, report.Unknown) // nothing says which mode it is
		}
		return out
	}
	var backwards []report.Finding
	var wg sync.WaitGroup
	if req.Backwards {
		wg.Go(func() { backwards = n.backwards() })
	}
	paths := withoutQuiet(n.paths(&req))
	wg.Wait()
	out.Findings = append(append(out.Findings, backwards...), n.notCollected()...)
	out.Findings = append(out.Findings, n.stale(&req)...)
	if f := n.unheard(paths, &req); f != nil {
		out.Findings = append(out.Findings, *f)
	}
	out.Verdict = report.ByDesign
	for _, p := range paths {
		out.Summary.Count(p.Verdict)
		out.Verdict = report.Together(out.Verdict, p.Verdict)
		if p.Verdict != report.Match || req.Matching {
			report.Complete(&p.Path)
			out.Paths = append(out.Paths, p.Path)
		}
	}
	if req.PathsAlone {
		for i := range out.Findings {
			out.Findings[i].Severity = report.Info
		}
	}
	out.Verdict = report.WithFindings(out.Verdict, out.Findings)
	return out
}

// withheld is the report of a node of which nothing is claimed, with what is known all the same.
func (r *Reading) withheld(err error) report.NodeReport {
	out := report.NodeReport{Node: r.node.name, Verdict: report.Unknown, Error: err.Error(), Findings: r.node.answer}
	if r.node.mode.ConfigSource != "" {
		out.Mode = &r.node.mode
	}
	return out
}

// pathJob is one path to judge.
type pathJob struct {
	svc      *corev1.Service
	frontend expect.Frontend
	from     from
}

// judged is a path with its verdict. quiet paths are left out unless something is wrong with them.
type judged struct {
	report.Path
	quiet bool
}

// withoutQuiet leaves out the quiet paths on which all is well, or nothing is wrong that another path of the frontend shows.
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
	for i := range paths {
		if !paths[i].quiet {
			show(&paths[i])
		}
	}
	return slices.DeleteFunc(paths, func(p judged) bool {
		if !p.quiet {
			return false
		}
		news := slices.ContainsFunc(p.Findings, func(f report.Finding) bool { return !shown[fact{p.Frontend, f.Code}] })
		show(&p)
		return p.Verdict != report.Mismatch || !news
	})
}

// paths judges every path asked for, on all processors, in a stable order.
func (n *node) paths(req *Request) []judged {
	jobs, ignored := n.jobs(req)
	out := make([]judged, len(jobs), len(jobs)+len(ignored))
	const batch = 64
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(runtime.GOMAXPROCS(0), (len(jobs)+batch-1)/batch) {
		wg.Go(func() {
			j := &judge{node: n, walker: netfilter.NewWalker(n.rules, n.net, n.sets), req: req}
			for first := range next {
				for i := first; i < min(first+batch, len(jobs)); i++ {
					out[i] = judged{j.path(jobs[i].svc, jobs[i].frontend, jobs[i].from.Origin), jobs[i].from.quiet}
				}
			}
		})
	}
	for first := 0; first < len(jobs); first += batch {
		next <- first
	}
	close(next)
	wg.Wait()
	return append(out, ignored...)
}

// jobs lists the paths to judge, and answers for Services that kube-proxy leaves alone.
func (n *node) jobs(req *Request) (jobs []pathJob, ignored []judged) {
	for _, svc := range n.asked(req) {
		if reason, why := n.exp.Ignored(svc); reason != "" {
			ignored = append(ignored, n.leftAlone(svc, reason, why, req))
			continue
		}
		for _, f := range n.exp.Frontends(svc) {
			if req.Select != nil && !req.Select(f) {
				continue
			}
			for _, o := range n.originsOf(svc, f, req.From) {
				jobs = append(jobs, pathJob{svc, f, o})
			}
		}
	}
	return jobs, ignored
}

// leftAlone answers for a Service that kube-proxy programs nothing for.
func (n *node) leftAlone(svc *corev1.Service, reason, why string, req *Request) judged {
	p := report.Path{
		Verdict: report.ByDesign, Expected: report.Expected{Action: string(expect.None)},
		Frontend: report.Frontend{Kind: string(svc.Spec.Type)}, Findings: []report.Finding{{Code: reason, Severity: report.Info, Message: why}},
	}
	if svc.Spec.ClusterIP != "" {
		p.Frontend.Address = svc.Spec.ClusterIP
	}
	if req.PerPathService {
		p.Service = &report.ObjectRef{Namespace: svc.Namespace, Name: svc.Name}
	}
	return judged{Path: p}
}

// notCollected says what the judgement does not cover because the snapshot does not hold it.
func (n *node) notCollected() []report.Finding {
	var out []report.Finding
	note := func(subject, message string) {
		out = append(out, n.finding(NotCollected, subject, issue{message: message}))
	}
	for f, why := range n.unread {
		if n.hasFrontends[f] {
			note(f.String(), why)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(n.reasons)) {
		if n.proxy.down() && slices.Contains(proxyFiles, file) {
			continue // KubeProxyDown has said so
		}
		if !isRules(file) { // the families above have said so
			note(file, "was not read: "+n.reasons[file])
		}
	}
	if n.isNFT() && n.reasons == nil && len(n.have[netfilter.IPv4])+len(n.have[netfilter.IPv6]) == 0 {
		note("iptables-save.txt", "rules of iptables beside kube-proxy's were not collected: those of iptables-legacy, if there are any, are not judged")
	}
	if !n.hasRuleset() && n.reasons == nil {
		note(rulesetFile, "nftables tables beside iptables' own were not collected: if there are any, they are not judged")
	}
	if n.mode.ConfigSource == "defaults" {
		note("kube-proxy's configuration", "it was not collected (configz.json, ConfigMap): defaults are assumed, and what depends on clusterCIDR is not judged")
	}
	return out
}
