// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

// throughVirtualServer fills in the path of packets to a frontend in ipvs mode (pkg/proxy/ipvs/proxier.go,
// syncProxyRules): every frontend has a virtual server, with or without endpoints, and its real servers are the same
// for all clients.
func (n *Node) throughVirtualServer(p *Path, s *service, fam *familyService, port *servicePort) {
	f, o := &p.Frontend, &p.Origin
	family := familyIndex(f.Address)
	if f.Kind == NodePort && !n.nodePorts[family].serves(f.Address) {
		n.unserved(p, s, port)
		return
	}
	// The rules for the source ranges run before IPVS in INPUT, and after it in OUTPUT.
	if o.Kind != FromNode && n.dropOutsideFirewall(p, fam) {
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
		p.Action, p.Reason, p.Why = Reject, ReasonNoEndpoints, n.missingEndpoints(port, Reject)
		if usesLocal && port.usable {
			p.Reason, p.Why = ReasonNoLocalEndpoints, n.missingEndpoints(port, Drop)
		}
		return
	}
	if o.Kind == FromNode && n.dropOwnAddress(p, fam) {
		return
	}
	if s.etpLocal && o.Kind != FromNode && slices.Contains(fam.externalIPs, f.Address) &&
		!slices.Contains(fam.vips, f.Address) && n.layout.IPVSExternalIPs == kubeproxy.IPVSExternalIPsRefused {
		p.Action, p.Reason = Reject, ReasonKubeProxyBug
		p.Why = "in ipvs mode this version of kube-proxy refuses what comes from elsewhere to external IPs of Services " +
			"with externalTrafficPolicy Local (the chain " + kubeproxy.IPVSChainFilter + " has no rule for them)"
		return
	}
	p.Action, p.Endpoints = DNAT, endpoints
	n.masqueradeIPVS(p, s, family)
	n.correctHairpin(p)
	if !usesLocal || len(port.local) > 0 || p.Masquerade == MasqAlways {
		return
	}
	var lost string
	switch {
	case o.Kind == FromExternal:
		lost = "its source: the answer does not come back through this node"
	case o.Kind == FromNode && f.Kind != NodePort && p.Masquerade == MasqHairpin:
		// The source of the route to an address of kube-ipvs0 is that address, which other nodes have, too
		// (fib_validate_source in net/ipv4/fib_frontend.c). That to a NodePort's is the node's own and no other's.
		lost = "the frontend's address as its source: a node that has that address, too, takes no packets from it, and " +
			"the answer does not come back here"
	default:
		return
	}
	p.Reason = ReasonNoLocalEndpoints
	p.Why = policy + " is Local, and there is " + n.missingEndpoints(port, Drop) +
		". In ipvs mode kube-proxy sends it there all the same, with " + lost
}

// dropOutsideFirewall is dropOutsideRanges for the chain KUBE-PROXY-FIREWALL: it matches address and port, so the
// ranges also apply to an external IP that is a load-balancer IP as well.
func (n *Node) dropOutsideFirewall(p *Path, fam *familyService) bool {
	f, o := &p.Frontend, &p.Origin
	if p.inRanges || f.Kind == ClusterIP || !n.subjectToRanges(f, fam) {
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

// dropOwnAddress sets Drop where the node itself is outside the source ranges, and returns whether it did: packets that
// it sends to a load-balancer IP have that same address as their source, so kube-proxy checks the node's IP instead.
func (n *Node) dropOwnAddress(p *Path, fam *familyService) bool {
	f, o := &p.Frontend, &p.Origin
	if p.inRanges || !n.features.ownAddress || len(fam.ranges) == 0 || fam.allowFromNode ||
		o.Address != f.Address ||
		f.Kind == NodePort || f.Kind == ClusterIP || !slices.Contains(fam.vips, f.Address) {
		return false
	}
	p.Action, p.Reason = Drop, ReasonSourceRange
	p.Why = "the node's own IP is outside loadBalancerSourceRanges " + prefixes(fam.ranges)
	return true
}

// masqueradeIPVS sets Masquerade as the chain KUBE-SERVICES of ipvs mode marks packets (writeIptablesRules).
func (n *Node) masqueradeIPVS(p *Path, s *service, family int) {
	f, o := &p.Frontend, &p.Origin
	p.Masquerade = MasqHairpin
	switch {
	case o.Address.IsLoopback(): // the chain's first rule returns without a mark
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
		case no: // only packets that the node sends from the cluster IP itself
			if o.Address == f.Address {
				p.Masquerade = MasqAlways
			}
		case yes:
			p.Masquerade = map[truth]Masquerade{yes: MasqHairpin, no: MasqAlways, notKnown: MasqUnknown}[d.local(o)]
		}
	}
}
