// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// pathGroup are paths that differ in the same way.
type pathGroup struct {
	first *report.PathChange
	paths []string
	of    []string // Services
}

// pathChanges writes the paths that differ; those that differ in the same way take one line.
func (t *text) pathChanges(n *report.NodeDiff) {
	t.head("PATHS")
	var groups []*pathGroup
	byWhat := map[string]*pathGroup{}
	for i := range n.Paths {
		p := &n.Paths[i]
		key := verdicts(p) + "\x00" + t.whatChanged(p)
		if t.wide {
			key += fmt.Sprint("\x00", i)
		}
		g := byWhat[key]
		if g == nil {
			g = &pathGroup{first: p}
			byWhat[key], groups = g, append(groups, g)
		}
		f := &p.Frontend
		g.paths = append(g.paths, strings.TrimSpace(
			f.Kind+" "+report.JoinHostPort(f.Address, f.Port)+protocolOf(f)+" from "+p.Origin.Kind))
		if p.Service != nil {
			if name := p.Service.Namespace + "/" + p.Service.Name; !slices.Contains(g.of, name) {
				g.of = append(g.of, name)
			}
		}
	}
	for i, g := range groups {
		if i == diffPaths && !t.wide {
			t.Linef("  … and %s that differ in other ways (-o wide shows them all)",
				plaintext.Plural(len(groups)-i, "more group")+" of paths")
			break
		}
		t.pathGroup(g)
	}
	if n.PathsLeft > 0 {
		t.Linef("  … and %s that are not listed", plaintext.Plural(n.PathsLeft, "more path"))
	}
}

func protocolOf(f *report.Frontend) string {
	if f.Protocol == "" || f.Protocol == "TCP" {
		return ""
	}
	return "/" + f.Protocol
}

func (t *text) pathGroup(g *pathGroup) {
	before, after := "none", "none"
	t.Addf("  ")
	if s := g.first.Before; s != nil {
		before = string(s.Verdict)
	}
	t.Addf("%s → ", before)
	color := plain
	if s := g.first.After; s != nil {
		after, color = string(s.Verdict), colorOf(s.Verdict)
	}
	t.Add(color, after)
	where := some(g.paths, diffNamed)
	if len(g.paths) > diffNamed {
		where = plaintext.Plural(len(g.paths), "path")
	}
	if len(g.of) > 0 {
		of := some(g.of, diffNamed)
		if where = of + ": " + where; len(g.paths) > diffNamed {
			where = plaintext.Plural(len(g.paths), "path") + " of " + of
		}
	}
	t.Linef("  %s", where)
	for line := range strings.SplitSeq(t.whatChanged(g.first), "\n") {
		if line != "" {
			t.diffLine("   ", line)
		}
	}
}

func verdicts(p *report.PathChange) string {
	name := func(s *report.PathSide) string {
		if s == nil {
			return "none"
		}
		return string(s.Verdict)
	}
	return name(p.Before) + " → " + name(p.After)
}

// whatChanged says what of a path differs, in lines.
func (t *text) whatChanged(p *report.PathChange) string {
	var out []string
	for _, f := range slices.Concat(p.Came, p.Went) {
		if f.Severity == report.Info && !t.wide {
			continue
		}
		out = append(out, sign(f.Change)+" "+f.Code+spaced(f.Subject))
	}
	most := diffNamed
	if t.wide {
		most = len(p.Gained) + len(p.Lost)
	}
	if len(p.Gained) > 0 {
		out = append(out, "+ connections to "+some(p.Gained, most))
	}
	if len(p.Lost) > 0 {
		out = append(out, "- connections to "+some(p.Lost, most))
	}
	if len(out) == 0 && p.Before != nil && p.After != nil && p.Before.Actual != p.After.Actual {
		out = append(out, "~ "+p.Before.Actual+" → "+p.After.Actual)
	}
	return strings.Join(out, "\n")
}
