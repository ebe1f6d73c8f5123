// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"fmt"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// withTOS gives the packet the TOS that the client's pod has set. The segment of the client's node was judged for
// packets without any: it is not known where the node makes a difference.
func (c *Connection) withTOS(judged *report.Segment, sent *netfilter.Packet) report.Segment {
	if sent.SameTOS(&c.Start.Packet) {
		return *judged
	}
	before := c.stopped()
	c.Start.Packet.KeepTOS(sent)
	after := c.stopped()
	if (before == nil) == (after == nil) {
		return *judged
	}
	tos := "a TOS that its rules set"
	if !sent.AnyTOS {
		tos = fmt.Sprintf("the TOS %#x", sent.TOS)
	}
	t, also := after, ""
	if t == nil {
		t, also = before, ", but for those of a TOS"
	}
	s := unknown(judged.Segment, nodePlace(c.Client.Name), c.Client.Name, "nft list ruleset; iptables-save",
		"the pod sends packets with %s, which the node's rules or routes ask for: %s%s", tos, t.message, also)
	s.Evidence = t.evidence
	return s
}

// stopped is what keeps the packet from leaving the client's node; nil where nothing does.
func (c *Connection) stopped() *trouble {
	res := c.Walker(c.Client.State).Walk(c.Start, netfilter.Options{Enters: c.enters()})
	_, bad := c.passes(c.Client.State, c.Start.Packet.Family, &res, func(o *netfilter.Outcome) bool {
		return o.End == netfilter.Sent || o.End == netfilter.Delivered
	})
	return bad
}
