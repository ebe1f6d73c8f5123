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
	frontend report.Frontend
	origin   string
}

// keyOf returns that of a path. Between nodes the address of a NodePort is each node's own, and counts by its family.
func keyOf(p *report.Path, nodes bool) pathKey {
	k := pathKey{frontend: p.Frontend, origin: p.Origin.Kind}
	if p.Service != nil {
		k.service = *p.Service
	}
	k.frontend.PortName = ""
	if nodes && k.frontend.Kind == "NodePort" {
		k.frontend.Address = "IPv4"
		if strings.Contains(p.Frontend.Address, ":") {
			k.frontend.Address = "IPv6"
		}
	}
	return k
}

// pathPair is a path on both sides; one may be nil.
type pathPair struct{ a, b *report.Path }

// pairs finds the path of the other side for each path, in the order of the first side. Of several with the same key,
// such as those of pods that rules tell apart, those from the same address belong together, then those in the same
// place. Where rules tell pods apart on one side only, the one path of the other stands for all.
func (c *comparison) pairs() (out []pathPair) {
	rest, first, last := map[pathKey][]*report.Path{}, map[pathKey]*report.Path{}, map[pathKey]*report.Path{}
	for i := range c.b.report.Paths {
		p := &c.b.report.Paths[i]
		k := keyOf(p, c.focus != nil)
		rest[k] = append(rest[k], p)
	}
	for i := range c.a.report.Paths {
		p := &c.a.report.Paths[i]
		k := keyOf(p, c.focus != nil)
		first[k] = cmp.Or(first[k], p)
		at := slices.IndexFunc(rest[k], func(q *report.Path) bool { return q.Origin.Address == p.Origin.Address })
		if at = max(at, 0); at < len(rest[k]) {
			last[k] = rest[k][at]
			rest[k] = slices.Delete(rest[k], at, at+1)
		}
		out = append(out, pathPair{p, last[k]})
	}
	var more []pathPair
	for k, list := range rest {
		for _, p := range list {
			more = append(more, pathPair{first[k], p})
		}
	}
	slices.SortFunc(more, func(x, y pathPair) int {
		a, b := keyOf(x.b, false), keyOf(y.b, false)
		return cmp.Or(
			cmp.Compare(a.service.Namespace, b.service.Namespace), cmp.Compare(a.service.Name, b.service.Name),
			cmp.Compare(a.frontend.Kind, b.frontend.Kind), cmp.Compare(a.frontend.Address, b.frontend.Address),
			cmp.Compare(a.frontend.Port, b.frontend.Port), cmp.Compare(a.origin, b.origin),
			cmp.Compare(x.b.Origin.Address, y.b.Origin.Address),
		)
	})
	return append(out, more...)
}

// paths compares the paths. Those that became wrong come first, then those that became right.
func (c *comparison) paths() {
	var ranked [4][]report.PathChange
	differ := 0
	for _, pair := range c.pairs() {
		change, differs := c.path(pair)
		if !differs {
			continue
		}
		differ++
		rank := c.rank(&change)
		if list := &ranked[rank]; len(*list) < maxPaths {
			*list = append(*list, change)
		}
	}
	c.out.Paths = slices.Concat(ranked[:]...)
	c.out.Paths = c.out.Paths[:min(len(c.out.Paths), maxPaths)]
	c.out.PathsLeft = differ - len(c.out.Paths)
}

// rank is the place of a path among those that differ. It counts what has become of the verdict.
func (c *comparison) rank(p *report.PathChange) int {
	if p.Before == nil || p.After == nil {
		if p.After != nil && p.After.Verdict.NeedsAttention() {
			return 0
		}
		return 3
	}
	before, after, v := p.Before.Verdict, p.After.Verdict, &c.out.Verdicts
	wrong := after.NeedsAttention() && !before.NeedsAttention()
	switch {
	case before == after:
		return 2
	case after == report.Unknown:
		v.Unclear++
	case before == report.Unknown:
		v.Known++
	case wrong:
		v.Broke++
	case before.NeedsAttention() && !after.NeedsAttention():
		v.Repaired++
	}
	if wrong {
		return 0
	}
	return 1
}

// path compares one path.
func (c *comparison) path(x pathPair) (out report.PathChange, differs bool) {
	one := cmp.Or(x.b, x.a)
	out = report.PathChange{Service: one.Service, Frontend: one.Frontend, Origin: one.Origin}
	out.Before, out.After = sideOf(x.a), sideOf(x.b)
	if x.a == nil || x.b == nil {
		return out, c.focus == nil || one.Verdict.NeedsAttention()
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
	only := func(of, other *report.Path) []string {
		list, not := ends(of), ends(other)
		if slices.Equal(list, not) {
			return nil
		}
		return slices.DeleteFunc(list, func(e string) bool {
			return slices.Contains(not, e) || other.Verdict == report.Unknown
		})
	}
	out.Lost, out.Gained = only(x.a, x.b), only(x.b, x.a)
	if x.a.Verdict != x.b.Verdict {
		return out, true
	}
	// Between nodes other endpoints are as each node's expectation says.
	other := len(out.Gained)+len(out.Lost) > 0 || outcome(x.a) != outcome(x.b)
	return out, differs || other && c.focus == nil
}

// ends are the endpoints that connections are sent to.
func ends(p *report.Path) (out []string) {
	for i := range p.Actual.Outcomes {
		if e := p.Actual.Outcomes[i].Endpoint; e != nil {
			out = append(out, cut(report.JoinHostPort(e.Address, e.Port)))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
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

// findings returns those of one side only, those that came first. That a file was not collected is no difference of the
// node: NotCompared tells.
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
			if has[key(f, of, other)] || f.Code == "FileNotRead" || len(out) >= most {
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
