// SPDX-License-Identifier: Apache-2.0

// Package infer finds out from a node's rules with which configuration kube-proxy has written them. It picks only among
// configurations that kube-proxy can have, and says so where the rules would be the same with several of them: what
// nearly all of kube-proxy's rules agree on is its configuration, what one of them does otherwise is a fault.
package infer

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
)

// Input is a node and what the API says of it.
type Input struct {
	State *nodestate.State
	Mode  string // the proxy mode that its rules are of
	// PodCIDRs are those of the Node object, and Pods addresses of pods of the node: what detectLocalMode should find.
	PodCIDRs []netip.Prefix
	Pods     []netip.Addr
	NodeIPs  []netip.Addr // the Node's internal addresses
	// NodePorts are those that Services ask for.
	NodePorts []NodePort
}

// NodePort is the NodePort of a Service port.
type NodePort struct {
	Protocol string // as ipvsadm prints it: TCP, UDP, SCTP
	Port     uint16
}

// Fact is what the rules say of one setting.
type Fact struct {
	Setting kubeproxy.Setting
	// Known: the rules can only have been written with the first of Allowed.
	Known bool
	// Allowed are configurations of which the setting may have the value, the likeliest first; empty where the rules do
	// not depend on it.
	Allowed []kubeproxy.Config
	// Families are those whose rules depend on the setting; nil: it is not one of a family.
	Families []netfilter.Family
	// Detail says in a clause what shows it.
	Detail string
}

// Configuration returns what a node's rules say of the configuration that they were written with, by setting.
func Configuration(in *Input) map[kubeproxy.Setting]Fact {
	read := readers[in.Mode]
	if read == nil {
		return nil
	}
	out := map[kubeproxy.Setting]Fact{}
	for _, f := range append(read(in), in.masqueradeBit()) {
		out[f.Setting] = f
	}
	return out
}

// readers are what reads the rules of a mode.
var readers = map[string]func(in *Input) []Fact{
	kubeproxy.IPTables: (*Input).ofIPTables,
	kubeproxy.NFTables: (*Input).ofNFTables,
	kubeproxy.IPVS:     (*Input).ofIPVS,
}

// enough is how many rules of different Services have to agree before they are taken for a configuration, where nothing
// else speaks for it.
const enough = 3

// counts has the numbers of rules by the configuration that they show.
type counts[T comparable] map[T]int

// most returns the value that most rules show, with their number and that of all; the smallest by less of several.
func (t counts[T]) most(less func(a, b T) int) (value T, votes, all int) {
	for _, v := range slices.SortedFunc(maps.Keys(t), less) {
		if all += t[v]; t[v] > votes {
			value, votes = v, t[v]
		}
	}
	return value, votes, all
}

// agree tells whether nearly all of some rules show the same: all but a tenth, or but a single one.
func agree(votes, all int) bool {
	deviating := all - votes
	return votes > 0 && (deviating*10 <= all || deviating == 1 && votes >= enough)
}

// natTables are the tables of iptables with kube-proxy's chain of all Services, in a family.
func (in *Input) natTables(f netfilter.Family) []*netfilter.Table {
	var out []*netfilter.Table
	for _, t := range in.State.Rules.Tables {
		if c := t.Chain(kubeproxy.ChainServices); t.Name == "nat" && t.Family == f && c != nil && len(c.Rules) > 0 &&
			(t.Backend == netfilter.BackendNFT || t.Backend == netfilter.BackendLegacy) {
			out = append(out, t)
		}
	}
	return out
}

// nftTable is kube-proxy's table of nftables mode in a family; nil where there is none.
func (in *Input) nftTable(f netfilter.Family) *netfilter.Table {
	for _, t := range in.State.Rules.Tables {
		if t.Backend == netfilter.BackendNative && t.Name == kubeproxy.NFTTable && t.Family == f {
			return t
		}
	}
	return nil
}

// jumps returns the chains that a rule leads to.
func jumps(r *netfilter.Rule) []string {
	var out []string
	for _, o := range r.Ops {
		switch j := o.(type) {
		case netfilter.Jumper:
			out = append(out, j.JumpsTo())
		case netfilter.Brancher:
			j.BranchesTo(func(name string) { out = append(out, name) })
		}
	}
	return out
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// choice is what a counts of a yes or no comes to. sure: a single rule is enough, as no fault makes one of that form.
func choice(s kubeproxy.Setting, t counts[bool], sure bool, set func(c *kubeproxy.Config, v bool), what string) Fact {
	v, votes, all := t.most(falseFirst)
	first, second := kubeproxy.Config{}, kubeproxy.Config{}
	set(&first, v)
	set(&second, !v)
	out := Fact{Setting: s, Allowed: []kubeproxy.Config{first, second}, Detail: ofAll(votes, all, what)}
	if agree(votes, all) && (sure || !v || votes >= enough) {
		out.Known, out.Allowed = true, out.Allowed[:1]
	}
	if all == 0 {
		out.Allowed = nil
	}
	return out
}

func byText(a, b string) int { return cmp.Compare(a, b) }
