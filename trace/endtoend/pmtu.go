// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"fmt"
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// blackHole tells whether large answers are lost on the endpoint's node: they leave by an interface of a smaller MTU
// than both pods have, and a rule drops the message that says so to the endpoint. Each pod announces the segments that
// it takes by its own MTU.
func (f *follower) blackHole(back *netfilter.Packet) (s report.Segment, lost bool) {
	if f.inPod == nil || f.fromPod == nil || f.end.Packet.Clamped || f.arrival.end.Packet.Clamped ||
		back.Proto != netfilter.TCP {
		return s, false
	}
	own := f.inPod.start.Packet.In
	sends, takes := f.podState().Host.MTU(own), f.Client.Pods[f.Pod].Host.MTU(f.fromPod.end.Packet.Out)
	out := f.node.Host.MTU(back.Out)
	if sends == 0 || takes == 0 || out == 0 || min(sends, takes) <= out {
		return s, false
	}
	a := f.arrival
	res := a.walker.TooBig(a.start, &a.end, netfilter.Reply, netip.Addr{})
	if res.Ended != "" || len(res.Outcomes) == 0 {
		return s, false
	}
	for i := range res.Outcomes {
		if x := &res.Outcomes[i]; !x.Certain || x.End != netfilter.Dropped && x.End != netfilter.Rejected {
			return s, false
		}
	}
	at := res.Outcomes[0].Where
	s = unknown(report.SegmentAnswer, nodePlace(f.node.Name), f.node.Name, "nft list ruleset; iptables-save",
		"%s drops %s, by which the endpoint would learn that its packets are too large for %s: answers that are larger "+
			"than one packet are lost", at, netfilter.TooBigName(back.Family), back.Out)
	s.Code, s.Evidence = PMTUBlackHole, []report.Evidence{f.Cite(at)}
	return with(s, fmt.Sprintf("ip link in %s: %s mtu %d", podPlace(f.to.Pod), own, sends),
		fmt.Sprintf("ip link on %s: %s mtu %d", f.node.Name, back.Out, out)), true
}
