// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// LeavesPod walks the packet out of the client's pod: the first segment of the connection alone.
func (c *Connection) LeavesPod() report.Segment {
	s, _ := c.clientPod()
	return s
}

// ComesTo walks the packet out of the client's pod and through its node, where nothing translates the destination.
// Where the segment is right, the outcome tells whether the packet is given to a socket of the node, or sent on.
func (c *Connection) ComesTo() (report.Segment, netfilter.Outcome) {
	if s := c.LeavesPod(); s.Verdict != report.SegmentRight {
		return s, netfilter.Outcome{}
	}
	to := &c.Start.Packet
	place := nodePlace(c.Client.Name)
	w := c.Walker(c.Client.State)
	res := w.Walk(c.Start, netfilter.Options{Enters: c.enters()})
	end, bad := c.passes(c.Client.State, to.Family, &res, func(o *netfilter.Outcome) bool {
		return (o.End == netfilter.Sent || o.End == netfilter.Delivered) && !o.Packet.DNAT && o.Packet.Dst == to.Dst
	})
	if bad != nil {
		return bad.segment("", report.SegmentClientNode, place, c.Client.Name, "nft list ruleset; iptables-save"),
			netfilter.Outcome{}
	}
	return right(report.SegmentClientNode, place, "sent on by %s", end.Packet.Out), end
}
