// SPDX-License-Identifier: Apache-2.0

package expect

import "slices"

// ipvsOutFilter is the minor version since which a node outside loadBalancerSourceRanges is kept from the load-balancer
// IP itself (chain KUBE-IPVS-OUT-FILTER, kubernetes/kubernetes#119656).
const ipvsOutFilter = 29

// byVirtualServer is the way of packets to a frontend in ipvs mode (pkg/proxy/ipvs/proxier.go, syncProxyRules): every
// frontend has a virtual server, with an endpoint or without one, and everybody who asks for it is served by the same
// real servers.
func (n *Node) byVirtualServer(p *Path, s *service, fam *familyService, port *servicePort) {
	f, o := &p.Frontend, &p.Origin
	family := familyIndex(f.Address)
	if f.Kind == NodePort && !n.nodePorts[family].serves(f.Address) {
		n.unserved(p, s, port)
		return
	}
	// INPUT asks for the source ranges ahead of IPVS, OUTPUT behind it.
	if o.Kind != FromNode && n.outsideFirewall(p, fam) {
		return
	}
	policy, usesLocal := "externalTrafficPolicy", s.etpLocal
	if f.Kind == ClusterIP {
		policy, usesLocal = "internalTrafficPolicy", s.itpLocal
	}
	endpoints := port.cluster
	if usesLocal && len(port.local) > 0 {
		endpoints = port.local
	}
	if len(endpoints) == 0 {
		p.Action, p.Reason, p.Why = Reject, ReasonNoEndpoints, n.lack(port, Reject)
		if usesLocal && port.usable {
			p.Reason, p.Why = ReasonNoLocalEndpoints, n.lack(port, Drop)
		}
		return
	}
	if o.Kind == FromNode && n.keptFromOwn(p, fam) {
		return
	}
	p.Action, p.Endpoints = DNAT, endpoints
	n.masqueradeIPVS(p, s, family)
	n.settleHairpin(p)
	if usesLocal && len(port.local) == 0 && p.Masquerade != MasqAlways && o.Kind == FromExternal {
		p.Reason = ReasonNoLocalEndpoints
		p.Why = policy + " is Local, and there is " + n.lack(port, Drop) +
			". In ipvs mode kube-proxy sends it there all the same, " +
			"with its source: the answer does not come back through this node"
	}
}

// outsideFirewall is outsideRanges for the chain KUBE-PROXY-FIREWALL: it asks for address and port, so that an external
// IP that is a load-balancer IP, too, is held to the ranges.
func (n *Node) outsideFirewall(p *Path, fam *familyService) bool {
	f, o := &p.Frontend, &p.Origin
	if p.admitted || f.Kind == ClusterIP || !n.heldToRanges(f, fam) {
		return false
	}
	if !o.Address.IsValid() {
		p.Unsure = "the Service has loadBalancerSourceRanges, and the source address is not known"
		return false
	}
	if contains(fam.ranges, o.Address.Unmap()) || fam.allowFromNode && o.Address == f.Address {
		return false
	}
	p.Action, p.Reason = Drop, ReasonSourceRange
	p.Why = o.Address.String() + " is outside loadBalancerSourceRanges " + prefixes(fam.ranges)
	return true
}

// keptFromOwn makes a path end where the node itself is outside the source ranges: what it sends to a load-balancer IP
// has that very address for its source, so that rules about it ask for the node's IP in its place.
func (n *Node) keptFromOwn(p *Path, fam *familyService) bool {
	f, o := &p.Frontend, &p.Origin
	if p.admitted || n.features.minor < ipvsOutFilter || len(fam.ranges) == 0 || fam.allowFromNode ||
		o.Address != f.Address ||
		f.Kind == NodePort || f.Kind == ClusterIP || !slices.Contains(fam.vips, f.Address) {
		return false
	}
	p.Action, p.Reason = Drop, ReasonSourceRange
	p.Why = "the node's own IP is outside loadBalancerSourceRanges " + prefixes(fam.ranges)
	return true
}

// masqueradeIPVS is what the chain KUBE-SERVICES of ipvs mode marks (writeIptablesRules).
func (n *Node) masqueradeIPVS(p *Path, s *service, family int) {
	f, o := &p.Frontend, &p.Origin
	p.Masquerade = MasqHairpin
	switch {
	case o.Address.IsLoopback(): // the chain's first rule lets it pass unmarked
	case f.Kind != ClusterIP:
		if !s.etpLocal {
			p.Masquerade = MasqAlways
		}
	case n.in.Config.MasqueradeAll:
		p.Masquerade = MasqAlways
	default:
		d := &n.detectors[family]
		switch d.implemented {
		case notKnown:
			p.Masquerade = MasqUnknown
		case no: // only what the node sends from the cluster IP itself
			if o.Address == f.Address {
				p.Masquerade = MasqAlways
			}
		case yes:
			p.Masquerade = map[truth]Masquerade{yes: MasqHairpin, no: MasqAlways, notKnown: MasqUnknown}[d.local(o)]
		}
	}
}
