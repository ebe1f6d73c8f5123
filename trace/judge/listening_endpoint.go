// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// endpointOnNode finds endpoints whose address is the node's own, pods with the host network among them, and at which
// nothing listens: the kernel refuses the connection (tcp_v4_rcv in net/ipv4/tcp_ipv4.c, __udp4_lib_rcv in
// net/ipv4/udp.c). Who listens in a pod's own network namespace is asked end to end.
var endpointOnNode = &detector{stage: stageSettings, path: func(p *pathCase) []issue {
	if p.want.Action != expect.DNAT {
		return nil
	}
	var out []issue
	for i := range p.res.Outcomes {
		end := &p.res.Outcomes[i]
		pkt := &end.Packet
		at := netip.AddrPortFrom(pkt.Dst, pkt.DstPort)
		if here, known := p.net.Local(pkt.Dst); !here || !known {
			continue // where that is not known, one end stands for both
		}
		if p.placeOf(pkt.Dst).own {
			continue // it is a pod's, and the node has taken it: EndpointAddressTaken
		}
		if end.End != netfilter.Delivered || !end.Certain || !pkt.DNAT && !pkt.Virtual.IsValid() || !p.runs(at) ||
			slices.ContainsFunc(out, func(o issue) bool { return o.subject == at.String() }) {
			continue
		}
		s, found := endtoend.OnNode(p.State, pkt.Proto, at)
		if !found {
			continue
		}
		out = append(out, issue{
			code: s.Code, subject: at.String(), endpoints: []string{at.String()}, expected: describe(p.want),
			actual: "nothing listens", message: s.Message, evidence: s.Evidence,
		})
		if s.Evidence == nil {
			out[len(out)-1].evidence = say("ss: nothing has the address " + addressText(at))
		}
	}
	return out
}}

// runs tells whether an address is that of an endpoint which is a pod that the API lists: where nobody has run a pod,
// as in a cluster of objects alone, nothing is expected to listen.
func (p *pathCase) runs(at netip.AddrPort) bool {
	return slices.ContainsFunc(p.want.Endpoints, func(e expect.Endpoint) bool {
		return e.Address == at && p.cluster.podsByName[e.Pod] != nil
	})
}
