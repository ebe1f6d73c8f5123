// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Path returns what must happen to a packet from o to f. The rules are those of syncProxyRules
// (pkg/proxy/iptables/proxier.go, pkg/proxy/nftables/proxier.go) and CategorizeEndpoints (pkg/proxy/topology.go).
// Endpoints must not be changed.
func (n *Node) Path(f Frontend, o Origin) Path {
	p := Path{Frontend: f, Origin: o}
	n.fillPath(&p)
	return p
}

func (n *Node) fillPath(p *Path) {
	f := &p.Frontend
	s, fam, port := n.find(f, p)
	if p.Action == None {
		return
	}
	n.fillWith(p, s, fam, port)
	if other, ok := n.otherClaim(f); ok {
		p.Unsure = "Service " + other.String() + " claims " + f.Address.String() + " port " + strconv.Itoa(int(f.Port)) +
			" too; which of the two is served depends on chance"
	}
}

// fillWith fills in the path for the endpoints of a port, or of one of its variants.
func (n *Node) fillWith(p *Path, s *service, fam *familyService, port *servicePort) {
	f := &p.Frontend
	p.AffinitySeconds = s.affinity
	p.Unsure = port.unsure
	switch {
	case n.mode.virtual:
		n.throughVirtualServer(p, s, fam, port)
	case f.Kind == ClusterIP:
		n.internal(p, s, port)
	default:
		n.external(p, s, fam, port)
	}
	if !p.Action.ReachesEndpoint() {
		p.AffinitySeconds = 0
	}
}

// Affinity returns the session affinity timeout of a frontend's Service in seconds, whether there are endpoints or not;
// 0: no session affinity.
func (n *Node) Affinity(f Frontend) int32 {
	if s := n.service(f.Service); s != nil {
		return s.affinity
	}
	return 0
}

// find returns the Service, family and port that a frontend belongs to. Where kube-proxy programs nothing for it, find
// sets the path's Action to None with the reason.
func (n *Node) find(f *Frontend, p *Path) (*service, *familyService, *servicePort) {
	s := n.service(f.Service)
	none := func(reason, why string) (*service, *familyService, *servicePort) {
		p.Action, p.Reason, p.Why = None, reason, why
		return nil, nil, nil
	}
	switch {
	case s == nil:
		return none(ReasonNotForKubeProxy, "there is no Service "+f.Service.String())
	case s.reason != "":
		return none(s.reason, s.why)
	case s.beyond != "":
		p.Unsure = "what Service " + f.Service.String() + " has there is not known: " + s.beyond
		return none("", "")
	}
	fam := s.families[familyIndex(f.Address)]
	if fam == nil {
		return none(ReasonNotForKubeProxy, "the Service has no cluster IP of the family of "+f.Address.String())
	}
	port := fam.port(f.PortName, f.Protocol)
	if port == nil {
		return none(ReasonNotForKubeProxy,
			"the Service has no port "+strconv.Quote(f.PortName)+" of protocol "+string(f.Protocol))
	}
	var has bool
	switch f.Kind {
	case ClusterIP:
		has = fam.clusterIP == f.Address
	case ExternalIP, LoadBalancerIP: // one address may be both
		has = slices.Contains(fam.vips, f.Address) || slices.Contains(fam.externalIPs, f.Address)
		if !has && f.Kind == LoadBalancerIP && slices.Contains(s.proxied, f.Address) {
			return none(ReasonNotForKubeProxy, "the load balancer's ipMode is Proxy: "+f.Address.String()+" is served only "+
				"by the "+
				"load balancer")
		}
	case NodePort:
		has = port.spec.NodePort != 0
	}
	if !has {
		return none(ReasonNotForKubeProxy, f.Address.String()+" is not an address of kind "+string(f.Kind)+
			" that kube-proxy serves for this Service")
	}
	return s, fam, port
}

// internal fills in the path of packets to the cluster IP.
func (n *Node) internal(p *Path, s *service, port *servicePort) {
	switch {
	case !port.usable:
		n.refuse(p, port, Reject)
		return
	case s.itpLocal && len(port.local) == 0:
		n.refuse(p, port, Drop)
		return
	}
	p.Action, p.Endpoints = DNAT, port.cluster
	if s.itpLocal {
		p.Endpoints = port.local
	}
	d := &n.detectors[familyIndex(p.Frontend.Address)]
	switch {
	case n.in.Config.MasqueradeAll:
		p.Masquerade = MasqAlways
	case d.implemented == notKnown:
		p.Masquerade = MasqUnknown
	case d.implemented == no:
		p.Masquerade = MasqHairpin
	default:
		p.Masquerade = map[truth]Masquerade{yes: MasqHairpin, no: MasqAlways, notKnown: MasqUnknown}[d.local(&p.Origin)]
	}
	n.correctHairpin(p)
}

// correctHairpin corrects the masquerade of hairpin connections in modes that masquerade only those of endpoints of
// this node: the source may be an endpoint of another node.
func (n *Node) correctHairpin(p *Path) {
	if p.Masquerade != MasqHairpin || !n.mode.hairpinLocal {
		return
	}
	if slices.ContainsFunc(p.Endpoints,
		func(e Endpoint) bool { return e.Address.Addr() == p.Origin.Address && !e.Local }) {
		p.Masquerade = MasqNever
	}
}

// external fills in the path of packets to a frontend that is not a cluster IP.
func (n *Node) external(p *Path, s *service, fam *familyService, port *servicePort) {
	f, o := &p.Frontend, &p.Origin
	family := familyIndex(f.Address)
	noShortCut := n.mode.outputBeforeDNAT && o.Kind == FromNode && (f.Kind != NodePort || n.mode.nodePortsAtOutput)
	unchecked := n.mode.firewallOfNode && o.Kind != FromNode
	if n.mode.firewallFirst && !unchecked && (!noShortCut || port.usable) && n.dropOutsideRanges(p, fam) {
		return
	}
	unserved := f.Kind == NodePort && !n.nodePorts[family].serves(f.Address)
	if unserved && f.Address.IsLoopback() && n.loopbackFeature() {
		n.toProxyProcess(p, s, port, family)
		return
	}
	switch {
	case unserved && !n.mode.refusesEverywhere:
		n.unserved(p, s, port)
		return
	case !port.usable:
		n.refuse(p, port, Reject)
		return
	case unserved:
		n.unserved(p, s, port)
		return
	case !n.mode.firewallFirst && n.dropOutsideRanges(p, fam):
		return
	case noShortCut && s.etpLocal && len(port.local) == 0:
		n.refuse(p, port, Drop)
		return
	}
	n.translate(p, s, port, family)
	n.correctHairpin(p)
	if unchecked {
		n.noteUnchecked(p, fam)
	}
}

// noteUnchecked says of a source outside loadBalancerSourceRanges that kube-proxy lets it pass.
func (n *Node) noteUnchecked(p *Path, fam *familyService) {
	f, o := &p.Frontend, &p.Origin
	if p.Action != DNAT || p.inRanges || !n.subjectToRanges(f, fam) || !o.Address.IsValid() ||
		fam.admitsSource(o.Address.Unmap()) {
		return
	}
	p.Reason = ReasonKubeProxyBug
	p.Why = o.Address.String() + " is outside loadBalancerSourceRanges " + prefixes(fam.ranges) +
		", which this version of kube-proxy checks in nftables mode for packets of the node itself alone"
}

// toProxyProcess fills in the path of packets to a NodePort at a loopback address that kube-proxy serves itself
// (pkg/proxy/localnodeportproxy). It listens for TCP where there is an endpoint; other packets are rejected (chain
// nodeport-endpoints-check), or no socket listens for them.
func (n *Node) toProxyProcess(p *Path, s *service, port *servicePort, family int) {
	endpoints := port.cluster
	if s.etpLocal {
		endpoints = port.local
	}
	switch {
	case !n.nodePorts[family].proxied:
		p.Action, p.Reason = Reject, ReasonNodePortAddress
		p.Why = "nodePortAddresses does not include " + p.Frontend.Address.String() +
			", and kube-proxy rejects NodePorts there in this mode"
	case p.Frontend.Protocol != corev1.ProtocolTCP:
		p.Action, p.Reason = Reject, ReasonNodePortAddress
		p.Why = "at " + p.Frontend.Address.String() + " kube-proxy serves only NodePorts of TCP in this mode"
	case len(endpoints) == 0:
		p.Action, p.Reason = None, ReasonNoEndpoints
		p.Why = n.missingEndpoints(port, Reject) + ", so kube-proxy does not listen there"
		if s.etpLocal && port.usable {
			p.Reason, p.Why = ReasonNoLocalEndpoints, n.missingEndpoints(port, Drop)+", so kube-proxy does not listen there"
		}
	default:
		p.Action, p.Endpoints = Proxy, endpoints
	}
}

// dropOutsideRanges sets Drop where the source is outside loadBalancerSourceRanges, and returns whether it did.
func (n *Node) dropOutsideRanges(p *Path, fam *familyService) bool {
	f, o := &p.Frontend, &p.Origin
	if p.inRanges || !n.subjectToRanges(f, fam) {
		return false
	}
	if !o.Address.IsValid() {
		p.Unsure = "the Service has loadBalancerSourceRanges, and the source address is not known"
		return false
	}
	if fam.admitsSource(o.Address.Unmap()) {
		return false
	}
	p.Action, p.Reason = Drop, ReasonSourceRange
	p.Why = o.Address.String() + " is outside loadBalancerSourceRanges " + prefixes(fam.ranges)
	return true
}

// subjectToRanges tells whether loadBalancerSourceRanges apply to a frontend other than a cluster IP.
func (n *Node) subjectToRanges(f *Frontend, fam *familyService) bool {
	switch {
	case f.Kind == NodePort || len(fam.ranges) == 0:
		return false
	// matched by address and port: they also apply to an external IP that is a load-balancer IP as well
	case n.mode.virtual || n.mode.firewallFirst:
		return slices.Contains(fam.vips, f.Address)
	}
	return !slices.Contains(fam.externalIPs, f.Address)
}

// translate fills in the path of packets whose source is allowed and for which there is an endpoint.
func (n *Node) translate(p *Path, s *service, port *servicePort, family int) {
	o := &p.Origin
	p.Action = DNAT
	if !s.etpLocal {
		p.Endpoints, p.Masquerade = port.cluster, MasqAlways
		return
	}
	// The policy does not apply to pods of this node, nor to the node itself.
	isPod := n.detectors[family].local(o)
	if isPod == notKnown && sameEndpoints(port.cluster, port.local) {
		isPod = yes
	}
	switch {
	case isPod == yes:
		p.Endpoints, p.Masquerade = port.cluster, MasqHairpin
	case n.isOwn(o):
		p.Endpoints, p.Masquerade = port.cluster, MasqAlways
	case isPod == notKnown:
		p.Endpoints, p.Masquerade = port.cluster, MasqHairpin
		if p.Unsure == "" {
			p.Unsure = "externalTrafficPolicy is Local; whether kube-proxy takes the client for a pod of this node depends " +
				"on its detectLocalMode and on " +
				"the client's address and interface, which are not all known"
		}
	case len(port.local) == 0:
		n.refuse(p, port, Drop)
	default:
		p.Endpoints, p.Masquerade = port.local, MasqHairpin
		if o.Kind == FromExternal &&
			!slices.ContainsFunc(port.local, func(e Endpoint) bool { return e.Address.Addr() == o.Address }) {
			p.Masquerade = MasqNever
		}
	}
}

// isOwn tells whether a packet's source is an address of the node (-m addrtype --src-type LOCAL).
func (n *Node) isOwn(o *Origin) bool {
	return o.Kind == FromNode || o.Address.IsLoopback() || n.local[o.Address.Unmap()]
}

// admitsSource tells whether loadBalancerSourceRanges allow a source. If they allow the node's own IP, load-balancer
// IPs are allowed, too: where one is bound on the node, the node itself uses it as source.
func (f *familyService) admitsSource(a netip.Addr) bool {
	return contains(f.ranges, a) || f.allowFromNode && slices.Contains(f.vips, a)
}

func sameEndpoints(a, b []Endpoint) bool {
	return slices.EqualFunc(a, b, func(x, y Endpoint) bool { return x.Address == y.Address })
}

// unserved fills in the path of packets to a NodePort at an address where it is not served. In iptables mode the rules
// that refuse do not match the address.
func (n *Node) unserved(p *Path, s *service, port *servicePort) {
	if n.mode.refusesEverywhere && s.etpLocal && len(port.local) == 0 {
		n.refuse(p, port, Drop)
		return
	}
	p.Action, p.Reason = None, ReasonNodePortAddress
	if p.Frontend.Address.IsLoopback() {
		p.Why = "kube-proxy does not serve NodePorts at " + p.Frontend.Address.String() + " in this mode and configuration"
		return
	}
	asked := n.nodePorts[familyIndex(p.Frontend.Address)].asked
	p.Why = "nodePortAddresses " + strings.Join(asked, ", ") + " leaves out " + p.Frontend.Address.String()
}

// refuse sets Reject or Drop, or None where the packet passes no hook at which kube-proxy refuses it.
func (n *Node) refuse(p *Path, port *servicePort, a Action) {
	f := &p.Frontend
	p.Action, p.Reason = a, ReasonNoEndpoints
	if a == Drop {
		p.Reason = ReasonNoLocalEndpoints
	}
	p.Why = n.missingEndpoints(port, a)
	if !n.mode.bypassesRefusal(f.Kind, p.Origin.Kind, n.local[f.Address]) {
		return
	}
	p.Action = None
	p.Why += "; kube-proxy refuses this at other hooks than the packet passes, so it continues without translation"
	if n.in.Addresses == nil && p.Unsure == "" {
		p.Unsure = "whether " + f.Address.String() + " is an address of the node is not known"
	}
}

// missingEndpoints is a clause that names the endpoints there are instead of usable ones.
func (n *Node) missingEndpoints(port *servicePort, a Action) string {
	if a == Drop {
		return "no usable endpoint on node " + n.name + "; " + nodesWith(port.all, n)
	}
	switch len(port.all) {
	case 0:
		return "the Service port has no endpoints"
	case 1:
		return "its only endpoint is not ready"
	}
	return "none of " + count(len(port.all), "endpoint") + " is ready"
}

// namedNodes is the largest number of nodes that a clause names.
const namedNodes = 5

// nodesWith names the nodes that have usable endpoints.
func nodesWith(all []Endpoint, n *Node) string {
	counts := map[string]int{}
	var names []string
	for i := range all {
		e := &all[i]
		if !e.Ready && !n.usableTerminating(e) {
			continue
		}
		name := e.Node
		if name == "" {
			name = "no node"
		}
		counts[name]++
		if counts[name] == 1 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	more := ""
	if len(names) > namedNodes {
		more = " and " + count(len(names)-namedNodes, "more node")
		names = names[:namedNodes]
	}
	for i, name := range names {
		names[i] = name + " (" + strconv.Itoa(counts[name]) + ")"
	}
	return "usable ones are on " + strings.Join(names, ", ") + more
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

func prefixes(ps []netip.Prefix) string {
	out := make([]string, len(ps))
	for i, p := range ps {
		out[i] = p.String()
	}
	return strings.Join(out, ", ")
}
