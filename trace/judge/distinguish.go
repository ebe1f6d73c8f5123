// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// distinctions are what rules that are not kube-proxy's tell pods of the node apart by: NetworkPolicies (kube-router,
// Calico, weave-npc, what Cilium left), ipsets of particular pods, rules of a person.
type distinctions struct {
	chains map[*netfilter.Chain]bool // those with such a rule
	named  [2][]netip.Addr           // an address for each range that they name, by family
	rules  []netfilter.Ref
	meant  map[netip.Addr]bool // the addresses for "outside" that rules name, by themselves or in a network
}

// prefixed is an ipset lookup whose elements can be listed.
type prefixed interface {
	Prefixes(set string, f func(netip.Prefix))
}

// maxNamed bounds the addresses that are tried because rules name them.
const maxNamed = 64

// distinguished finds the rules of others that tell local pods apart.
func (n *node) distinguished() distinctions {
	d := distinctions{chains: map[*netfilter.Chain]bool{}, meant: map[netip.Addr]bool{}}
	nets := n.podNets()
	ifaces := n.podInterfaces()
	for _, t := range n.Rules.Tables {
		if t.Backend == netfilter.BackendIPVS {
			continue
		}
		late := n.onlyAfterPostrouting(t)
		for _, c := range t.Chains {
			if n.ownerOf(netfilter.Ref{Chain: c}) != others {
				continue
			}
			for _, r := range n.rulesThatCount(c, late) {
				if !n.tellsApart(r, t, nets, ifaces, &d) {
					continue
				}
				d.chains[c] = true
				d.rules = append(d.rules, netfilter.Ref{Chain: c, Rule: r})
			}
		}
	}
	return d
}

// podNets are the networks of the node's pods: those of the Node, and the addresses of those that are known.
func (n *node) podNets() []netip.Prefix {
	out := slices.Clone(n.podCIDRs)
	for a := range n.sources.local {
		if !within(a, n.podCIDRs) {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

// podInterfaces are the interfaces of single pods; none where pods share one.
func (n *node) podInterfaces() map[string]bool {
	count := map[string]int{}
	for a := range n.sources.local {
		if a.Is4() {
			count[n.ifaceOf(a)]++
		}
	}
	out := map[string]bool{}
	for dev, pods := range count {
		if pods == 1 && len(n.sources.local) > 1 && dev != netfilter.UnknownIface {
			out[dev] = true
		}
	}
	return out
}

// tellsApart tells whether a rule compares the source with some of the node's pods only, and notes which.
func (n *node) tellsApart(
	r *netfilter.Rule, t *netfilter.Table, nets []netip.Prefix, ifaces map[string]bool, d *distinctions,
) bool {
	found := false
	note := func(first, last netip.Addr) {
		n.noteOutside(first, last, d)
		for _, p := range nets {
			if p.Addr().Is4() != first.Is4() || lastOf(p).Less(first) || last.Less(p.Masked().Addr()) ||
				!p.Masked().Addr().Less(first) && !last.Less(lastOf(p)) {
				continue // none of them, or all
			}
			found = true
			i := familyIndex(first.Is4())
			if a := first; p.Contains(a) && len(d.named[i]) < maxNamed && !slices.Contains(d.named[i], a) {
				d.named[i] = append(d.named[i], a)
			}
		}
	}
	terms := nodestate.SourcesOf(t, r)
	for _, x := range terms.Ranges {
		note(x[0], x[1])
	}
	if sets, ok := n.Sets.(prefixed); ok {
		for _, name := range terms.Sets {
			if !kubeproxy.IsIPVSSet(name) {
				sets.Prefixes(name, func(p netip.Prefix) { note(p.Masked().Addr(), lastOf(p)) })
			}
		}
	}
	for _, dev := range terms.Interfaces {
		found = found || ifaces[dev]
	}
	return found
}

// noteOutside notes which of the addresses for "outside" are in a range that is not everything.
func (n *node) noteOutside(first, last netip.Addr, d *distinctions) {
	if first.IsUnspecified() && lastOf(netip.PrefixFrom(first, 0)) == last {
		return
	}
	for _, a := range n.sources.outside[familyIndex(first.Is4())] {
		if !a.Less(first) && !last.Less(a) {
			d.meant[a] = true
		}
	}
}

// preferUnnamed puts the addresses for "outside" last that rules of others name: a firewall drops what nobody can have.
func (n *node) preferUnnamed() {
	for _, list := range n.sources.outside {
		slices.SortStableFunc(list, func(a, b netip.Addr) int {
			switch x, y := n.distinct.meant[a], n.distinct.meant[b]; {
			case x == y:
				return 0
			case x:
				return 1
			}
			return -1
		})
	}
}

// rulesThatCount are the rules of a chain, without those that packets come to only behind KUBE-POSTROUTING: a CNI
// masquerades there, pod by pod, which changes no verdict.
func (n *node) rulesThatCount(c *netfilter.Chain, late map[*netfilter.Chain]bool) []*netfilter.Rule {
	switch {
	case late[c]:
		return nil
	case c.Base != nil:
		return c.Rules[:n.postroutingIn(c)]
	}
	return c.Rules
}

// postroutingIn is where in a base chain of nat the jump to KUBE-POSTROUTING is; in one of POSTROUTING without that the
// beginning, in any other the end.
func (n *node) postroutingIn(base *netfilter.Chain) int {
	if base.Base.Hook != netfilter.Postrouting || base.Table.Name != "nat" ||
		base.Table.Backend == netfilter.BackendNative {
		return len(base.Rules)
	}
	return max(0, slices.IndexFunc(base.Rules, func(r *netfilter.Rule) bool {
		return r.Target != "" && r.Target == n.mode.names().Postrouting
	}))
}

// onlyAfterPostrouting are the chains of a nat table that are not kube-proxy's, and that packets come to only behind
// KUBE-POSTROUTING.
func (n *node) onlyAfterPostrouting(t *netfilter.Table) map[*netfilter.Chain]bool {
	out := map[*netfilter.Chain]bool{}
	if t.Name != "nat" || t.Backend == netfilter.BackendNative {
		return out
	}
	early := map[*netfilter.Chain]bool{}
	for _, base := range t.Chains {
		if base.Base == nil {
			continue
		}
		at := n.postroutingIn(base)
		for i, r := range base.Rules {
			switch c := t.Chain(r.Target); {
			case c == nil:
			case i < at:
				early[c] = true
			case n.ownerOf(netfilter.Ref{Chain: c}) == others:
				out[c] = true
			}
		}
	}
	if len(out) == 0 {
		return out // and no need to look where thousands of chains lead
	}
	for c := range reachableFromAll(t, early) {
		delete(out, c)
	}
	return out
}

// reachableFromAll are the chains that a packet can get to from any of some.
func reachableFromAll(t *netfilter.Table, from map[*netfilter.Chain]bool) map[*netfilter.Chain]bool {
	list := make([]*netfilter.Chain, 0, len(from))
	for c := range from {
		list = append(list, c)
	}
	return reachableFrom(t, list...)
}

// Findings about verdicts that depend on which pod sends.
const (
	DiffersByPod = "DiffersByPod"
	SampleOnly   = "SampleOnly"
)

var (
	_ = register(kind{code: DiffersByPod, severity: note, scope: onPath, by: otherPods})
	_ = register(kind{
		code: SampleOnly, severity: note, scope: onPath, by: otherPods,
		remedy: advice("name a pod (--from pod/NAME), or add the node's pods to the snapshot (cluster/pods.json)",
			command{line: "kubectl get pods -A -o wide --field-selector spec.nodeName={node}"}),
	})
)

// maxTried is how many pods of a node are tried where rules tell them apart.
const maxTried = 256

// group are pods for which the same was found.
type group struct {
	key  string
	path report.Path
	pods []string
}

// forOthers judges the path from the other pods of the node, where the packet of a sample came to rules that tell pods
// apart, and returns what takes the place of its path: one path for each kind where they are not alike, and one that is
// Unknown where no pod of the node is known. nil where the path holds for all.
func (w *worker) forOthers(job *pathJob, first *report.Path) []judged {
	o := job.from.Origin
	if job.from.quiet || o.Kind != expect.FromPod || !o.Sample || !w.watched || first.Verdict == report.Unknown {
		return nil
	}
	i := familyIndex(job.frontend.Address.Is4())
	known := len(w.sources.pods[i]) > 0
	origins := []expect.Origin{}
	for _, p := range w.sources.pods[i] {
		if a := p.address(i == 0); known && a != o.Address && !w.behind(job.frontend, a) && len(origins) < maxTried {
			origins = append(origins, w.podOrigin(a, p.name))
		}
	}
	if !known {
		for _, a := range w.distinct.named[i] {
			if a != o.Address && !w.behind(job.frontend, a) {
				origins = append(origins, w.podOrigin(a, ""))
			}
		}
	}
	groups := []group{{keyOfPath(first), *first, []string{nameOf(&o)}}}
	for k := range origins {
		p := w.path(job.svc, job.frontend, origins[k])
		key, name := keyOfPath(&p), nameOf(&origins[k])
		if g := slices.IndexFunc(groups, func(g group) bool { return g.key == key }); g >= 0 {
			groups[g].pods = append(groups[g].pods, name)
			continue
		}
		groups = append(groups, group{key, p, []string{name}})
	}
	if len(groups) == 1 {
		return nil
	}
	if !known {
		return []judged{{w.sampleOnly(groups), false}}
	}
	out := make([]judged, 0, len(groups))
	for i := range groups {
		g := &groups[i]
		g.path.Origin.Pods = g.pods
		g.path.Findings = append(g.path.Findings, w.finding(issue{
			code: DiffersByPod, subject: nameOfOrigin(&g.path.Origin), predicate: true,
			message: foundFor(g.pods) + "; other pods of the node have another result",
		}))
		out = append(out, judged{g.path, false})
	}
	return out
}

// foundFor says of a pod that it is one of those for which a path holds.
func foundFor(pods []string) string {
	if len(pods) == 1 {
		return "is the only pod of the node for which this was found"
	}
	return "is one of " + number(len(pods), "pod") + " of the node for which this was found (" + cut(pods, 4) + ")"
}

// sampleOnly is the path of a sample of which nothing is claimed for the pods that it stands for.
func (w *worker) sampleOnly(groups []group) report.Path {
	p := groups[0].path
	parts := make([]string, 0, len(groups))
	for i := range groups {
		g := &groups[i]
		parts = append(parts, cut(g.pods, 2)+": "+verdictOf(&g.path))
	}
	is := issue{
		code: SampleOnly, subject: p.Origin.Address, predicate: true,
		message: "stands for a pod, no pod of the node is known, and rules that are not kube-proxy's tell pods apart (" +
			strings.Join(parts, "; ") + ")",
	}
	for _, r := range w.distinct.rules[:min(len(w.distinct.rules), maxEvidence)] {
		is.evidence = append(is.evidence, cite(r))
	}
	p.Verdict, p.Findings = report.Unknown, []report.Finding{w.finding(is)}
	return p
}

func verdictOf(p *report.Path) string {
	if codes := p.Codes(); len(codes) > 0 {
		return strings.Join(codes, ", ")
	}
	return strings.ToLower(string(p.Verdict))
}

// keyOfPath is the same for paths of which the same was found.
func keyOfPath(p *report.Path) string {
	parts := make([]string, 0, len(p.Findings)+1)
	parts = append(parts, string(p.Verdict))
	for i := range p.Findings {
		parts = append(parts, p.Findings[i].Code+" "+p.Findings[i].Subject)
	}
	return strings.Join(parts, "\n")
}

func nameOf(o *expect.Origin) string {
	if o.Pod != "" {
		return o.Pod
	}
	return o.Address.String()
}

func nameOfOrigin(o *report.Origin) string {
	if o.Pod != "" {
		return o.Pod
	}
	return o.Address
}
