// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

var families = map[string]netfilter.Family{
	"ip": netfilter.IPv4, "ip6": netfilter.IPv6, "inet": netfilter.Inet, "arp": netfilter.ARP,
}

// ipHooks are the hooks that chains of ip and ip6 may be attached to.
var ipHooks = map[string]netfilter.Hook{
	"prerouting": netfilter.Prerouting, "input": netfilter.Input, "forward": netfilter.Forward,
	"output": netfilter.Output, "postrouting": netfilter.Postrouting,
}

// hookNames are the hooks by family and name.
var hookNames = map[string]map[string]netfilter.Hook{
	"ip": ipHooks, "ip6": ipHooks,
	"inet": {
		"prerouting": netfilter.Prerouting, "input": netfilter.Input, "forward": netfilter.Forward,
		"output": netfilter.Output, "postrouting": netfilter.Postrouting, "ingress": netfilter.Ingress,
	},
	"arp":    {"input": netfilter.Input, "output": netfilter.Output},
	"netdev": {"ingress": netfilter.Ingress, "egress": netfilter.Egress},
	"bridge": {
		"prerouting": netfilter.BridgePrerouting, "input": netfilter.BridgeInput, "forward": netfilter.BridgeForward,
		"output": netfilter.BridgeOutput, "postrouting": netfilter.BridgePostrouting,
	},
}

// tableName is how a table is called: those of families that are not of IP with the family.
func tableName(t *syntax.Table) string {
	if families[t.Family]&netfilter.Inet == 0 {
		return t.Family + " " + t.Name
	}
	return t.Name
}

var chainTypes = map[string]netfilter.ChainType{
	"filter": netfilter.TypeFilter, "nat": netfilter.TypeNAT, "route": netfilter.TypeRoute,
}

// IPTables tells whether iptables-nft or ip6tables-nft keeps its rules in a table of that name. It is what managed
// of [Compile] is on a node where iptables-save was collected.
func IPTables(family, table string) bool {
	return (family == "ip" || family == "ip6") &&
		slices.Contains([]string{"raw", "mangle", "nat", "filter", "security"}, table)
}

// base returns how a base chain is attached to its hook; nil for one at a hook that the walk's packets do not pass, and
// for one that is no base chain.
func base(t *syntax.Table, c *syntax.Chain) (*netfilter.Base, error) {
	hook, ok := hookNames[t.Family][c.Hook]
	if !ok {
		if c.Hook == "" {
			return nil, nil
		}
		return nil, fmt.Errorf("chain %s %s %s is attached to %q, which is not known", t.Family, t.Name, c.Name, c.Hook)
	}
	if c.Priority == nil {
		return nil, fmt.Errorf("chain %s %s %s has no priority", t.Family, t.Name, c.Name)
	}
	b := &netfilter.Base{Hook: hook, Priority: *c.Priority, Type: chainTypes[c.Type], Policy: netfilter.Accept}
	if hook == netfilter.Ingress || hook == netfilter.Egress {
		b.Devices = c.Devices
	}
	switch c.Policy {
	case "", "accept":
	case "drop":
		b.Policy = netfilter.Drop
	default:
		return nil, fmt.Errorf("chain %s %s %s has the policy %q", t.Family, t.Name, c.Name, c.Policy)
	}
	if _, ok := chainTypes[c.Type]; !ok {
		return nil, fmt.Errorf("chain %s %s %s is of the type %q", t.Family, t.Name, c.Name, c.Type)
	}
	return b, nil
}
