// SPDX-License-Identifier: Apache-2.0

package random

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// fillings is how often a term is tried, each time filled in anew: not everything that may be at its places goes
// together.
const fillings = 6

// vocabularyOf leaves out what this kernel, or these tools, do not take, and says so.
func vocabularyOf(t *testing.T, w *kernelNode) vocabulary {
	t.Helper()
	v := everything()
	g := &generator{Rand: rand.New(rand.NewPCG(0, 0)), vocabulary: v}
	v.sets = [4][]setType{}
	for dims, types := range g.sets {
		for _, x := range types {
			c := &chooser{Rand: g.Rand, v4: true, other: func(string) string { return "" }}
			if _, err := run(c.fill("create "+x.name+" "+x.typ+" "+x.options)+"\ndestroy "+x.name+"\n", "ipset",
				"restore"); err != nil {
				t.Logf("not taken: ipset %s: %v", x.typ, err)
				continue
			}
			v.sets[dims] = append(v.sets[dims], x)
		}
	}
	g.sets = v.sets
	for _, in := range []map[netfilter.Backend][]term{v.matches, v.targets} {
		for _, backend := range []netfilter.Backend{netfilter.BackendLegacy, netfilter.BackendNFT, netfilter.BackendNative} {
			terms := in[backend]
			in[backend] = slices.DeleteFunc(slices.Clone(terms), func(x term) bool { return !g.taken(t, w, backend, &x) })
		}
	}
	for _, terms := range []*[]term{&v.decls, &v.names} {
		*terms = slices.DeleteFunc(slices.Clone(*terms), func(x term) bool {
			x.tables = "declared"
			return !g.taken(t, w, netfilter.BackendNative, &x)
		})
	}
	return v
}

// taken tells whether a term is taken at all.
func (g *generator) taken(t *testing.T, w *kernelNode, backend netfilter.Backend, x *term) bool {
	t.Helper()
	var err error
	for i := range fillings {
		v4 := x.only == "ip" || x.only == "" && i%2 == 0
		if err = w.load(g.alone(backend, x, v4)); err == nil {
			return true
		}
	}
	why, _, _ := strings.Cut(err.Error(), "\n")
	t.Logf("not taken: %s %s: %s", backend, x.text, why)
	return false
}

// alone makes a rule set of one rule, or declaration.
func (g *generator) alone(backend netfilter.Backend, x *term, v4 bool) *ruleSet {
	hook := byte('o')
	if x.hooks != "" {
		hook = x.hooks[0]
	}
	tab, _, _ := strings.Cut(strings.Trim(x.tables, "|"), "|")
	family := map[bool]string{true: "ip", false: "ip6"}[v4]
	ch, other := &chain{name: "c", hooks: string(hook)}, &chain{name: "other", depth: 1}
	if x.only == "inet" {
		family = x.only
	}
	tb := &table{backend: backend, family: family, name: "n0", chains: []*chain{ch, other}}
	rs := &ruleSet{tables: []*table{tb}}
	c := &chooser{Rand: g.Rand, v4: v4}
	if backend != netfilter.BackendNative {
		if tab == "" {
			tab = "mangle"
		}
		c.other = g.setName(family)
		tb.name, ch.name, ch.policy = tab, hookChains[hook], "ACCEPT"
		text := c.fill(strings.NewReplacer("JUMP", "-j other", "GOTO", "-g other").Replace(x.text))
		ch.rules = []string{protocolFirst([]string{text})}
		if strings.Contains(text, "--match-set") {
			rs.sets = g.ipsets()
		}
		return rs
	}
	c.other = func(string) string { return "accept" }
	if x.tables == "declared" {
		tb.decls = []string{c.fill(x.text)}
		return rs
	}
	if tab == "" {
		tab = "filter"
	}
	for _, d := range append(slices.Clone(g.decls), g.names...) {
		tb.decls = append(tb.decls, c.fill(d.text))
	}
	ch.base = fmt.Sprintf("type %s hook %s priority 5;", tab, hookNames[hook])
	ch.rules = []string{c.fill(strings.ReplaceAll(x.text, "{chain}", "other"))}
	if ch.rules[0] == "" {
		ch.rules = nil
	}
	return rs
}
