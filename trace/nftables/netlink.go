// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// The attributes of tables, chains, hooks and rules (enum nft_table_attributes and so on).
const (
	tableName  = 1
	tableFlags = 2

	chainTable  = 1
	chainName   = 3
	chainHook   = 4
	chainPolicy = 5
	chainType   = 7

	hookNumber   = 1
	hookPriority = 2

	ruleTable    = 1
	ruleChain    = 2
	ruleExprs    = 4
	ruleUserData = 7

	listTable    = 1
	listSet      = 2
	listElements = 3
)

// unreadLeft says in [netfilter.Chain] why a chain's rules are not there.
const unreadLeft = "the rules of iptables in this table were not read: iptables-save was to show them"

// dump is a dump that is being read.
type dump struct {
	header *DumpHeader
	order  binary.ByteOrder
	sets   map[TableName]map[string]*dumpSet
	decls  map[*dumpSet]*setObject
	// here is the set that the last elements were of, filled are all that have elements.
	here   *dumpSet
	filled []*dumpSet

	machine machine // of the rule that is being read
	// leading are jumps and gotos by chain: many rules lead to the same one.
	leading map[int32]map[string]any
}

// ParseDump is [Parse] for what a live collector has asked the kernel for (see [DumpHeader]): it makes the same of the same rules. A table
// whose rules the dump leaves out, and that managed does not tell of, has base chains that are not read.
func ParseDump(data []byte, managed func(family, table string) bool) ([]*netfilter.Table, error) {
	h, order, rest, err := cutHeader(data)
	if err != nil {
		return nil, wrongDump(err)
	}
	d := newDump(h, order)
	return (&source{
		visit: func(visit func(*object) error) error {
			if err := d.visit(rest, visit); err != nil {
				return wrongDump(err)
			}
			return nil
		},
		rules: func() func(*object) (fullRule, error) {
			own := newDump(h, order)
			own.sets = d.sets // which nobody changes any more
			return own.fullRule
		},
		unread: d.unread,
		whole:  true,
		wrong:  wrongDump,
	}).parse(managed)
}

// fullRule reads a rule whose message is there.
func (d *dump) fullRule(o *object) (fullRule, error) {
	var a attrs
	if err := parseAttrs(o.raw, d.order, &a); err != nil {
		return fullRule{}, err
	}
	return d.rule(o.Rule.Family, d.sets[TableName{o.Rule.Family, o.Rule.Table}], a[ruleExprs], a[ruleUserData])
}

func newDump(h *DumpHeader, order binary.ByteOrder) *dump {
	return &dump{
		header: h, order: order, sets: map[TableName]map[string]*dumpSet{}, decls: map[*dumpSet]*setObject{}, leading: map[int32]map[string]any{},
	}
}

func wrongDump(err error) error { return fmt.Errorf("%s: %w", DumpFile, err) }

// unread says why the chains of a table are not read; "" where they are.
func (d *dump) unread(family, table string) string {
	if slices.Contains(d.header.Left, TableName{family, table}) {
		return unreadLeft
	}
	return ""
}

// visit calls visit for every table, chain and rule, and for every set and map that has a name.
func (d *dump) visit(data []byte, visit func(*object) error) error {
	var here ruleObject // rules of a chain come together, and share its names
	err := messages(data, d.order, func(m message) error {
		family := familyNumbers[m.family]
		if families[family] == 0 {
			return nil
		}
		switch m.kind {
		case msgNewTable:
			t, err := readTable(family, m.attrs, d.order)
			if err != nil {
				return err
			}
			return visit(&object{Table: t})
		case msgNewChain:
			c, err := readChain(family, m.attrs, d.order)
			if err != nil {
				return err
			}
			return visit(&object{Chain: c})
		case msgNewSet:
			return d.newSet(family, m.attrs, visit)
		case msgNewElement:
			return d.newElements(family, m.attrs)
		case msgNewRule:
			var a attrs
			if err := parseAttrs(m.attrs, d.order, &a); err != nil {
				return err
			}
			if here.Family != family || !isText(a[ruleTable], here.Table) || !isText(a[ruleChain], here.Chain) {
				here = ruleObject{Family: family, Table: a.text(ruleTable), Chain: a.text(ruleChain)}
			}
			rule := here
			return visit(&object{Rule: &rule, raw: m.attrs})
		}
		return nil
	})
	if err != nil {
		return err
	}
	return sideBySide(d.filled, func() func(*dumpSet) error {
		own := newDump(d.header, d.order)
		return func(s *dumpSet) error {
			if err := own.fill(s, d.decls[s]); err != nil {
				return fmt.Errorf("the set %s %s %s: %w", s.table.Family, s.table.Name, s.name, err)
			}
			return nil
		}
	})
}

// fill reads the elements of a set; o is nil for one without a name, whose elements are read where the rule is.
func (d *dump) fill(s *dumpSet, o *setObject) error {
	s.elements = make([]dumpElement, 0, len(s.lists))
	for _, l := range s.lists {
		if err := d.readElements(s, l); err != nil {
			return err
		}
	}
	s.lists = nil
	if o == nil {
		return nil
	}
	var err error
	o.Elem, err = s.list(d, s.keys)
	return err
}

// isText tells whether an attribute is a string, without making one.
func isText(attr []byte, s string) bool {
	return len(attr) == len(s)+1 && attr[len(s)] == 0 && string(attr[:len(s)]) == s
}

func (d *dump) newSet(family string, data []byte, visit func(*object) error) error {
	s, o, err := d.readSet(family, data)
	if err != nil {
		return err
	}
	table := TableName{family, o.Table}
	s.table = table
	d.here = nil
	if d.sets[table] == nil {
		d.sets[table] = map[string]*dumpSet{}
	}
	d.sets[table][o.Name] = s
	if s.flags&setAnonymous != 0 {
		return nil
	}
	d.decls[s] = o
	if o.Map != nil {
		return visit(&object{Map: o})
	}
	return visit(&object{Set: o})
}

func (d *dump) newElements(family string, data []byte) error {
	var a attrs
	if err := parseAttrs(data, d.order, &a); err != nil {
		return err
	}
	// The messages of a set come together.
	s := d.here
	if s == nil || s.table.Family != family || !isText(a[listTable], s.table.Name) || !isText(a[listSet], s.name) {
		if s = d.sets[TableName{family, a.text(listTable)}][a.text(listSet)]; s == nil {
			return fmt.Errorf("it has elements of a set %s that is not there", a.text(listSet))
		}
		d.here = s
	}
	if s.lists == nil {
		d.filled = append(d.filled, s)
	}
	s.lists = append(s.lists, a[listElements])
	return nil
}

func readTable(family string, data []byte, order binary.ByteOrder) (*tableObject, error) {
	var a attrs
	if err := parseAttrs(data, order, &a); err != nil {
		return nil, err
	}
	t := &tableObject{Family: family, Name: a.text(tableName)}
	for i, flag := range []string{"dormant", "owner", "persist"} {
		if a.num(tableFlags)>>i&1 == 1 {
			t.Flags = append(t.Flags, flag)
		}
	}
	return t, nil
}

// The names of hooks by number: those of IP (include/uapi/linux/netfilter.h), with inet's ingress behind them.
var hookNumbers = []string{"prerouting", "input", "forward", "output", "postrouting", "ingress"}

func readChain(family string, data []byte, order binary.ByteOrder) (*chainObject, error) {
	var a, hook attrs
	if err := parseAttrs(data, order, &a); err != nil {
		return nil, err
	}
	c := &chainObject{Family: family, Table: a.text(chainTable), Name: a.text(chainName)}
	if a[chainHook] == nil {
		return c, nil
	}
	if err := parseAttrs(a[chainHook], order, &hook); err != nil {
		return nil, err
	}
	n, hasNumber := hook.number(hookNumber)
	priority, hasPriority := hook.number(hookPriority)
	if !hasNumber || n >= uint64(len(hookNumbers)) || !hasPriority {
		return nil, fmt.Errorf("the hook of the chain %s is not known", c.Name)
	}
	p := int(int32(uint32(priority))) //nolint:gosec // it is signed in the kernel
	c.Hook, c.Prio, c.Type = hookNumbers[n], &p, a.text(chainType)
	if policy, ok := a.number(chainPolicy); ok {
		c.Policy = map[uint64]string{0: "drop", 1: "accept"}[policy]
		if c.Policy == "" {
			c.Policy = fmt.Sprint(policy)
		}
	}
	return c, nil
}
