// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// FewSourcePorts says that a rule translates the source of connections to one of so few ports that there are not enough
// for many connections.
const FewSourcePorts = "FewSourcePorts"

var _ = register(kind{
	code: FewSourcePorts, severity: warning, scope: onPath, by: fewSourcePorts,
	effect: map[string]string{"": "no more than {actual} at a time to each endpoint"},
	remedy: advice("find who owns {where}, and let it name no ports, or many (1024-65535): the kernel then finds a free " +
		"one"),
})

// enoughPorts is how many ports a rule has to name for nothing to be said. Each serves one connection to an endpoint,
// from its first packet until two minutes after its last (nf_conntrack_tcp_timeout_time_wait): with so many an endpoint
// takes one connection a second. So many the kernel also tries, before it gives up (NF_NAT_MAX_ATTEMPTS in
// nf_nat_l4proto_unique_tuple, net/netfilter/nf_nat_core.c).
const enoughPorts = 128

// fewSourcePorts: the addresses and ports of a connection, as its answers have them, must be those of no other one. Of
// the ports that the rule names the kernel takes one for which that is so (get_unique_tuple in
// net/netfilter/nf_nat_core.c); where there is none, and of a single port always, it takes one that is in use, and
// drops the first packet behind POSTROUTING (__nf_conntrack_confirm in net/netfilter/nf_conntrack_core.c).
var fewSourcePorts = &detector{stage: stageSettings, path: func(p *pathCase) []issue {
	var out []issue
	for i := range p.res.Outcomes {
		end := &p.res.Outcomes[i]
		pkt := &end.Packet
		if end.End != netfilter.Sent && end.End != netfilter.Delivered || !pkt.SNAT || pkt.SNATPorts == 0 ||
			pkt.SNATPorts >= enoughPorts {
			continue
		}
		at := slices.IndexFunc(out, func(is issue) bool { return is.where == pkt.SNATBy })
		if at < 0 {
			is := issue{
				code: FewSourcePorts, where: pkt.SNATBy, evidence: []report.Evidence{cite(pkt.SNATBy)},
				expected: "as many source ports as connections", actual: number(int(pkt.SNATPorts), "connection"),
				message: fmt.Sprintf("%s translates the source of connections to %s: of those that are open to the same "+
					"endpoint at a time, or were closed less than two minutes ago, no more than %d have one, and the kernel drops "+
					"the first packet of another", pkt.SNATBy.String(), number(int(pkt.SNATPorts), "port"), pkt.SNATPorts),
			}
			is.remedy = p.advise(kinds[FewSourcePorts].remedy, &is)
			is.remedy.Commands = append(is.remedy.Commands, p.objectAt(is.where, familyOf(p.want.Frontend))...)
			at, out = len(out), append(out, is)
		}
		if to := addressText(netip.AddrPortFrom(pkt.Dst, pkt.DstPort)); !slices.Contains(out[at].endpoints, to) {
			out[at].endpoints = append(out[at].endpoints, to)
			out[at].subject = cut(out[at].endpoints, 4)
		}
	}
	return out
}}
