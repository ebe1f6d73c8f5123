// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"net/netip"
	"slices"
)

// Policy is what must happen to packets to a frontend from any source: Path for each class of clients that kube-proxy
// distinguishes. The classes are matched in this order: pods of the node, the node itself, all others.
type Policy struct {
	Frontend        Frontend
	AffinitySeconds int32
	// Pods matches packets of the node's pods; nil: kube-proxy cannot recognize them, and ForOthers holds for them.
	Pods *PodMatch
	// Ranges are the allowed sources (loadBalancerSourceRanges); packets of other sources are dropped. Empty: all are
	// allowed.
	Ranges []netip.Prefix
	// NodeExempt: packets of the node itself are not subject to Ranges (KUBE-PROXY-FIREWALL of ipvs mode). DropOwnAddress:
	// packets that the node sends from the frontend's own address are dropped, in Ranges or not (KUBE-IPVS-OUT-FILTER).
	NodeExempt, DropOwnAddress bool
	// ForPods, ForNode and ForOthers are the outcomes of the classes, for sources within Ranges. ForPods is nil where Pods
	// is.
	ForPods            *Outcome
	ForNode, ForOthers Outcome
	// Unsure is the reason, in one clause, why the policy is not certain; empty where it is.
	Unsure string
}

// PodMatch recognizes packets of the node's pods by their source address or by their incoming interface
// (detectLocalMode).
type PodMatch struct {
	CIDR   netip.Prefix // the zero Prefix: by interface
	Iface  string       // the incoming interface
	Prefix bool         // Iface is a prefix of the interface's name
}

// Outcome is what happens to the packets of one class of clients. Where Action.ReachesEndpoint there are Endpoints, all
// with equal shares.
type Outcome struct {
	Action    Action
	Endpoints []Endpoint
	// Masquerade tells whether the source is translated: Never holds for sources that are not themselves an endpoint.
	Masquerade  Masquerade
	Reason, Why string
}

// unknownSource has, by family, a documentation address (RFC 5737, RFC 3849) as the source of a client about which
// nothing is known.
var unknownSource = [2]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}

// Policy returns what must happen to packets to a frontend.
func (n *Node) Policy(f Frontend) Policy {
	family := familyIndex(f.Address)
	p := Policy{Frontend: f}
	if s := n.service(f.Service); s != nil && s.families[family] != nil {
		p.Ranges = n.rangesOf(&f, s.families[family])
		if n.mode.virtual && len(p.Ranges) > 0 {
			p.NodeExempt = true
			p.DropOwnAddress = n.dropOwnAddress(&Path{Frontend: f, Origin: Origin{Kind: FromNode, Address: f.Address}},
				s.families[family])
		}
	}
	outcome := func(o Origin) Outcome {
		path := Path{Frontend: f, Origin: o, inRanges: true}
		n.fillPath(&path)
		if p.Unsure == "" {
			p.Unsure = path.Unsure
		}
		p.AffinitySeconds = max(p.AffinitySeconds, path.AffinitySeconds)
		return Outcome{
			Action: path.Action, Endpoints: path.Endpoints, Masquerade: path.Masquerade, Reason: path.Reason, Why: path.Why,
		}
	}
	if d := n.detectors[family]; d.implemented == yes {
		p.Pods = &PodMatch{CIDR: d.cidr, Iface: d.iface, Prefix: d.prefix}
		pod := Origin{Kind: FromPod, Address: unknownSource[family], Iface: d.iface}
		if d.cidr.IsValid() {
			pod.Address = d.cidr.Masked().Addr()
		}
		forPods := outcome(pod)
		p.ForPods = &forPods
	}
	p.ForNode = outcome(Origin{Kind: FromNode, Address: n.nodeIPs[family]})
	p.ForOthers = outcome(Origin{Kind: FromExternal, Address: unknownSource[family]})
	return p
}

// rangesOf returns the sources that are allowed for a frontend; nil: all.
func (n *Node) rangesOf(f *Frontend, fam *familyService) []netip.Prefix {
	if f.Kind == ClusterIP || !n.subjectToRanges(f, fam) {
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
// are known. The addresses of Frontends are among them.
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
	return sortedUnique(out)
}

// NodePortsEverywhere tells whether NodePorts of a family are served at every address of the node, loopback addresses
// aside.
func (n *Node) NodePortsEverywhere(v6 bool) bool {
	family := 0
	if v6 {
		family = 1
	}
	return n.nodePorts[family].all
}

// Scheduler is the IPVS scheduler that kube-proxy is configured with in ipvs mode; "" in other modes.
func (n *Node) Scheduler() string {
	if !n.mode.virtual {
		return ""
	}
	return n.in.Config.Scheduler
}

// MasqueradeMark is the bit of the packet mark by which kube-proxy's rules request masquerade (iptables.masqueradeBit).
func (n *Node) MasqueradeMark() uint32 { return 1 << (uint(n.in.Config.MasqueradeBit) & 31) }
