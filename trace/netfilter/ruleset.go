// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"iter"

	"github.com/svcproxy/kubectl-svcproxy/internal/parallel"
)

// Link makes a ruleset ready for walking: it gives every jump its chain and every long chain its index. Tables must not
// be changed afterwards. A jump to a chain that its table does not have stays unresolved, and the walk takes it for
// opaque.
func (rs *Ruleset) Link() {
	rs.count = 0
	for _, t := range rs.Tables {
		rs.link(t)
	}
}

// link makes a table ready, and numbers its chains.
func (rs *Ruleset) link(t *Table) {
	t.link()
	for _, c := range t.Chains {
		c.number = rs.count
		rs.count++
	}
}

// Add adds tables to a linked ruleset.
func (rs *Ruleset) Add(tables ...*Table) {
	for _, t := range tables {
		rs.link(t)
	}
	rs.Tables = append(rs.Tables, tables...)
}

func (t *Table) link() {
	var beside parallel.Group
	beside.Go(func() {
		for _, c := range t.Chains {
			c.index = newIndex(c.Rules)
		}
	})
	defer beside.Wait()
	t.byName = make(map[string]*Chain, len(t.Chains))
	rules := 0
	for _, c := range t.Chains {
		c.Table = t
		t.byName[c.Name] = c
		rules += len(c.Rules)
	}
	targets := make([]*Chain, 0, rules) // of all chains, in one piece of memory
	for _, c := range t.Chains {
		first := len(targets)
		for _, r := range c.Rules {
			for _, op := range r.Ops {
				switch j := op.(type) {
				case Jumper:
					to := t.byName[j.JumpsTo()]
					j.Resolve(to)
					if to != nil {
						targets = append(targets, to)
					}
				case Brancher:
					j.ResolveAll(t.Chain)
					j.BranchesTo(func(name string) {
						if to := t.byName[name]; to != nil {
							targets = append(targets, to)
						}
					})
				}
			}
		}
		c.targets = targets[first:len(targets):len(targets)]
	}
}

// Targets are the chains that the chain's rules jump, go or branch to, in the order of the rules, and as often as they
// do. The ruleset must be linked.
func (c *Chain) Targets() []*Chain { return c.targets }

// Chain returns the table's chain of that name, nil when there is none. The ruleset must be linked.
func (t *Table) Chain(name string) *Chain { return t.byName[name] }

// inert tells whether a base chain lets every packet through untouched.
func (c *Chain) inert() bool {
	return len(c.Rules) == 0 && c.Unread == "" && c.Base != nil && c.Base.Policy == Accept
}

// Ref names a place in a ruleset.
type Ref struct {
	Hook  Hook
	Chain *Chain
	Rule  *Rule // nil: the chain's policy, or the chain as a whole
}

// String returns "nat KUBE-SERVICES rule 3", "filter FORWARD policy", "ipvs TCP 10.96.0.1:443 rr", or "" for the zero
// Ref.
func (r Ref) String() string {
	if r.Chain == nil {
		return ""
	}
	where := r.Chain.Table.Name + " " + r.Chain.Name
	if r.Chain.Table.Backend == BackendIPVS && r.Rule != nil {
		return "ipvs " + r.Rule.Target
	}
	if r.Chain.Table.Backend == BackendNative {
		where = "nft " + where
	}
	if r.Rule == nil {
		return where + " policy"
	}
	return fmt.Sprintf("%s rule %d", where, r.Rule.Num)
}

// JumpTargets yields the names of the chains that the chain's rules jump, go or branch to.
func (c *Chain) JumpTargets() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, r := range c.Rules {
			for _, o := range r.Ops {
				more := true
				switch j := o.(type) {
				case Jumper:
					more = yield(j.JumpsTo())
				case Brancher:
					j.BranchesTo(func(name string) { more = more && yield(name) })
				}
				if !more {
					return
				}
			}
		}
	}
}
