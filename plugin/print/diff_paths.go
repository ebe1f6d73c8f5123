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
	count int
	of    set        // Services
	paths [][]string // of each of them
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
		path := strings.TrimSpace(f.Kind + " " + report.JoinHostPort(f.Address, f.Port) + protocolOf(f))
		if p.Origin.Kind != "" { // of what kube-proxy leaves alone there is none
			path += " from " + p.Origin.Kind
		}
		name := ""
		if p.Service != nil {
			name = p.Service.Namespace + "/" + p.Service.Name
		}
		at, isNew := g.of.add(name)
		if isNew {
			g.paths = append(g.paths, nil)
		}
		g.paths[at] = append(g.paths[at], path)
		g.count++
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
	where := g.where()
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

// where names the paths of a group, each with its Service, or counts them.
func (g *pathGroup) where() string {
	if g.count > diffNamed {
		where := plaintext.Plural(g.count, "path")
		if of := some(g.of.list, diffNamed); of != "" {
			where += " of " + of
		}
		return where
	}
	parts := make([]string, len(g.paths))
	for i, paths := range g.paths {
		parts[i] = strings.Join(paths, ", ")
		if of := g.of.list[i]; of != "" {
			parts[i] = of + ": " + parts[i]
		}
	}
	return strings.Join(parts, "; ")
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
