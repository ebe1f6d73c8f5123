// SPDX-License-Identifier: Apache-2.0

package random

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// ruleSet is everything that is loaded for some packets.
type ruleSet struct {
	sets   []string // lines for ipset restore
	tables []*table
	odd    bool // it has odd terms, by which the packets of one test are not spread as those of many clients are
}

// table is one table, as text that its backend's tool loads.
type table struct {
	backend netfilter.Backend
	family  string   // "ip", "ip6" or "inet", as nft says
	name    string   // as iptables or nft has it
	decls   []string // of a native table: its sets and maps
	chains  []*chain
}

// chain is a list of rules.
type chain struct {
	name   string
	base   string // of a native base chain: what is between its braces besides rules; "" for others
	policy string // of a chain that iptables has built in: "ACCEPT" or "DROP"; "" for others
	rules  []string
	hooks  string // the hooks by which packets may come to it, letters of pifot
	depth  int    // base chains have 0; a chain calls deeper ones only
}

// save returns the tables of one backend and family as text for iptables-restore; "" where there are none.
func (rs *ruleSet) save(backend netfilter.Backend, family string) string {
	var b strings.Builder
	for _, t := range rs.tables {
		if t.backend != backend || t.family != family {
			continue
		}
		fmt.Fprintf(&b, "*%s\n", t.name)
		for _, c := range t.chains {
			policy := c.policy
			if policy == "" {
				policy = "-"
			}
			fmt.Fprintf(&b, ":%s %s [0:0]\n", c.name, policy)
		}
		for _, c := range t.chains {
			for _, r := range c.rules {
				fmt.Fprintf(&b, "-A %s %s\n", c.name, r)
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

// native returns the tables of nftables as text for nft -f.
func (rs *ruleSet) native() string {
	var b strings.Builder
	for _, t := range rs.tables {
		if t.backend != netfilter.BackendNative {
			continue
		}
		fmt.Fprintf(&b, "table %s %s {\n", t.family, t.name)
		for _, d := range t.decls {
			fmt.Fprintf(&b, "\t%s\n", d)
		}
		// What is jumped to has to be there first.
		chains := slices.Clone(t.chains)
		slices.SortStableFunc(chains, func(x, y *chain) int { return y.depth - x.depth })
		for _, c := range chains {
			fmt.Fprintf(&b, "\tchain %s {\n", c.name)
			if c.base != "" {
				fmt.Fprintf(&b, "\t\t%s\n", c.base)
			}
			for _, r := range c.rules {
				fmt.Fprintf(&b, "\t\t%s\n", r)
			}
			b.WriteString("\t}\n")
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// String returns all of it, with the commands that load it.
func (rs *ruleSet) String() string {
	var b strings.Builder
	if len(rs.sets) > 0 {
		fmt.Fprintf(&b, "# ipset restore\n%s\n", strings.Join(rs.sets, "\n"))
	}
	for _, s := range saves {
		if text := rs.save(s.backend, s.family); text != "" {
			fmt.Fprintf(&b, "# %s-restore\n%s", s.tool, text)
		}
	}
	if text := rs.native(); text != "" {
		fmt.Fprintf(&b, "# nft -f -\n%s", text)
	}
	return b.String()
}

// rules counts the rules.
func (rs *ruleSet) rules() (n int) {
	for _, t := range rs.tables {
		for _, c := range t.chains {
			n += len(c.rules)
		}
	}
	return n
}

// saves are the kinds of save text: by which tool it is loaded (TOOL-restore) and read (TOOL-save).
var saves = []struct {
	tool    string
	backend netfilter.Backend
	family  string
	ip      netfilter.Family
}{
	{"iptables-legacy", netfilter.BackendLegacy, "ip", netfilter.IPv4},
	{"ip6tables-legacy", netfilter.BackendLegacy, "ip6", netfilter.IPv6},
	{"iptables-nft", netfilter.BackendNFT, "ip", netfilter.IPv4},
	{"ip6tables-nft", netfilter.BackendNFT, "ip6", netfilter.IPv6},
}
