// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// podLink is the node's end of the link to a pod.
type podLink struct {
	dev, port string // where packets to the pod leave by; the port of it, where dev is a bridge, else dev
	pod       netip.Addr
	takes     int // the MTU of port; 0 where this is no link
	of        int // that of the pod's own interface, as the pod says it; 0 where nobody asked it
}

// tooSmall tells whether the port takes less than a size that is sent.
func (l *podLink) tooSmall(size int) bool { return l.takes > 0 && size > l.takes+endtoend.VLANHeader }

// podLinks are the links to the client and to an endpoint that are pods of the node; the zero podLink for none.
func (p *pathCase) podLinks(o *expect.Origin, end *netfilter.Outcome) (out [2]podLink) {
	link := func(dev string, a netip.Addr) podLink {
		return p.links.once(hop{dev, a}, func() podLink { return p.podLinkBy(dev, a) })
	}
	if o.Kind == expect.FromPod && !netfilter.IsUnknown(o.Iface) && p.backTo(o, end) == o.Address {
		out[0] = link(o.Iface, o.Address)
	}
	if x := &end.Packet; !netfilter.IsUnknown(x.Out) && x.Hop() == x.Dst && x.Dst != o.Address {
		out[1] = link(x.Out, x.Dst)
	}
	return out
}

// podLinkBy is the link to a pod that packets leave for by an interface; the zero podLink where it is no pod's alone.
func (p *pathCase) podLinkBy(dev string, a netip.Addr) podLink {
	l := podLink{dev: dev, port: dev, pod: a}
	if p.net.Bridge(dev) {
		l.port = p.net.Port(dev, a)
	}
	if kind, _ := p.net.Kind(l.port); kind != "veth" {
		return podLink{}
	}
	l.takes, l.of = p.net.MTU(l.port), p.mtuAt(a, l.port)
	return l
}

// mtuAt is the MTU of the interface of a pod that has an address, as the pod says it; 0 where nobody asked it, or where
// that is not the other end of the port.
func (p *pathCase) mtuAt(a netip.Addr, port string) int {
	owner, ok := p.holderOf(a)
	if !ok || owner.Pod == "" {
		return 0
	}
	x := p.peers.ask(owner)
	if x.net == nil {
		return 0
	}
	dev, _ := x.net.HasAddress(a)
	if x.net.PeerIn(p.net, dev) != port {
		return 0
	}
	return x.net.MTU(dev)
}

// narrowLink: larger packets of the pod than the node's end of its link takes are discarded there, and those to it by a
// bridge before that (veth_xmit in drivers/net/veth.c, br_dev_queue_push_xmit in net/bridge/br_forward.c). Neither
// tells anybody: these are no routers. Of TCP both ends send no more than either takes.
func (p *pathCase) narrowLink(o *expect.Origin, end *netfilter.Outcome) (evidence []string, fix report.Remedy) {
	most := clampedTo(&end.Packet)
	if end.Packet.Proto != netfilter.TCP || end.Packet.Clamped && most == 0 {
		return nil, fix
	}
	links := p.podLinks(o, end)
	if !links[0].tooSmall(links[0].of) && !links[1].tooSmall(links[1].of) {
		return nil, fix
	}
	for _, takes := range append(p.othersTake(o, end), links[0].of, links[1].of) {
		if takes > 0 && (most == 0 || takes < most) {
			most = takes
		}
	}
	for _, l := range links {
		if l.of == 0 || !l.tooSmall(most) {
			continue
		}
		evidence = append(evidence, fmt.Sprintf("ip link: %s, the node's end of the link of %s, has mtu %d; the pod's end %d",
			l.port, l.pod, l.takes, l.of))
		fix.Text = "give both ends of the link the same MTU: the CNI's configuration has it"
		fix.Commands = append(fix.Commands, p.onNode("where the pod's MTU is the right one",
			"ip", "link", "set", "dev", l.port, "mtu", fmt.Sprint(l.of)))
	}
	return evidence, fix
}

// othersTake are the MTUs which bound what an end takes that is no pod of the node with a link of its own: a client on
// the node or outside, and an endpoint elsewhere. Of a pod of another node nobody is asked.
func (p *pathCase) othersTake(o *expect.Origin, end *netfilter.Outcome) (out []int) {
	switch o.Kind {
	case expect.FromNode:
		// It announces what the interface takes by which the route to the frontend leads.
		l := p.net.Lookup(host.Query{Dst: p.want.Frontend.Address, AnyMark: true, AnyUID: true})
		if out = append(out, p.net.MTU(end.Packet.Out)); l.Known && l.Dev != "lo" {
			out = append(out, p.net.MTU(l.Dev))
		}
	case expect.FromExternal:
		out = append(out, p.net.MTU(o.Iface))
	}
	if x := &end.Packet; x.Hop() != x.Dst {
		out = append(out, p.net.MTU(x.Out))
	}
	return out
}

var byNarrowLink = stopped(endtoend.PMTUBlackHole,
	func(p *pathCase, o *expect.Origin, end *netfilter.Outcome) *obstacle {
		evidence, fix := p.narrowLink(o, end)
		if evidence == nil {
			return nil
		}
		return &obstacle{evidence: evidence, remedy: fix}
	},
	"the node's end of a pod's link takes smaller packets than the pod: larger ones are discarded there, and nobody is "+
		"told: connections hang once more is sent than fits into one")

// narrowLinks finds such links.
func (p *pathCase) narrowLinks() []issue {
	found := byNarrowLink.path(p)
	for i := range found {
		if found[i].severity == "" {
			found[i].actual = "large packets do not arrive"
		}
	}
	return found
}

// narrowPort compares the port of a bridge that leads to a pod whose own MTU nobody has asked for with the bridge,
// whose MTU follows that of its ports unless somebody has set it (br_mtu_auto_adjust in net/bridge/br_if.c).
func (p *pathCase) narrowPort(o *expect.Origin, end *netfilter.Outcome) (evidence []string) {
	for _, l := range p.podLinks(o, end) {
		if of := p.net.MTU(l.dev); l.of == 0 && l.tooSmall(of) {
			evidence = append(evidence, fmt.Sprintf("ip link: %s has mtu %d, %s mtu %d, by which it sends to %s: a bridge "+
				"discards larger packets, and tells nobody", l.dev, of, l.port, l.takes, l.pod))
		}
	}
	return evidence
}
