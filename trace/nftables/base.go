// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

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
	{"security", "INPUT"}:     {Hook: netfilter.Input, Priority: 150},
	{"security", "FORWARD"}:   {Hook: netfilter.Forward, Priority: 150},
	{"security", "OUTPUT"}:    {Hook: netfilter.Output, Priority: 150},
	{"nat", "PREROUTING"}:     {Hook: netfilter.Prerouting, Priority: -100, Type: netfilter.TypeNAT},
	{"nat", "INPUT"}:          {Hook: netfilter.Input, Priority: 100, Type: netfilter.TypeNAT},
	{"nat", "OUTPUT"}:         {Hook: netfilter.Output, Priority: -100, Type: netfilter.TypeNAT},
	{"nat", "POSTROUTING"}:    {Hook: netfilter.Postrouting, Priority: 100, Type: netfilter.TypeNAT},
}

// isBuiltin tells whether iptables-save shows a base chain of a table that iptables manages.
func (c *chainObject) isBuiltin() bool {
	own, ok := builtins[[2]string{c.Table, c.Name}]
	return ok && c.Prio != nil && own.Hook == hookNames[c.Hook] && own.Priority == *c.Prio && own.Type == chainTypes[c.Type]
}

// base returns how a base chain is hooked in; nil for one at a hook that the walk's packets do not pass, and for one that is no
// base chain.
func (c *chainObject) base() (*netfilter.Base, error) {
	hook, ok := hookNames[c.Hook]
	if !ok {
		return nil, nil // a chain at another hook is no error
	}
	if c.Prio == nil {
		return nil, fmt.Errorf("chain %s %s %s has no priority", c.Family, c.Table, c.Name)
	}
	b := &netfilter.Base{Hook: hook, Priority: *c.Prio, Type: chainTypes[c.Type], Policy: netfilter.Accept}
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
	return b, nil
}
