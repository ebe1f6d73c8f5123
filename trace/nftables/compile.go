// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"slices"
	"sync"

	"github.com/svcproxy/kubectl-svcproxy/internal/parallel"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// Why the base chains of a table are not read, in [netfilter.Chain].
const (
	unreadDormant = "nft does not say clearly whether the table is dormant"
	unreadLeft    = "the rules of iptables in this table were not read: iptables-save was to show them"
)

// jumpKey is the target of a jump or goto.
type jumpKey struct {
	to   string
	kind netfilter.Kind
}

// scope is a table that is being compiled.
type scope struct {
	ruleset *syntax.Ruleset
	table   *syntax.Table
	sets    map[string]*set
	jumps   map[jumpKey]*op.Jump
	jumping sync.Mutex // guards jumps
}

// Compile makes the model of a syntax tree, whose rules it reads; it keeps nothing of the tree. managed tells which
// tables iptables-save shows (see [IPTables]); nil: none. These are left out, but for base chains that are not
// iptables' own by name, hook, type and priority, which iptables-save leaves out, and for rules that iptables cannot
// have, which it prints as others ([netfilter.Table.Instead]; iptables 1.8.9 prints tcp dport { 80, 443 } as -p tcp).
// Tables that are dormant are left out.
//
// A table whose rules were not read, and that managed does not tell of, has base chains that say so.
func Compile(rs *syntax.Ruleset, managed func(family, table string) bool) ([]*netfilter.Table, error) {
	var out []*netfilter.Table
	for _, t := range rs.Tables {
		in := &scope{ruleset: rs, table: t, sets: map[string]*set{}, jumps: map[jumpKey]*op.Jump{}}
		compiled, err := in.build(managed != nil && managed(t.Family, t.Name))
		if err != nil {
			return nil, err
		}
		if compiled != nil {
			out = append(out, compiled)
		}
	}
	return out, nil
}

// build makes the table; nil for one that the walk does not need.
func (in *scope) build(managed bool) (*netfilter.Table, error) {
	from := in.table
	if !from.Declared {
		for _, c := range from.Chains {
			return nil, fmt.Errorf("chain %s %s %s is in no table of it", from.Family, from.Name, c.Name)
		}
		return nil, fmt.Errorf("there is something of a table %s, but no such table", from.Name)
	}
	foreign := slices.ContainsFunc(from.Chains, func(c *syntax.Chain) bool {
		return c.Hook != "" && !c.IsIPTables(from.Name)
	})
	dormant, known := from.Dormant()
	mixed := managed && !from.RulesNotRead
	if dormant || managed && !foreign && !mixed {
		return nil, nil // no packet meets it, or iptables-save shows it
	}
	t := &netfilter.Table{Family: families[from.Family], Backend: netfilter.BackendNative, Name: tableName(from)}
	for _, d := range from.Sets {
		s := in.declare(d)
		in.sets[d.Name] = s
		t.Sets = append(t.Sets, contents{s})
	}
	if mixed {
		var err error
		if t.Instead, err = in.instead(); err != nil {
			return nil, err
		}
		switch {
		case !foreign && len(t.Instead) == 0:
			return nil, nil
		case !foreign:
			return t, nil
		}
	}
	byName := make(map[string]*netfilter.Chain, len(from.Chains))
	for _, c := range from.Chains {
		base, err := base(from, c)
		if err != nil {
			return nil, err
		}
		if byName[c.Name] != nil {
			return nil, fmt.Errorf("chain %s %s %s is there twice", from.Family, from.Name, c.Name)
		}
		if c.Hook != "" && (base == nil || managed && c.IsIPTables(from.Name)) {
			continue
		}
		chain := &netfilter.Chain{Table: t, Name: c.Name, Base: base}
		switch {
		case base != nil && !known:
			chain.Unread = unreadDormant
		case base != nil && from.Alien != "":
			chain.Unread = from.Alien
		case base != nil && from.RulesNotRead && !managed:
			chain.Unread = unreadLeft
		}
		byName[c.Name] = chain
		t.Chains = append(t.Chains, chain)
	}
	if err := in.fillAll(t.Chains); err != nil {
		return nil, err
	}
	if !known && !from.RulesNotRead && idle(t.Chains) {
		for _, c := range t.Chains {
			c.Unread = "" // dormant or not, nothing becomes of packets there
		}
	}
	if managed {
		t.Chains = reachable(t.Chains, byName)
	}
	return t, nil
}

// instead finds the rules of a table that no iptables has written: those that look something up in a set, or compare
// what are not ports with a range, or by their order.
func (in *scope) instead() (out []netfilter.Instead, err error) {
	own := &scope{ruleset: in.ruleset, table: in.table, sets: in.sets, jumps: map[jumpKey]*op.Jump{}}
	f := &filler{scope: own, read: in.ruleset.NewRuleReader()}
	for _, c := range in.table.Chains {
		chain := &netfilter.Chain{Name: c.Name}
		if err := f.fill(chain); err != nil {
			return nil, err
		}
		for _, i := range f.apart {
			out = append(out, netfilter.Instead{Chain: c.Name, Rules: len(chain.Rules), At: i, Rule: chain.Rules[i]})
		}
	}
	return out, nil
}

// idle tells whether chains that were read have no effect on any packet.
func idle(chains []*netfilter.Chain) bool {
	return !slices.ContainsFunc(chains, func(c *netfilter.Chain) bool {
		return c.Unread != "" && c.Unread != unreadDormant || c.Base != nil && c.Base.Policy != netfilter.Accept ||
			slices.ContainsFunc(c.Rules, func(r *netfilter.Rule) bool { return len(r.Ops) > 0 })
	})
}

// fillAll reads the rules of chains.
func (in *scope) fillAll(chains []*netfilter.Chain) error {
	return parallel.Each(chains, func() func(*netfilter.Chain) error {
		f := &filler{scope: in, read: in.ruleset.NewRuleReader()}
		return f.fill
	})
}

// filler reads the rules of chains, one after the other.
type filler struct {
	*scope

	read  syntax.RuleReader
	text  []byte // a buffer
	apart []int  // the indexes of the last chain's rules that no iptables writes
}

// fill reads the rules of a chain.
func (f *filler) fill(c *netfilter.Chain) error {
	sources := f.table.Rules(c.Name)
	if f.apart = f.apart[:0]; len(sources) == 0 {
		return nil
	}
	rules := make([]netfilter.Rule, len(sources))
	c.Rules = make([]*netfilter.Rule, len(sources))
	for i, s := range sources {
		rule, err := f.read(f.table, s)
		if err != nil {
			return fmt.Errorf("rule %d of chain %s %s %s: %w", i+1, f.table.Family, f.table.Name, c.Name, err)
		}
		r := &rules[i]
		f.text = rule.AppendText(f.text[:0])
		r.Num, r.Text, r.Comment = i+1, string(f.text), rule.Comment
		b := &builder{scope: f.scope, rule: r}
		b.build(rule.Statements)
		if b.apart {
			f.apart = append(f.apart, i)
		}
		c.Rules[i] = r
	}
	return nil
}

// reachable keeps the base chains and the chains that these jump or go to, directly or not: iptables-save shows the
// rest of a managed table.
func reachable(all []*netfilter.Chain, byName map[string]*netfilter.Chain) []*netfilter.Chain {
	seen := map[*netfilter.Chain]bool{}
	var visit func(c *netfilter.Chain)
	visit = func(c *netfilter.Chain) {
		if c == nil || seen[c] {
			return
		}
		seen[c] = true
		for name := range c.JumpTargets() {
			visit(byName[name])
		}
	}
	for _, c := range all {
		if c.Base != nil {
			visit(c)
		}
	}
	var out []*netfilter.Chain
	for _, c := range all {
		if seen[c] {
			out = append(out, c)
		}
	}
	return out
}
