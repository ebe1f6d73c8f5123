// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// endpointOnNode finds endpoints whose address is the node's own, pods with the host network among them, that do not
// answer: their process is stopped, or its queue is full; or nothing listens, and the kernel refuses the connection
// (tcp_v4_rcv in net/ipv4/tcp_ipv4.c, __udp4_lib_rcv in net/ipv4/udp.c). Who listens in a pod's own network namespace
// is asked end to end.
var endpointOnNode = &detector{stage: stageSettings, path: func(p *pathCase) []issue {
	if p.want.Action != expect.DNAT {
		return nil
	}
	at := map[netip.AddrPort]issue{}
	sure, may := p.stoppedEnds(func(end *netfilter.Outcome) *obstacle {
		pkt := &end.Packet
		to := netip.AddrPortFrom(pkt.Dst, pkt.DstPort)
		if here, known := p.net.Local(pkt.Dst); !here || !known {
			return nil // where that is not known, one end stands for both
		}
		// A pod's address that the node has taken is EndpointAddressTaken.
		if p.placeOf(pkt.Dst).own || end.End != netfilter.Delivered || !pkt.DNAT && !pkt.Virtual.IsValid() || !p.runs(to) {
			return nil
		}
		s, found := endtoend.OnNode(p.State, pkt.Proto, to)
		if !found {
			return nil
		}
		is := issue{
			code: s.Code, subject: to.String(), endpoints: []string{to.String()}, expected: describe(p.want),
			actual: "nothing listens", message: s.Message, evidence: s.Evidence,
		}
		if s.Code != endtoend.EndpointNotListening && s.Code != endtoend.EndpointListensElse {
			is.actual = "not answered"
		}
		if is.evidence == nil {
			is.evidence = say("ss: nothing has the address " + addressText(to))
		}
		at[to] = is
		return stoppedBy(is.evidence[0].Text)
	})
	var out []issue
	for i := range sure {
		to := sure[i].to()
		if !slices.ContainsFunc(out, func(o issue) bool { return o.subject == to.String() }) {
			out = append(out, at[to])
		}
	}
	if len(sure) == 0 && len(may) > 0 {
		return p.doubted(at[may[0].to()], may)
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
