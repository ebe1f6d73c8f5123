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
		key := strings.Join([]string{verdictOf(p.Before), verdictOf(p.After), t.whatChanged(p)}, "\x00")
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
			left := len(groups) - i
			t.Linef("  … and %s of paths that differ in other ways %s", plaintext.Plural(left, "more group"), wideShows(left))
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
	before := verdictOf(g.first.Before) + " → "
	t.Add(plain, "  "+before)
	color := plain
	if s := g.first.After; s != nil {
		color = colorOf(s.Verdict)
	}
	t.Add(color, verdictOf(g.first.After))
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
	indent := len("  ") + plaintext.Width(before+verdictOf(g.first.After)) + len("  ")
	for i, line := range plaintext.Wrap(where, roomBeside(t.Width, indent)) {
		if i > 0 {
			t.Add(plain, strings.Repeat(" ", indent-len("  ")))
		}
		t.Linef("  %s", line)
	}
	for line := range strings.SplitSeq(t.whatChanged(g.first), "\n") {
		if line != "" {
			t.diffLine("   ", line)
		}
	}
}

// verdictOf is the verdict of a path at one side; "none" where there is no such path.
func verdictOf(s *report.PathSide) string {
	if s == nil {
		return "none"
	}
	return string(s.Verdict)
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
	if len(p.Gained) > 0 {
		out = append(out, "+ connections to "+t.list(p.Gained, diffNamed, ", "))
	}
	if len(p.Lost) > 0 {
		out = append(out, "- connections to "+t.list(p.Lost, diffNamed, ", "))
	}
	if len(out) == 0 && p.Before != nil && p.After != nil && p.Before.Actual != p.After.Actual {
		out = append(out, "~ "+p.Before.Actual+" → "+p.After.Actual)
	}
	return strings.Join(out, "\n")
}
