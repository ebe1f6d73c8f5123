// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// unreadDormant says in [netfilter.Chain] why a chain may not be walked: its table may be switched off.
const unreadDormant = "nft does not say clearly whether the table is dormant"

type (
	tableKey struct{ family, name string }
	jumpKey  struct {
		to   string
		kind netfilter.Kind
	}
)

// scope is a table in progress.
type scope struct {
	table   string
	object  *tableObject
	managed bool // iptables-save shows what iptables has in it
	foreign bool // a managed table with base chains that iptables-save does not show
	chains  []*chainObject
	decls   []*setObject
	sets    map[string]*set
	jumps   map[jumpKey]*op.Jump
	jumping sync.Mutex           // guards jumps
	rules   map[string][]*object // by chain
	source  *source
	unread  string // why its base chains are not read; "" where they are
}

// source is where a ruleset is read from.
type source struct {
	// visit calls its argument for every table, chain, rule, set and map.
	visit func(func(*object) error) error
	// rules returns what reads all of a rule, for one goroutine.
	rules func() func(*object) (fullRule, error)
	// unread says why the base chains of a table are not read; "" where they are. nil: all are.
	unread func(family, table string) string
	// whole: its rules have every condition; nft leaves out some.
	whole bool
	// wrong says where an error was found.
	wrong func(error) error
}

// Parse reads the tables of the families ip, ip6 and inet. managed tells which of them iptables-save shows (see [IPTables]); nil:
// none. These are left out, but for base chains that are not iptables' own by name, hook, type and priority: iptables-save
// leaves those out ("contains incompatible base-chains"). Tables that are dormant are left out, and those of families that IP
// packets do not meet at the hooks of the walk (bridge, arp, netdev; inet's ingress).
//
// data is the output of nft -j list ruleset. The error says what is wrong with it and where.
func Parse(data []byte, managed func(family, table string) bool) ([]*netfilter.Table, error) {
	return (&source{
		visit: func(visit func(*object) error) error {
			return read(data, func(o *object) (bool, error) { return true, visit(o) })
		},
		rules: func() func(*object) (fullRule, error) {
			return func(o *object) (full fullRule, err error) {
				err = json.Unmarshal(o.raw, &full)
				return full, err
			}
		},
		wrong: wrong,
	}).parse(managed)
}

// parse is [Parse] from a source.
func (from *source) parse(managed func(family, table string) bool) ([]*netfilter.Table, error) {
	var order []*scope
	scopes := map[tableKey]*scope{}
	in := func(family, table string) *scope {
		k := tableKey{family, table}
		s := scopes[k]
		if s == nil {
			s = &scope{
				table: table, managed: managed != nil && managed(family, table),
				source: from, sets: map[string]*set{}, jumps: map[jumpKey]*op.Jump{}, rules: map[string][]*object{},
			}
			if from.unread != nil && !s.managed {
				s.unread = from.unread(family, table)
			}
			scopes[k] = s
			order = append(order, s)
		}
		return s
	}
	err := from.visit(func(o *object) error {
		switch {
		case o.Table != nil:
			if families[o.Table.Family] != 0 {
				in(o.Table.Family, o.Table.Name).object = o.Table
			}
		case o.Chain != nil:
			if families[o.Chain.Family] != 0 {
				s := in(o.Chain.Family, o.Chain.Table)
				s.chains = append(s.chains, o.Chain)
				s.foreign = s.foreign || o.Chain.Hook != "" && !o.Chain.isBuiltin()
			}
		case o.Rule != nil:
			// What a managed table has is kept only where its chains, which come before its rules, ask for it.
			if families[o.Rule.Family] != 0 {
				if s := in(o.Rule.Family, o.Rule.Table); !s.managed || s.foreign {
					s.rules[o.Rule.Chain] = append(s.rules[o.Rule.Chain], o)
				}
			}
		case o.Set != nil:
			if families[o.Set.Family] != 0 {
				s := in(o.Set.Family, o.Set.Table)
				s.decls = append(s.decls, o.Set)
			}
		case o.Map != nil:
			if families[o.Map.Family] != 0 {
				s := in(o.Map.Family, o.Map.Table)
				s.decls = append(s.decls, o.Map)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var out []*netfilter.Table
	for _, s := range order {
		t, err := s.build()
		if err != nil {
			return nil, from.wrong(err)
		}
		if t != nil {
			out = append(out, t)
		}
	}
	return out, nil
}

// build makes the table; nil for one that the walk need not see.
func (in *scope) build() (*netfilter.Table, error) {
	if in.object == nil {
		for _, c := range in.chains {
			return nil, fmt.Errorf("chain %s %s %s is in no table of it", c.Family, c.Table, c.Name)
		}
		return nil, fmt.Errorf("there is something of a table %s, but no such table", in.table)
	}
	dormant, known := in.object.Flags.dormant()
	if dormant || in.managed && !in.foreign {
		return nil, nil // nothing of it meets a packet, or iptables-save shows it
	}
	t := &netfilter.Table{Family: families[in.object.Family], Backend: netfilter.BackendNative, Name: in.table}
	for _, d := range in.decls {
		s := in.declare(d)
		in.sets[d.Name] = s
		t.Sets = append(t.Sets, contents{s})
	}
	byName := make(map[string]*netfilter.Chain, len(in.chains))
	for _, o := range in.chains {
		base, err := o.base()
		if err != nil {
			return nil, err
		}
		if o.Hook != "" && (base == nil || in.managed && o.isBuiltin()) {
			continue
		}
		c := &netfilter.Chain{Table: t, Name: o.Name, Base: base}
		switch {
		case base != nil && !known:
			c.Unread = unreadDormant
		case base != nil:
			c.Unread = in.unread
		}
		byName[o.Name] = c
		t.Chains = append(t.Chains, c)
	}
	if err := in.fillAll(t.Chains); err != nil {
		return nil, err
	}
	if in.managed {
		t.Chains = reachable(t.Chains, byName)
	}
	return t, nil
}

// atOnce is how many of a list a goroutine takes at once.
const atOnce = 64

// fillAll reads the rules of chains.
func (in *scope) fillAll(chains []*netfilter.Chain) error {
	return sideBySide(chains, func() func(*netfilter.Chain) error {
		rule := in.source.rules()
		return func(c *netfilter.Chain) error { return in.fill(c, rule) }
	})
}

// sideBySide does something with each of a list, in as many goroutines as there are processors; worker is asked for once by each. The error is that
// of the first in the list that has one.
func sideBySide[T any](list []T, worker func() func(T) error) error {
	parts := slices.Collect(slices.Chunk(list, atOnce))
	errs := make([]error, len(parts))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(len(parts), runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			do := worker()
			for n := int(next.Add(1)) - 1; n < len(parts); n = int(next.Add(1)) - 1 {
				for _, x := range parts[n] {
					if errs[n] = do(x); errs[n] != nil {
						break
					}
				}
			}
		})
	}
	wg.Wait()
	if at := slices.IndexFunc(errs, func(err error) bool { return err != nil }); at >= 0 {
		return errs[at]
	}
	return nil
}

// fill reads the rules of a chain.
func (in *scope) fill(c *netfilter.Chain, rule func(*object) (fullRule, error)) error {
	objects := in.rules[c.Name]
	if len(objects) == 0 {
		return nil
	}
	rules := make([]netfilter.Rule, len(objects))
	c.Rules = make([]*netfilter.Rule, len(objects))
	for i, o := range objects {
		full, err := rule(o)
		if err != nil {
			return fmt.Errorf("rule %d of chain %s %s %s: %w", i+1, o.Rule.Family, o.Rule.Table, o.Rule.Chain, err)
		}
		r := &rules[i]
		r.Num, r.Text, r.Comment = i+1, ruleText(full.Rule.Expr, full.Rule.Comment), full.Rule.Comment
		(&builder{scope: in, rule: r}).build(full.Rule.Expr)
		c.Rules[i] = r
	}
	return nil
}

// reachable keeps the base chains, and what they lead to: the rest of a managed table iptables-save shows.
func reachable(all []*netfilter.Chain, byName map[string]*netfilter.Chain) []*netfilter.Chain {
	seen := map[*netfilter.Chain]bool{}
	var visit func(c *netfilter.Chain)
	visit = func(c *netfilter.Chain) {
		if c == nil || seen[c] {
			return
		}
		seen[c] = true
		for name := range c.LeadsTo() {
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
