// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// pathKey is what makes paths of two reports the same path.
type pathKey struct {
	service  report.ObjectRef
	kind     string
	address  string
	port     int32
	protocol string
	origin   string
}

// keyOf returns that of a path. Between nodes the address of a NodePort is each node's own, and counts by its family.
func keyOf(p *report.Path, nodes bool) pathKey {
	k := pathKey{
		kind: p.Frontend.Kind, address: p.Frontend.Address, port: p.Frontend.Port, protocol: p.Frontend.Protocol,
		origin: p.Origin.Kind,
	}
	if p.Service != nil {
		k.service = *p.Service
	}
	if nodes && k.kind == "NodePort" {
		family := "IPv4"
		if strings.Contains(k.address, ":") {
			family = "IPv6"
		}
		k.address = family
	}
	return k
}

// pathPair is a path on both sides; one may be nil.
type pathPair struct{ a, b *report.Path }

// pairs finds the path of the other side for each path, in the order of the first side. Of several with the same key,
// such as those of pods that rules tell apart, those from the same address belong together, then those in the same
// place.
func (c *comparison) pairs() []pathPair {
	byKey := map[pathKey][]*report.Path{}
	for i := range c.b.report.Paths {
		p := &c.b.report.Paths[i]
		k := keyOf(p, c.focus != nil)
		byKey[k] = append(byKey[k], p)
	}
	first, other := map[pathKey]*report.Path{}, map[pathKey]*report.Path{} // of the first side and of the second
	out := make([]pathPair, 0, len(c.a.report.Paths))
	for i := range c.a.report.Paths {
		p := &c.a.report.Paths[i]
		k := keyOf(p, c.focus != nil)
		if first[k] == nil {
			first[k] = p
		}
		free := byKey[k]
		at := slices.IndexFunc(free, func(q *report.Path) bool { return q.Origin.Address == p.Origin.Address })
		if at < 0 && len(free) > 0 {
			at = 0
		}
		pair := pathPair{a: p}
		if at >= 0 {
			pair.b, other[k] = free[at], free[at]
			byKey[k] = slices.Delete(slices.Clone(free), at, at+1)
		} else {
			pair.b = other[k]
		}
		out = append(out, pair)
	}
	keys := slices.SortedFunc(maps.Keys(byKey), func(x, y pathKey) int {
		return cmp.Or(
			cmp.Compare(x.service.Namespace, y.service.Namespace), cmp.Compare(x.service.Name, y.service.Name),
			cmp.Compare(x.kind, y.kind), cmp.Compare(x.address, y.address), cmp.Compare(x.port, y.port),
			cmp.Compare(x.protocol, y.protocol), cmp.Compare(x.origin, y.origin),
		)
	})
	for _, k := range keys {
		for _, p := range byKey[k] {
			// Where rules tell pods apart on one side only, the one path of the other stands for all.
			out = append(out, pathPair{first[k], p})
		}
	}
	return out
}

// paths compares the paths. Those that became wrong come first, then those that became right.
func (c *comparison) paths() {
	var ranked [ranks][]report.PathChange
	differ := 0
	for _, pair := range c.pairs() {
		change, differs := c.path(pair)
		if !differs {
			continue
		}
		differ++
		countVerdict(&c.out.Verdicts, &change)
		if list := &ranked[rank(&change)]; len(*list) < maxPaths {
			*list = append(*list, change)
		}
	}
	c.out.Paths = slices.Concat(ranked[:]...)
	c.out.Paths = c.out.Paths[:min(len(c.out.Paths), maxPaths)]
	c.out.PathsLeft = differ - len(c.out.Paths)
}

// ranks is how many ranks there are.
const ranks = 4

// rank is the place of a path among those that differ.
func rank(p *report.PathChange) int {
	switch {
	case p.After != nil && p.After.Verdict.NeedsAttention() && (p.Before == nil || !p.Before.Verdict.NeedsAttention()):
		return 0
	case p.Before != nil && p.After != nil && p.Before.Verdict != p.After.Verdict:
		return 1
	case p.After == nil || p.Before == nil:
		return 3
	}
	return 2
}

// path compares one path.
func (c *comparison) path(x pathPair) (out report.PathChange, differs bool) {
	one := cmp.Or(x.b, x.a)
	out = report.PathChange{Service: one.Service, Frontend: one.Frontend, Origin: one.Origin}
	out.Before, out.After = sideOf(x.a), sideOf(x.b)
	if x.a == nil || x.b == nil {
		if c.focus != nil && (x.a == nil || !x.a.Verdict.NeedsAttention()) && (x.b == nil || !x.b.Verdict.NeedsAttention()) {
			c.must[partPaths]++
			return out, false
		}
		return out, true
	}
	for _, f := range c.findings(x.a.Findings, x.b.Findings) {
		differs = differs || f.Severity != report.Info
		if f.Change == report.Added {
			out.Came = append(out.Came, f)
		} else {
			out.Went = append(out.Went, f)
		}
	}
	// Of a side that is not known nobody can say that an endpoint gets no connections.
	a, b := ends(x.a), ends(x.b)
	for _, e := range slices.Sorted(maps.Keys(a)) {
		if !b[e] && x.b.Verdict != report.Unknown {
			out.Lost = append(out.Lost, e)
		}
	}
	for _, e := range slices.Sorted(maps.Keys(b)) {
		if !a[e] && x.a.Verdict != report.Unknown {
			out.Gained = append(out.Gained, e)
		}
	}
	if x.a.Verdict != x.b.Verdict {
		return out, true
	}
	other := len(out.Gained)+len(out.Lost) > 0 || outcome(x.a) != outcome(x.b)
	if c.focus != nil && other && !differs {
		c.must[partPaths]++ // as each node's expectation says
		return out, false
	}
	return out, differs || other
}

// ends are the endpoints that connections are sent to.
func ends(p *report.Path) map[string]bool {
	out := map[string]bool{}
	for i := range p.Actual.Outcomes {
		if e := p.Actual.Outcomes[i].Endpoint; e != nil {
			out[cut(report.JoinHostPort(e.Address, e.Port))] = true
		}
	}
	return out
}

// outcome is what becomes of connections besides their endpoints.
func outcome(p *report.Path) string {
	words := map[string]bool{}
	for i := range p.Actual.Outcomes {
		o := &p.Actual.Outcomes[i]
		word := o.Action
		if o.Masquerade {
			word += " masqueraded"
		}
		words[word] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(words)), ", ")
}

func sideOf(p *report.Path) *report.PathSide {
	if p == nil {
		return nil
	}
	return &report.PathSide{Verdict: p.Verdict, Expected: cut(p.Expected.Summary), Actual: cut(p.Actual.Summary)}
}

// findings returns those of one side only, those that came first.
func (c *comparison) findings(before, after []report.Finding) (out []report.FindingChange) {
	const most = 200
	key := func(f *report.Finding, of, other *Facts) string {
		subject := f.Subject
		if c.focus != nil {
			subject = of.rename(subject, other)
		}
		return f.Code + "\x00" + subject
	}
	only := func(list, others []report.Finding, of, other *Facts, change string) {
		has := map[string]bool{}
		for i := range others {
			has[key(&others[i], other, of)] = true
		}
		for i := range list {
			f := &list[i]
			if has[key(f, of, other)] || f.Code == codeNotRead || len(out) >= most {
				continue
			}
			out = append(out, report.FindingChange{
				Change: change, Code: f.Code, Severity: f.Severity, Subject: cut(f.Subject), Message: cut(f.Message),
			})
		}
	}
	only(after, before, c.b, c.a, report.Added)
	only(before, after, c.a, c.b, report.Removed)
	return out
}

// codeNotRead is the finding about files that were not collected, which is no difference of the node: NotCompared
// tells.
const codeNotRead = "FileNotRead"
