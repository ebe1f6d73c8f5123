// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// update is add, update or delete of an element by a packet (nft_dynset.c). It records the change for later lookups of
// the set.
func (b *builder) update(u *syntax.Update) bool {
	name, isName := strings.CutPrefix(u.Set, "@")
	s := b.sets[name]
	if !isName || s == nil {
		return false
	}
	elem := u.Elem
	if with, ok := elem.(*syntax.Elem); ok {
		elem = with.Val
	}
	key, ok := b.exprs(elem)
	if !ok {
		return false
	}
	note := &putIn{key: key, note: "set:" + s.list}
	if (u.Op == "add" || u.Op == "update") && isClient(key) && s.remembers() {
		note.note = s.list
	}
	b.acted = true
	b.add(note)
	for _, s := range u.Statements {
		if !onlyCounts(s) {
			b.add(op.UnknownMatch("it depends on what the element of the set has counted: " + syntax.StatementText(s)))
		}
	}
	return true
}

// onlyCounts tells whether a statement of an element lets every packet pass.
func onlyCounts(s syntax.Statement) bool {
	name := ""
	switch s := s.(type) {
	case syntax.Plain:
		name = string(s)
	case *syntax.ObjectRef:
		name = s.Kind
	case *syntax.Opaque:
		name = s.Name
	}
	return name == "counter" || name == "last"
}

// putIn notes that a set was changed. A full set, which would end the rule, is not visible in a snapshot.
type putIn struct {
	key  []*expr
	note string
}

// Run implements [netfilter.Op].
func (p *putIn) Run(c *netfilter.Context) netfilter.Effect {
	if _, t := values(c, p.key, nil); t == op.No {
		return breakOff
	}
	op.Note(c.Packet, p.note, "")
	return netfilter.Effect{}
}
