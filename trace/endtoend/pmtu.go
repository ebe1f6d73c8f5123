// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"fmt"
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// largest is how large the connection's packets may be: of TCP each end announces the segments that it takes by its own
// MTU (tcp_advertise_mss in net/ipv4/tcp_output.c), and the other one sends no larger ones; 0 where nothing limits
// them.
func (f *follower) largest() (size int) {
	if f.end.Packet.Proto != netfilter.TCP {
		return 0
	}
	if f.end.Packet.Clamped || f.arrival != nil && f.arrival.end.Packet.Clamped {
		return 1 // rules make them fit
	}
	sizes := []int{f.podMTU(f.to)}
	if f.fromPod != nil {
		sizes = append(sizes, f.Client.Pods[f.Pod].Host.MTU(f.fromPod.end.Packet.Out))
	}
	for _, of := range sizes {
		if of > 0 && (size == 0 || of < size) {
			size = of
		}
	}
	return size
}

// podMTU is the MTU of an endpoint's pod; 0 where it was not read.
func (c *Connection) podMTU(e *Endpoint) int {
	n := c.Nodes[e.Node]
	if e.Node == c.Client.Name {
		n = c.Client
	}
	if n == nil {
		return 0
	}
	p, _ := podOf(n, e.Pod)
	if p == nil {
		return 0
	}
	return p.Host.MTU(p.Host.DevOf(e.At.Addr()))
}

// largestOfAny is how large packets may be that the client's pod sends to any endpoint; 0 where nothing limits them.
func (c *Connection) largestOfAny() (size int) {
	if c.Start.Packet.Proto != netfilter.TCP {
		return 0
	}
	for i := range c.Endpoints {
		of := c.podMTU(&c.Endpoints[i])
		if of == 0 {
			return 0
		}
		size = max(size, of)
	}
	return size
}

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
