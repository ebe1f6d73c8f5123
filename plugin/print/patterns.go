// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// sharedLimit is how many properties are shown that nodes with a finding share.
const sharedLimit = 4

// onNodes names nodes, those in a row as a range; of several how many of all they are.
func (t *text) onNodes(names []string) string {
	list := t.list(plaintext.Ranges(names), nodeLimit, ", ")
	if len(names) < 2 {
		return list
	}
	return fmt.Sprintf("%d of %d: %s", len(names), len(t.report.Nodes), list)
}

// shared says what the nodes of a block have in common that the others do not have.
func (t *text) shared(b *block) {
	t.sharedList(t.sharedBy(b))
}

// sharedList writes what nodes have in common that others do not have.
func (t *text) sharedList(list []report.Shared) {
	for i := range list {
		label := "shared"
		if i > 0 {
			label = ""
		}
		if i == sharedLimit && !t.wide {
			t.line(label, fmt.Sprintf("… and %d more", len(list)-sharedLimit), true)
			break
		}
		t.line(label, sharedText(&list[i]), true)
	}
}

// sharedBy returns what is shared where all patterns of the block's code are of the same nodes: a block may be of
// several Services.
func (t *text) sharedBy(b *block) []report.Shared {
	var of *report.Pattern
	for i := range t.report.Patterns {
		p := &t.report.Patterns[i]
		if p.Code != b.code {
			continue
		}
		if of != nil && (!slices.Equal(of.Nodes, p.Nodes) || of.Without != p.Without) {
			return nil
		}
		of = p
	}
	if of == nil || len(of.Nodes) != len(b.nodes.list) {
		return nil
	}
	return of.Shared
}

// relations are those of a property to its value, in words.
var relations = map[string]string{
	report.SharedIs: "is", report.SharedIsNot: "is not",
}

func sharedText(s *report.Shared) string {
	value := relations[s.Relation] + " " + s.Value
	switch {
	case s.Value == "" && s.Relation == report.SharedIs:
		value = "is not there"
	case s.Value == "":
		value = "is there"
	case s.Relation == report.SharedSince:
		value = s.Value + " or later"
	case s.Relation == report.SharedUntil:
		value = s.Value + " or earlier"
	}
	return fmt.Sprintf("%s %s: %d of these %s, %d of the other %d", s.Property, value, s.With,
		plaintext.Plural(s.OfWith, "node"), s.Without, s.OfWithout)
}
