// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// Unread says in [netfilter.Chain] why a native chain has no rules to walk.
const Unread = "nftables rules are not walked by this version"

// unreadDormant is for a table that may be switched off.
const unreadDormant = "nft does not say clearly whether the table is dormant"

var families = map[string]netfilter.Family{"ip": netfilter.IPv4, "ip6": netfilter.IPv6, "inet": netfilter.Inet}

var hookNames = map[string]netfilter.Hook{
	"prerouting": netfilter.Prerouting, "input": netfilter.Input, "forward": netfilter.Forward,
	"output": netfilter.Output, "postrouting": netfilter.Postrouting,
}

var chainTypes = map[string]netfilter.ChainType{"filter": netfilter.TypeFilter, "nat": netfilter.TypeNAT, "route": netfilter.TypeRoute}

// IPTables tells whether iptables-nft or ip6tables-nft keeps its rules in a table of that name. It is what [Foreign] takes for
// managed on a node where iptables-save was collected.
func IPTables(family, table string) bool {
	return (family == "ip" || family == "ip6") && slices.Contains([]string{"raw", "mangle", "nat", "filter", "security"}, table)
}

// builtins are the base chains of iptables-nft, by table and name: type, hook and priority (xtables_ipv4 in iptables/nft.c).
var builtins = map[[2]string]netfilter.Base{
	{"raw", "PREROUTING"}:     {Hook: netfilter.Prerouting, Priority: -300},
	{"raw", "OUTPUT"}:         {Hook: netfilter.Output, Priority: -300},
	{"mangle", "PREROUTING"}:  {Hook: netfilter.Prerouting, Priority: -150},
	{"mangle", "INPUT"}:       {Hook: netfilter.Input, Priority: -150},
	{"mangle", "FORWARD"}:     {Hook: netfilter.Forward, Priority: -150},
	{"mangle", "OUTPUT"}:      {Hook: netfilter.Output, Priority: -150, Type: netfilter.TypeRoute},
	{"mangle", "POSTROUTING"}: {Hook: netfilter.Postrouting, Priority: -150},
	{"filter", "INPUT"}:       {Hook: netfilter.Input},
	{"filter", "FORWARD"}:     {Hook: netfilter.Forward},
	{"filter", "OUTPUT"}:      {Hook: netfilter.Output},
	{"security", "INPUT"}:     {Hook: netfilter.Input, Priority: 50},
	{"security", "FORWARD"}:   {Hook: netfilter.Forward, Priority: 50},
	{"security", "OUTPUT"}:    {Hook: netfilter.Output, Priority: 50},
	{"nat", "PREROUTING"}:     {Hook: netfilter.Prerouting, Priority: -100, Type: netfilter.TypeNAT},
	{"nat", "INPUT"}:          {Hook: netfilter.Input, Priority: 100, Type: netfilter.TypeNAT},
	{"nat", "OUTPUT"}:         {Hook: netfilter.Output, Priority: -100, Type: netfilter.TypeNAT},
	{"nat", "POSTROUTING"}:    {Hook: netfilter.Postrouting, Priority: 100, Type: netfilter.TypeNAT},
}

// tableKey names a table, chainKey a chain.
type (
	tableKey struct{ family, name string }
	chainKey struct{ family, table, name string }
)

// Foreign returns the tables of families ip, ip6 and inet with base chains that iptables-save does not show, and of each
// those base chains that may do something to a packet: that have a rule, or the policy drop. Their rules stay unread, so the
// walk takes such a chain for opaque; one without rules is modelled exactly. managed tells which tables iptables-save shows
// (see [IPTables]); nil: none. Of these, too, iptables-save leaves out base chains that are not its own by name, hook, type
// and priority ("contains incompatible base-chains"), and they are returned. Tables that are dormant are not, nor those of
// families that IP packets do not meet at the hooks of the walk (bridge, arp, netdev; inet's ingress).
//
// data is the output of nft -j list ruleset. The error says what is wrong with it and where.
func Foreign(data []byte, managed func(family, table string) bool) ([]*netfilter.Table, error) {
	var order []tableKey
	tables := map[tableKey]*tableObject{}
	var chains []*chainObject
	rules := map[chainKey]bool{}
	err := read(data, func(o *object) (bool, error) {
		switch {
		case o.Table != nil:
			k := tableKey{o.Table.Family, o.Table.Name}
			if tables[k] == nil {
				order = append(order, k)
			}
			tables[k] = o.Table
		case o.Chain != nil:
			if o.Chain.Hook != "" && families[o.Chain.Family] != 0 {
				chains = append(chains, o.Chain)
			}
		default:
			if k := (chainKey{o.Rule.Family, o.Rule.Table, o.Rule.Chain}); !rules[k] {
				rules[k] = true
			}
		}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	found := map[tableKey]*netfilter.Table{}
	for _, c := range chains {
		k := tableKey{c.Family, c.Table}
		if tables[k] == nil {
			return nil, wrong(fmt.Errorf("chain %s %s %s is in no table of it", c.Family, c.Table, c.Name))
		}
		ours := managed != nil && managed(c.Family, c.Table)
		chain, err := c.base(ours, rules[chainKey{c.Family, c.Table, c.Name}])
		if err != nil {
			return nil, wrong(err)
		}
		dormant, known := tables[k].Flags.dormant()
		if chain == nil || dormant {
			continue
		}
		if !known {
			chain.Unread = unreadDormant
		}
		t := found[k]
		if t == nil {
			t = &netfilter.Table{Family: families[c.Family], Backend: netfilter.BackendNative, Name: c.Table}
			found[k] = t
		}
		chain.Table = t
		t.Chains = append(t.Chains, chain)
	}
	var out []*netfilter.Table
	for _, k := range order {
		if t := found[k]; t != nil {
			out = append(out, t)
		}
	}
	return out, nil
}

// base returns the chain as the walk is to see it; nil for one that it need not see.
func (c *chainObject) base(managed, hasRules bool) (*netfilter.Chain, error) {
	hook, ok := hookNames[c.Hook]
	if !ok {
		return nil, nil // a chain at another hook is no error
	}
	if c.Prio == nil {
		return nil, fmt.Errorf("chain %s %s %s has no priority", c.Family, c.Table, c.Name)
	}
	b := &netfilter.Base{Hook: hook, Priority: *c.Prio, Type: chainTypes[c.Type], Policy: netfilter.Accept}
	if managed {
		own, ok := builtins[[2]string{c.Table, c.Name}]
		if ok && own.Hook == b.Hook && own.Priority == b.Priority && own.Type == b.Type {
			return nil, nil // iptables-save shows it
		}
	}
	switch c.Policy {
	case "", "accept":
	case "drop":
		b.Policy = netfilter.Drop
	default:
		return nil, fmt.Errorf("chain %s %s %s has the policy %q", c.Family, c.Table, c.Name, c.Policy)
	}
	if _, ok := chainTypes[c.Type]; !ok {
		return nil, fmt.Errorf("chain %s %s %s is of the type %q", c.Family, c.Table, c.Name, c.Type)
	}
	if !hasRules && b.Policy == netfilter.Accept {
		return nil, nil // it does nothing
	}
	chain := &netfilter.Chain{Name: c.Name, Base: b}
	if hasRules {
		chain.Unread = Unread
	}
	return chain, nil
}

// KubeProxy tells whether kube-proxy's own table is there (kubernetes pkg/proxy/nftables: table kube-proxy of family ip or
// ip6): the node runs, or ran, in the mode nftables. False also for a text that cannot be read up to there.
func KubeProxy(data []byte) bool {
	if !bytes.Contains(data, []byte(`"kube-proxy"`)) {
		return false
	}
	found := false
	_ = read(data, func(o *object) (bool, error) { // what was found before an error is there
		if t := o.Table; t != nil && t.Name == "kube-proxy" && (t.Family == "ip" || t.Family == "ip6") {
			found = true
		}
		return !found, nil
	})
	return found
}
