// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"fmt"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// detour is the issue of a packet to a pod of the node that leaves by a gateway of another interface than that which
// the node's own packets to the pod leave by; nil where it does not.
func (p *pathCase) detour(end *netfilter.Outcome) *issue {
	pkt := &end.Packet
	if !pkt.NextHop.IsValid() || pkt.Out == "" || netfilter.IsUnknown(pkt.Out) {
		return nil
	}
	l := p.net.OwnRoute(pkt.Dst)
	if !l.Known || l.Type != host.RouteUnicast || l.Dev == "" || l.Dev == pkt.Out {
		return nil
	}
	o := &p.want.Origin
	q := host.Query{Dst: pkt.Dst, Src: o.Address, Mark: pkt.Mark, Proto: pkt.Proto, DstPort: pkt.DstPort}
	ask := []string{"ip", "route", "get", pkt.Dst.String(), "from", o.Address.String()}
	switch {
	case o.Kind == expect.FromNode:
		q.Local, q.AnyUID = true, true
	case !netfilter.IsUnknown(o.Iface):
		q.In = o.Iface
		ask = append(ask, "iif", o.Iface)
	}
	if pkt.Mark != 0 {
		ask = append(ask, "mark", fmt.Sprintf("%#x", pkt.Mark))
	}
	evidence := []string{fmt.Sprintf("%s leaves by %s via %s; the node's own packets to it by %s", pkt.Dst, pkt.Out,
		pkt.NextHop, l.Dev)}
	if met := p.net.Lookup(q); met.Known && met.Dev == pkt.Out {
		evidence = append([]string{met.By.String()}, evidence...)
	}
	return &issue{
		code: PodsCutOff, subject: cmp.Or(p.cluster.podNames[pkt.Dst], pkt.Dst.String()), predicate: true,
		message:  "is on this node, and these packets to it leave the node by a gateway: whether they come back is not known",
		evidence: say(evidence...),
		remedy: report.Remedy{
			Text: "exclude the pods of " + p.Name + " from the routing rule or the route that leads there, or find out what " +
				"has set it; real connections (trace --live) show what happens",
			Commands: append([]report.Command{
				p.onNode("", "ip", familyFlag(pkt.Dst.Is4()), "rule"),
				p.onNode("to see the route of these packets", ask...),
			}, p.askLive().Commands...),
		},
	}
}
