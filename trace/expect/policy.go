// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"

	"net/netip"
	"slices"
)

// Policy is what must happen to packets to a frontend, whoever sends them: Path for the classes of senders that
// kube-proxy tells apart. They are asked for in this order: pods of the node, the node itself, everybody else.
type Policy struct {
	Frontend        Frontend
	AffinitySeconds int32
	// Pods tells packets of the node's pods from others; nil: nothing does, and they are Others.
	Pods *PodMatch
	// Ranges are the sources that are let in (loadBalancerSourceRanges); what others send is dropped. Empty: all are.
	Ranges []netip.Prefix
	// NodeFree: what the node itself sends is not held to Ranges (KUBE-PROXY-FIREWALL of ipvs mode). OwnKept: what it
	// sends from the frontend's own address is dropped, in Ranges or not (KUBE-IPVS-OUT-FILTER).
	NodeFree, OwnKept bool
	// ByPod, ByNode and ByOthers are the ways of the classes, for senders within Ranges. ByPod is nil where Pods is.
	ByPod            *Way
	ByNode, ByOthers Way
	// Unsure says, in one clause, why the answer is not certain.
	Unsure string
}

// PodMatch tells packets of the node's pods by one thing: their source address, or the interface that they come in by.
type PodMatch struct {
	CIDR   netip.Prefix // the zero Prefix: by interface
	Iface  string
	Prefix bool // Iface is the beginning of its name
}

// Way is where a class of senders is led. For Leads() of Action there are Endpoints, all with equal share.
type Way struct {
	Action    Action
	Endpoints []Endpoint
	// Masquerade says whether the source is translated: Never stands for where the sender is no endpoint itself.
	Masquerade  Masquerade
	Reason, Why string
}

// Documentation addresses (RFC 5737, RFC 3849) stand for a sender that nothing is known of.
var stranger = [2]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}

// Policy returns what must happen to packets to a frontend.
func (n *Node) Policy(f Frontend) Policy {
	family := familyIndex(f.Address)
	p := Policy{Frontend: f}
	if s := n.service(f.Service); s != nil && s.families[family] != nil {
		p.Ranges = n.rangesOf(&f, s.families[family])
		if n.mode.virtual && len(p.Ranges) > 0 {
			p.NodeFree = true
			p.OwnKept = n.keptFromOwn(&Path{Frontend: f, Origin: Origin{Kind: FromNode, Address: f.Address}}, s.families[family])
		}
	}
	way := func(o Origin) Way {
		path := Path{Frontend: f, Origin: o, admitted: true}
		n.fillPath(&path)
		if p.Unsure == "" {
			p.Unsure = path.Unsure
		}
		p.AffinitySeconds = max(p.AffinitySeconds, path.AffinitySeconds)
		return Way{
			Action: path.Action, Endpoints: path.Endpoints, Masquerade: path.Masquerade, Reason: path.Reason, Why: path.Why,
		}
	}
	if d := n.detectors[family]; d.implemented == yes {
		p.Pods = &PodMatch{CIDR: d.cidr, Iface: d.iface, Prefix: d.prefix}
		pod := Origin{Kind: FromPod, Address: stranger[family], Iface: d.iface}
		if d.cidr.IsValid() {
			pod.Address = d.cidr.Masked().Addr()
		}
		w := way(pod)
		p.ByPod = &w
	}
	p.ByNode = way(Origin{Kind: FromNode, Address: n.nodeIPs[family]})
	p.ByOthers = way(Origin{Kind: FromExternal, Address: stranger[family]})
	return p
}

// rangesOf returns the sources that are let in to a frontend; nil: all.
func (n *Node) rangesOf(f *Frontend, fam *familyService) []netip.Prefix {
	if f.Kind == ClusterIP || !n.heldToRanges(f, fam) {
		return nil
	}
	out := slices.Clone(fam.ranges)
	if fam.allowFromNode {
		for _, a := range fam.vips {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

// ServedAt returns the node's own addresses of a family at which NodePorts are served, as far as the node's addresses
// are known, those of Frontends among them.
func (n *Node) ServedAt(v6 bool) []netip.Addr {
	family := 0
	if v6 {
		family = 1
	}
	served := &n.nodePorts[family]
	out := slices.Clone(served.addresses)
	for a := range n.local {
		if familyIndex(a) == family && !a.IsLinkLocalUnicast() && served.serves(a) {
			out = append(out, a)
		}
	}
	return inOrder(out)
}

// Scheduler is the one of kube-proxy's ipvs mode; "" in other modes.
func (n *Node) Scheduler() string {
	if n.in.Config.Mode != kubeproxy.IPVS {
		return ""
	}
	return n.in.Config.Scheduler
}

// MasqueradeMark is the bit of the packet mark by which kube-proxy asks for masquerade (iptables.masqueradeBit).
func (n *Node) MasqueradeMark() uint32 { return 1 << (uint(n.in.Config.MasqueradeBit) & 31) }
