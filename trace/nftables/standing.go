// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// standing are the statements that stand on an element of a set, as far as they do something.
type standing struct {
	ops  []netfilter.Op
	text string
}

// onElements are the statements that the kernel lets stand on an element (those with NFT_EXPR_STATEFUL), by name.
var onElements = []string{"counter", "last", "limit", "quota", "ct count"}

// stands compiles the statements of an element: one that only counts does nothing.
func stands(list []syntax.Statement) (out standing) {
	b := &builder{}
	for _, s := range list {
		name := ""
		switch s := s.(type) {
		case syntax.Plain:
			name = string(s)
		case *syntax.Limit:
			name = "limit"
		case *syntax.Quota:
			name = "quota"
		case *syntax.CTCount:
			name = "ct count"
		case *syntax.Opaque:
			name = s.Name
		}
		if !slices.Contains(onElements, name) || !b.named(name) {
			b.add(notUnderstood(s))
		}
	}
	if out.ops = b.ops; len(out.ops) > 0 {
		rule := syntax.Rule{Statements: list}
		out.text = rule.Text()
	}
	return out
}

// state notes what stands on an element.
func (s *set) state(e *element, list []syntax.Statement) {
	if len(list) == 0 {
		return
	}
	if on := stands(list); len(on.ops) > 0 {
		if s.standing == nil {
			s.standing = map[*element]standing{}
		}
		s.standing[e] = on
	}
}

// runs adds the statements of the elements that a look-up finds; false where it is by a number that is drawn.
func (b *builder) runs(l *lookup) bool {
	if len(l.in.standing) == 0 && len(l.in.added.ops) == 0 {
		return true
	}
	b.add(&elementStatements{*l})
	return len(l.key) != 1 || l.key[0].draw == nil
}

// elementStatements runs the statements of the element that a look-up finds: each may break the rule off
// (nft_set_elem_update_expr in include/net/netfilter/nf_tables.h, which nft_lookup_eval and nft_dynset_eval call).
type elementStatements struct{ lookup }

// Run implements [netfilter.Op].
func (s *elementStatements) Run(c *netfilter.Context) netfilter.Effect {
	if oneOfSeveral(c.Packet) {
		return forEach(c, s)
	}
	var buf [maxFields]value
	key, t := values(c, s.key, buf[:0])
	if t == op.No {
		return breakOff
	}
	c.Work += s.in.cost(key)
	e, _ := s.in.find(key)
	on := s.in.standing[e]
	if e == nil { // a rule may have added it
		on = s.in.added
	}
	for _, o := range on.ops {
		if out := o.Run(c); out.Kind != netfilter.Next {
			return out
		}
	}
	return netfilter.Effect{}
}
