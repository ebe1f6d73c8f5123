// SPDX-License-Identifier: Apache-2.0

package program

import (
	"fmt"
	"strings"

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
// [layout.oneServer]).
func ipvsRules(p *plan.Plan, v6 bool, hooked func(*hook) bool) *iptInput {
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
	nat.masquerade(p)
	filter.forward(p)
	return &iptInput{tables: []*iptTable{nat, filter}}
}

// ipvsEntry writes the rules of an address and port.
func (l *layout) ipvsEntry(nat, filter *iptTable, p *plan.Plan, e *entry) {
	f, to := &l.fronts[e.front], e.iptTo()
	proto := strings.ToLower(e.Protocol)
	// By what the connection went to first: behind IPVS the packet has another destination. Answers, which pass OUTPUT
	// where a process of the node is the endpoint, are none of the sender's.
	sent := fmt.Sprintf("-p %s -m conntrack --ctorigdst %s --ctorigdstport %d --ctdir ORIGINAL", proto, e.Address.Addr(),
		e.Address.Port())
	own := "-s " + host(e.Address.Addr().String(), l.v6) + " "

	nat.add(topChain(p, "NAT"), "%s -j %s", to, iptChain(p.Name, "F", e.front))
	if !f.byNode.masquerade && e.Kind == expect.ClusterIP {
		// Who on the node asks without an address of his own gets the frontend's, as that is the node's now; no other node
		// could answer to that. kube-proxy does the same, for cluster IPs alone (writeIptablesRules of pkg/proxy/ipvs).
		nat.add(topChain(p, "NAT"), "%s%s -j MARK --set-xmark %s", own, to, iptMark(p))
	}
	// The translation of the address to itself passes every later one over, kube-proxy's, too, as the first one counts
	// (nf_nat_inet_fn of net/netfilter/nf_nat_core.c); the packet is left as it is, for IPVS.
	nat.add(topChain(p, "NAT"), "%s -j DNAT --to-destination %s", to, e.Address)
	nat.add(topChain(p, "POST"), "%s -j %s", sent, iptChain(p.Name, "H", f.byOthers.pool))

	if len(f.ranges) > 0 {
		ranges := iptChain(p.Name, "R", e.front)
		filter.add(topChain(p, "INPUT"), "%s -j %s", to, ranges)
		switch {
		case e.OwnKept:
			filter.add(topChain(p, "OUTPUT"), "%s%s -j DROP", own, sent)
		case !e.NodeFree:
			filter.add(topChain(p, "OUTPUT"), "%s -j %s", sent, ranges)
		}
	}
	// In no other mode does the filter of INPUT see packets to Services: what it holds is about the node's own.
	filter.add(topChain(p, "INPUT"), "%s -j ACCEPT", to)
}

// ipvsMarks writes who is masqueraded.
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

// ipvsRanges writes who is let in.
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

// ipvsHairpins writes that an endpoint which comes back to itself is masqueraded: it would take its own answer for
// somebody else's.
func (l *layout) ipvsHairpins(t *iptTable, p *plan.Plan, i int) {
	chain := iptChain(p.Name, "H", i)
	t.chain(chain)
	for _, n := range l.pools[i].ends {
		at := host(l.ends[n].address.Addr().String(), l.v6)
		t.add(chain, "-s %s -d %s -j MARK --set-xmark %s", at, at, iptMark(p))
	}
}
