// SPDX-License-Identifier: Apache-2.0

package program

import (
	"fmt"
	"strings"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// ipvsHooks are the hooks of the rules around virtual servers. IPVS takes packets in INPUT behind the filter, and in
// OUTPUT behind the destination NAT and ahead of the filter; what it sends on passes OUTPUT and POSTROUTING (ip_vs_ops4
// of net/netfilter/ipvs/ip_vs_core.c).
var ipvsHooks = []hook{
	{table: "nat", chain: "PREROUTING", to: "NAT"},
	{table: "nat", chain: "OUTPUT", to: "NAT"},
	{table: "nat", chain: "POSTROUTING", to: "POST"},
	{table: "filter", chain: "INPUT", to: "INPUT"},
	{table: "filter", chain: "OUTPUT", to: "OUTPUT"},
	{table: "filter", chain: "FORWARD", to: "FORWARD", last: true},
}

// ipvsRules is the iptWriter of ipvs mode. It expects that each frontend can be one virtual server (see
// [layout.oneServer]). The rules do not end by themselves: virtual servers do not, and are of no use without them.
func ipvsRules(p *plan.Plan, v6 bool, _ time.Time, hooked func(*hook) bool) *iptInput {
	l := layoutOf(p, v6)
	nat, filter := hookIn(p, ipvsHooks, hooked)
	for i := range l.entry {
		l.ipvsEntry(nat, filter, p, &l.entry[i])
	}
	for i := range l.fronts {
		l.ipvsMarks(nat, p, i)
		l.ipvsRanges(filter, p, i)
	}
	for i := range l.pools {
		l.ipvsHairpins(nat, p, i)
	}
	nat.masquerade(p, time.Time{})
	filter.forward(p, time.Time{})
	return &iptInput{tables: []*iptTable{nat, filter}}
}

// ipvsEntry writes the rules of an address and port.
func (l *layout) ipvsEntry(nat, filter *iptTable, p *plan.Plan, e *entry) {
	f, to := &l.fronts[e.front], e.iptTo()
	proto := strings.ToLower(e.Protocol)
	// Matches the original destination of the connection: behind IPVS the packet has another one. Answers, which pass
	// OUTPUT if the endpoint is a process of the node, are not matched.
	sent := fmt.Sprintf("-p %s -m conntrack --ctorigdst %s --ctorigdstport %d --ctdir ORIGINAL", proto, e.Address.Addr(),
		e.Address.Port())
	own := "-s " + host(e.Address.Addr().String(), l.v6) + " "

	nat.add(topChain(p, "NAT"), "%s -j %s", to, iptChain(p.Name, "F", e.front))
	if !f.byNode.masquerade && e.Kind == expect.ClusterIP {
		// A process of the node that does not bind an address gets the frontend's as source, as it is an address of the node
		// now; no other node could answer to it. kube-proxy masquerades the same packets, for cluster IPs only
		// (writeIptablesRules of pkg/proxy/ipvs).
		nat.add(topChain(p, "NAT"), "%s%s -j MARK --set-xmark %s", own, to, iptMark(p))
	}
	// The translation of the address to itself disables every later one, also kube-proxy's, as the first one takes effect
	// (nf_nat_inet_fn of net/netfilter/nf_nat_core.c); the packet stays unchanged for IPVS.
	nat.add(topChain(p, "NAT"), "%s -j DNAT --to-destination %s", to, e.Address)
	nat.add(topChain(p, "POST"), "%s -j %s", sent, iptChain(p.Name, "H", f.byOthers.pool))

	if len(f.ranges) > 0 {
		ranges := iptChain(p.Name, "R", e.front)
		filter.add(topChain(p, "INPUT"), "%s -j %s", to, ranges)
		switch {
		case e.DropOwnAddress:
			filter.add(topChain(p, "OUTPUT"), "%s%s -j DROP", own, sent)
		case !e.NodeExempt:
			filter.add(topChain(p, "OUTPUT"), "%s -j %s", sent, ranges)
		}
	}
	// In no other mode packets to Services pass INPUT: its other rules are for packets to the node itself.
	filter.add(topChain(p, "INPUT"), "%s -j ACCEPT", to)
}

// ipvsMarks writes the rules that mark packets for masquerade.
func (l *layout) ipvsMarks(t *iptTable, p *plan.Plan, i int) {
	f := &l.fronts[i]
	chain := iptChain(p.Name, "F", i)
	t.chain(chain)
	for _, s := range f.steps() {
		match, target := iptClass(f, s.class), "RETURN"
		if s.mark {
			target = "MARK --set-xmark " + iptMark(p)
		}
		if s.mark || s.class != anyone {
			t.add(chain, "%s-j %s", match, target)
		}
	}
}

// ipvsRanges writes the rules that drop packets from outside the source ranges.
func (l *layout) ipvsRanges(t *iptTable, p *plan.Plan, i int) {
	f := &l.fronts[i]
	if len(f.ranges) == 0 {
		return
	}
	chain := iptChain(p.Name, "R", i)
	t.chain(chain)
	for _, r := range f.ranges {
		t.add(chain, "-s %s -j RETURN", r.Masked())
	}
	t.add(chain, "-j DROP")
}

// ipvsHairpins writes the rules that masquerade connections of an endpoint to itself.
func (l *layout) ipvsHairpins(t *iptTable, p *plan.Plan, i int) {
	chain := iptChain(p.Name, "H", i)
	t.chain(chain)
	for _, n := range l.pools[i].endpoints {
		at := host(l.endpoints[n].address.Addr().String(), l.v6)
		t.add(chain, "-s %s -d %s -j MARK --set-xmark %s", at, at, iptMark(p))
	}
}
