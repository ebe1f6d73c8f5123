// SPDX-License-Identifier: Apache-2.0

package print

import (
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// htmlBlock is a finding, with all that it is true of.
type htmlBlock struct {
	ID        string
	Verdict   badge
	Code      string
	Parts     []htmlPart
	Folded    []htmlPart // more of them
	MoreParts int
	Fixes     []remedy
	MoreFixes int
	Links     []link
	Page      string // the address of what explains the code
}

// FewFolded tells whether the folded parts are unfolded on paper, where nobody can open them.
func (b *htmlBlock) FewFolded() bool { return len(b.Folded) <= htmlPaperParts }

// htmlPart is what a finding is true of: all of it, or one of several Services, each with its own evidence.
type htmlPart struct {
	Service      string // of several
	Of, On       []string
	Nodes        []string
	MoreOf       int
	MoreOn       int
	MoreNodes    int
	Why          string
	Example      string
	Evidence     []quotedLine
	MoreEvidence []quotedLine
	More         int // pieces of evidence
}

// link is a text that leads somewhere, where it is an address that a page may lead to.
type link struct{ Address, Text string }

// remedy is advice, and the commands for it.
type remedy struct {
	Text     string
	Commands []pasted
}

// blockOf makes a finding ready for the page. blocks are of one code; several are of as many Services.
func blockOf(id string, blocks []*block, severalNodes bool) *htmlBlock {
	b := blocks[0]
	h := &htmlBlock{ID: id, Verdict: badgeOf(b.verdict), Code: plaintext.Clean(b.code)}
	if h.Code != "" {
		h.Page = report.PageOf(h.Code)
	}
	for i, of := range blocks {
		if i == htmlServices {
			h.MoreParts = len(blocks) - i
			break
		}
		part := partOf(of, severalNodes)
		if len(blocks) > 1 {
			part.Service = plaintext.Clean(of.service)
		}
		if i < htmlOpen {
			h.Parts = append(h.Parts, part)
		} else {
			h.Folded = append(h.Folded, part)
		}
	}
	for _, l := range b.links {
		x := link{Text: plaintext.Clean(l)}
		if strings.HasPrefix(l, "https://") {
			x.Address = l
		}
		h.Links = append(h.Links, x)
	}
	fixes := fixesOf(blocks)
	for i, fix := range fixes {
		if i == htmlList {
			h.MoreFixes = len(fixes) - i
			break
		}
		h.Fixes = append(h.Fixes, remedyOf(fix))
	}
	return h
}

func partOf(b *block, severalNodes bool) htmlPart {
	h, guilty := htmlPart{Why: plaintext.Clean(b.why())}, b.verdict == report.Mismatch
	h.Of, h.MoreOf = first(b.subjects.list, htmlList)
	h.On, h.MoreOn = first(b.places(), htmlList)
	if severalNodes {
		h.Nodes, h.MoreNodes = first(b.nodes.list, htmlList)
	}
	if b.example && len(b.subjects.list) > 0 {
		h.Example = plaintext.Clean(b.subjects.list[0])
	}
	for _, q := range quotesOf(b.evidence) {
		q.Guilty = q.Guilty && guilty
		if q.of < htmlEvidence || len(b.evidence) == htmlEvidence+1 {
			h.Evidence = append(h.Evidence, q)
		} else {
			h.MoreEvidence = append(h.MoreEvidence, q)
		}
	}
	if h.MoreEvidence != nil {
		h.More = len(b.evidence) - htmlEvidence
	}
	return h
}

func remedyOf(r report.Remedy) remedy {
	out := remedy{Text: plaintext.Clean(r.Text)}
	for _, c := range led(r.Commands) {
		out.Commands = append(out.Commands, pasted{Lead: plaintext.Clean(c.Lead), Line: plaintext.Clean(c.Line)})
	}
	return out
}
