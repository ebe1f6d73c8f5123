// SPDX-License-Identifier: Apache-2.0

package iptables

import "github.com/svcproxy/kubectl-svcproxy/trace/netfilter"

// builtin is the hook and priority of a builtin chain of a table.
type builtin struct {
	priority int
	typ      netfilter.ChainType
}

// builtins are the builtin chains of every table (net/ipv4/netfilter/iptable_*.c, uapi/linux/netfilter_ipv4.h;
// xtables_ipv4 in iptables/nft.c).
var builtins = map[string]map[netfilter.Hook]builtin{
	"raw": {netfilter.Prerouting: {priority: -300}, netfilter.Output: {priority: -300}},
	"mangle": {
		netfilter.Prerouting: {priority: -150}, netfilter.Input: {priority: -150}, netfilter.Forward: {priority: -150},
		netfilter.Output: {-150, netfilter.TypeRoute}, netfilter.Postrouting: {priority: -150},
	},
	"nat": {
		netfilter.Prerouting: {-100, netfilter.TypeNAT}, netfilter.Output: {-100, netfilter.TypeNAT},
		netfilter.Input: {100, netfilter.TypeNAT}, netfilter.Postrouting: {100, netfilter.TypeNAT},
	},
	"filter":   {netfilter.Input: {}, netfilter.Forward: {}, netfilter.Output: {}},
	"security": {netfilter.Input: {priority: 50}, netfilter.Forward: {priority: 50}, netfilter.Output: {priority: 50}},
}

var hookNames = map[string]netfilter.Hook{
	"PREROUTING": netfilter.Prerouting, "INPUT": netfilter.Input, "FORWARD": netfilter.Forward,
	"OUTPUT": netfilter.Output, "POSTROUTING": netfilter.Postrouting,
}

// nftSecurity is the priority of iptables-nft's table security: not the kernel's NF_IP_PRI_SECURITY of 50, so that it
// runs after the NAT of INPUT (xtables_ipv4 in iptables/nft.c).
const nftSecurity = 150

// baseOf returns hook, priority and type of a builtin chain, with the policy ACCEPT; nil where the table has no such
// chain.
func baseOf(backend netfilter.Backend, table string, h netfilter.Hook) *netfilter.Base {
	b, ok := builtins[table][h]
	if !ok {
		return nil
	}
	if table == "security" && backend == netfilter.BackendNFT {
		b.priority = nftSecurity
	}
	return &netfilter.Base{Hook: h, Priority: b.priority, Type: b.typ, Policy: netfilter.Accept}
}
