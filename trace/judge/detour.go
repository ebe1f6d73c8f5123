// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"fmt"
	"net/netip"

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
	switch {
	case o.Kind == expect.FromNode:
		q.Local, q.AnyUID = true, true
	case !netfilter.IsUnknown(o.Iface):
		q.In = o.Iface
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
				p.onNode("to see the route of these packets", routeGet(q.Dst, q.Src, q.In, q.Mark)...),
			}, p.askLive().Commands...),
		},
	}
}

// routeGet is the command that shows the route of packets: those that come in by an interface, or, where that is "" or
// not known, the node's own.
func routeGet(dst, src netip.Addr, in string, mark uint32) []string {
	words := []string{"ip", "route", "get", dst.String(), "from", src.String()}
	if in != "" && !netfilter.IsUnknown(in) {
		words = append(words, "iif", in)
	}
	if mark != 0 {
		words = append(words, "mark", fmt.Sprintf("%#x", mark))
	}
	return words
}
