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
	b.apart = true
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
	if !ok || u.Data != nil && !b.finds(u.Data) {
		return false
	}
	note := &putIn{key: key, to: s, note: "set:" + s.list, removes: u.Op == "delete"}
	if (u.Op == "add" || u.Op == "update") && isClient(key) && s.remembers() {
		note.note = s.list
	}
	b.acted = true
	b.add(note)
	if u.Op != "delete" {
		b.ops = append(b.ops, stands(u.Statements).ops...)
		b.runs(&lookup{key, s})
	}
	return true
}

// putIn changes a set, and notes it.
type putIn struct {
	key     []*expr
	to      *set
	note    string
	removes bool
}

// Run implements [netfilter.Op]. The rule ends where the set is full, and does not have the element (nft_dynset_new and
// nft_dynset_eval in net/netfilter/nft_dynset.c).
func (p *putIn) Run(c *netfilter.Context) netfilter.Effect {
	var buf [maxFields]value
	key, t := values(c, p.key, buf[:0])
	if t == op.No {
		return breakOff
	}
	if p.removes || t == op.Maybe || !p.to.fills() {
		op.Note(c.Packet, p.note, "")
		return answer(t, dependsOn(p.key))
	}
	out := p.atFull(c, key)
	if out.Kind == netfilter.Unknown || p.note == p.to.list { // else the set stays as it is
		op.Note(c.Packet, p.note, "")
	}
	return out
}

// atFull is the effect where a set is full, or nearly.
func (p *putIn) atFull(c *netfilter.Context, key []value) netfilter.Effect {
	s := p.to
	c.Work += s.cost(key)
	in := op.Maybe
	if len(key) == len(s.fields) && s.wildcard < 0 && !op.Changed(c.Packet, s.list) {
		_, in = s.find(key)
	}
	switch {
	case in == op.Yes:
		return netfilter.Effect{}
	case in == op.No && s.count >= s.size && !s.timed:
		return breakOff
	}
	return netfilter.Effect{
		Kind: netfilter.Unknown,
		Why: "the set " + s.name + " has little room for more elements or none, or how many it has is not known, and " +
			"a full one ends the rule",
	}
}

const (
	// room is for the elements that may come while a node is looked at.
	room = 16
	// mostElements is the size of a set that rules fill, where none is given (nft_dynset_init).
	mostElements = 0xffff
	// lateShare of the elements may have expired: they count until the kernel removes them, but are not listed.
	lateShare = 8
)

// fills tells whether a set is full, or may soon be.
func (s *set) fills() bool {
	size := s.size
	if s.timed {
		size -= size / lateShare
	}
	return s.count < 0 || s.count+room > size
}
