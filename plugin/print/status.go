// SPDX-License-Identifier: Apache-2.0

package print

import (
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// statusObject makes a StatusReport a runtime.Object, as reportObject does for reports.
type statusObject struct {
	*report.StatusReport
}

func (o *statusObject) GetObjectKind() schema.ObjectKind { return kindOf(o.APIVersion, o.Kind) }

func (o *statusObject) DeepCopyObject() runtime.Object {
	out := &statusObject{&report.StatusReport{}}
	deepCopy(o.StatusReport, out.StatusReport)
	return out
}

// Status prints a StatusReport.
func (p *Printer) Status(out *terminal.Stream, r *report.StatusReport, v View) error {
	if p.object != nil {
		return p.Object(out, &statusObject{r})
	}
	t := p.newText(v, nil)
	if p.format == "name" {
		for i := range r.Nodes {
			if r.Nodes[i].Verdict.NeedsAttention() {
				t.Linef("node/%s", r.Nodes[i].Node)
			}
		}
	} else {
		t.status(r)
	}
	return out.Text(t.Text)
}

// How much of a StatusReport is shown before the rest is counted.
const (
	statusBlocks   = 20
	statusServices = 8 // of a block
)

func (t *text) status(r *report.StatusReport) {
	t.source(r.Source)
	if r.Service != nil {
		t.say(plain, "Service", r.Service.Namespace+"/"+r.Service.Name, true)
	}
	t.say(plain, "Nodes", statusCounts(&r.Summary), true)
	if s := &r.Summary; s.Paths > 0 {
		text := plaintext.Plural(s.Paths, "path")
		if s.Settling > 0 {
			text += fmt.Sprintf(", %d of them settling: what is wrong with them does not count yet", s.Settling)
		}
		t.say(plain, "Judged", text+apart+"the oldest "+ago(s.OldestJudgedAt, t.view.Now), true)
	}
	blocks := statusBlocksOf(r)
	for i, b := range blocks {
		if i == statusBlocks && !t.wide {
			t.Blank()
			t.Linef("… and %s", andMore(len(blocks)-i, "more finding"))
			break
		}
		t.Blank()
		t.statusBlock(b, r)
	}
	if r.GroupsLeft > 0 {
		t.Linef("… and %s than are listed", plaintext.Plural(r.GroupsLeft, "more finding"))
	}
	t.Blank()
	t.lostFor(notKnown(r), "NOT KNOWN")
	t.next(t.view.Next)
	if t.view.Explain != "" {
		t.say(plain, "Explain", t.view.Explain, false)
	}
	t.conclude(r.Verdict, strings.ToUpper(verdictText(r.Verdict)), statusConclusion(r))
}

// statusCounts counts nodes by what is known of them.
func statusCounts(s *report.StatusSummary) string {
	var parts []string
	for _, n := range []struct {
		count int
		what  string
	}{
		{s.Right, "right"},
		{s.Mismatched, "wrong"},
		{s.Warnings, "with warnings"},
		{s.Unknown, "with paths that could not be judged"},
		{s.NotKnown, "not known"},
	} {
		if n.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n.count, n.what))
		}
	}
	return fmt.Sprintf("%d: %s", s.Nodes, strings.Join(parts, ", "))
}

// statusBlock is a finding on the same nodes, with the Services that it is of.
type statusBlock struct {
	*report.StatusGroup

	services []string
}

// statusBlocksOf joins groups of one code that are of the same nodes: in the order of the groups.
func statusBlocksOf(r *report.StatusReport) []*statusBlock {
	var out []*statusBlock
	at := map[[sha256.Size]byte]*statusBlock{}
	for i := range r.Groups {
		g := &r.Groups[i]
		// Which nodes are known may differ from one Service to the next, and with them what the nodes share. Of 1,000 groups
		// of 10,000 nodes only digests are kept.
		h := sha256.New()
		_, _ = fmt.Fprint(h, g.Code, " ", g.Severity, " ", g.Service != nil, " ", g.Folded > 0, " ", g.Without, " ",
			g.NotKnown, " ", g.Shared, " ", g.NotCompared)
		for _, n := range g.Nodes {
			_, _ = io.WriteString(h, " "+n)
		}
		key := [sha256.Size]byte(h.Sum(nil))
		b := at[key]
		if b == nil {
			b = &statusBlock{StatusGroup: g}
			out, at[key] = append(out, b), b
		} else if g.Since != "" && (b.Since == "" || g.Since < b.Since) {
			first := *b.StatusGroup
			first.Since, first.SinceNode = g.Since, g.SinceNode
			b.StatusGroup = &first
		}
		switch {
		case g.Service != nil:
			b.services = append(b.services, g.Service.Namespace+"/"+g.Service.Name)
		case g.Folded > 0:
			b.services = append(b.services, "up to "+plaintext.Plural(g.Folded, "more Service")+" of a node")
		}
	}
	return out
}

func (t *text) statusBlock(b *statusBlock, r *report.StatusReport) {
	v := report.AgentVerdict(b.Severity)
	t.blockHead(&block{verdict: v, code: b.Code}, b.services[:t.shownServices(b)])
	if more := len(b.services) - t.shownServices(b); more > 0 {
		t.line("", "and "+andMore(more, "more Service"), true)
	}
	where := t.list(plaintext.Ranges(b.Nodes), nodeLimit, ", ")
	count := fmt.Sprintf("%d of %s", len(b.Nodes), plaintext.Plural(r.Summary.Nodes, "node"))
	if b.NotKnown > 0 {
		count += fmt.Sprintf(" (%d not known)", b.NotKnown)
	}
	t.line("nodes", count+": "+where, true)
	if b.Since != "" {
		since := b.Since
		if when := ago(b.Since, t.view.Now); when != since {
			since += " (" + when + ")"
		}
		if len(b.Nodes) > 1 {
			since += ", first on " + b.SinceNode
		}
		t.line("since", since, true)
	}
	t.sharedList(b.Shared)
	if b.NotCompared {
		t.line("shared", "not compared: there are very many different sets of nodes", true)
	}
}

// shownServices is how many Services of a block are named.
func (t *text) shownServices(b *statusBlock) int {
	if t.wide {
		return len(b.services)
	}
	return min(len(b.services), statusServices)
}

// notKnown are the nodes of which nothing is known, as reports of nodes that could not be inspected.
func notKnown(r *report.StatusReport) (out []*report.NodeReport) {
	for i := range r.Nodes {
		if n := &r.Nodes[i]; n.Error != "" {
			out = append(out, &report.NodeReport{Node: n.Node, Error: n.Error})
		}
	}
	return out
}

// statusConclusion is the last line: how much of what was asked for the verdict holds for.
func statusConclusion(r *report.StatusReport) string {
	s := &r.Summary
	of := "on %d of " + plaintext.Plural(s.Nodes, "node")
	about := ""
	if r.Service != nil {
		about = " with " + r.Service.Namespace + "/" + r.Service.Name
	}
	rest := ""
	if s.NotKnown > 0 {
		rest = fmt.Sprintf("; %d of %s not known", s.NotKnown, plaintext.Plural(s.Nodes, "node"))
	}
	findings := plaintext.Plural(s.Findings, "finding")
	if s.Folded > 0 {
		findings += fmt.Sprintf(" and up to %d more", s.Folded)
	}
	switch r.Verdict {
	case report.Mismatch:
		return findings + about + ", " + fmt.Sprintf(of, s.Affected) + rest
	case report.Warning:
		return findings + about + ", nothing is broken, " + fmt.Sprintf(of, s.Affected) + rest
	case report.Unknown:
		if s.Unknown > 0 {
			return "some paths" + about + " " + fmt.Sprintf(of, s.Unknown) + " could not be judged, so nothing is claimed" + rest
		}
		return fmt.Sprintf("%d of %s not known, so nothing is claimed of the cluster", s.NotKnown,
			plaintext.Plural(s.Nodes, "node"))
	case report.ByDesign:
		if r.ByDesign != "" {
			return r.Service.Namespace + "/" + r.Service.Name + ": " + r.ByDesign
		}
	case report.Match:
	}
	return "nothing is wrong" + about + ", " + fmt.Sprintf(of, s.Right) + ", as their agents judged them"
}

// StatusNotKnown says which nodes nothing is known of, and why: a text for each reason.
func StatusNotKnown(r *report.StatusReport) []string {
	return uninspected(notKnown(r), "is", "are", "not known")
}

// statusNode is the node of a group on which to look first: the one that had it first, else the first.
func statusNode(g *report.StatusGroup) string {
	if slices.Contains(g.Nodes, g.SinceNode) {
		return g.SinceNode
	}
	return g.Nodes[0]
}

// StatusNext returns the Service and the node of the first group that has both; ok is false where none has.
func StatusNext(r *report.StatusReport) (service *report.ObjectRef, node string, ok bool) {
	for i := range r.Groups {
		if g := &r.Groups[i]; g.Service != nil && len(g.Nodes) > 0 {
			return g.Service, statusNode(g), true
		}
	}
	return nil, "", false
}
