// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// topology is the restriction of endpoints by hints for traffic policy Cluster.
type topology uint8

const (
	noTopology topology = iota
	sameZone
	sameNode
)

// servicePort is one port of a Service in one family: its endpoints, and which of them each traffic policy uses
// (pkg/proxy/topology.go, CategorizeEndpoints).
type servicePort struct {
	spec *corev1.ServicePort
	all  []Endpoint

	usesCluster, usesLocal bool // whether some kind of traffic follows that policy
	cluster, local         []Endpoint
	topology               topology
	// usable: there is a usable endpoint on some node; without one connections are rejected, not dropped.
	usable bool
	unsure string // the reason why the endpoints are not certain
	// variants are the port with every list of endpoints that kube-proxy may have, where an address has several entries
	// of which it takes one; nil where there is one list, or too many.
	variants []servicePort
}

func (n *Node) fillPort(s *service, p *servicePort, spec *corev1.ServicePort, family int, accessible bool) {
	p.spec = spec
	c := n.collect(s.name, spec, family, false)
	p.all, p.unsure = c.endpoints, c.unsure
	p.usesCluster = !s.itpLocal || accessible
	p.usesLocal = s.itpLocal || s.etpLocal && accessible
	n.categorize(s, p)
	for _, list := range c.allowed {
		v := servicePort{spec: spec, all: list, usesCluster: p.usesCluster, usesLocal: p.usesLocal}
		n.categorize(s, &v)
		p.variants = append(p.variants, v)
	}
}

// categorize chooses the endpoints of each traffic policy. For either, terminating endpoints that still serve are used
// when none is ready.
func (n *Node) categorize(s *service, p *servicePort) {
	ready, fallback := 0, 0
	for i := range p.all {
		switch e := &p.all[i]; {
		case e.Ready:
			ready++
		case n.usableTerminating(e):
			fallback++
		}
	}
	p.usable = ready+fallback > 0
	if p.usesCluster {
		p.topology = n.topologyOf(s, p, ready)
		switch {
		case ready == len(p.all) && p.topology == noTopology:
			p.cluster = p.all
		case ready > 0:
			p.cluster = filter(p.all, func(e *Endpoint) bool { return e.Ready && n.inTopology(e, p.topology) })
		default:
			p.cluster = filter(p.all, n.usableTerminating)
		}
	}
	if p.usesLocal {
		p.local = filter(p.all, func(e *Endpoint) bool { return e.Local && e.Ready })
		if len(p.local) == 0 {
			p.local = filter(p.all, func(e *Endpoint) bool { return e.Local && n.usableTerminating(e) })
		}
	}
}

func filter(all []Endpoint, keep func(*Endpoint) bool) []Endpoint {
	count := 0
	for i := range all {
		if keep(&all[i]) {
			count++
		}
	}
	switch count {
	case 0:
		return nil
	case len(all):
		return all
	}
	out := make([]Endpoint, 0, count)
	for i := range all {
		if keep(&all[i]) {
			out = append(out, all[i])
		}
	}
	return out
}

// usableTerminating tells whether an endpoint is used when none is ready.
func (n *Node) usableTerminating(e *Endpoint) bool {
	return n.features.terminating && e.Serving && e.Terminating
}

// topologyOf decides whether hints are used: only if every ready endpoint has one and at least one names this node, or
// its zone (pkg/proxy/topology.go, topologyModeFromHints; before 1.33 canUseTopology). Before the traffic distribution
// field there had to be an annotation on the Service.
func (n *Node) topologyOf(s *service, p *servicePort, ready int) topology {
	if ready == 0 || len(p.all[0].HintZones)+len(p.all[0].HintNodes) == 0 && p.all[0].Ready {
		return noTopology
	}
	nodeHints, zoneHints := n.features.nodeHints, n.features.zoneHints && n.annotated(s.svc)
	nodeNamed, zoneNamed := false, false
	for i := range p.all {
		e := &p.all[i]
		if !e.Ready {
			continue
		}
		nodeHints = nodeHints && len(e.HintNodes) > 0
		nodeNamed = nodeNamed || slices.Contains(e.HintNodes, n.name)
		zoneHints = zoneHints && len(e.HintZones) > 0
		zoneNamed = zoneNamed || n.zone != "" && slices.Contains(e.HintZones, n.zone)
	}
	switch {
	case nodeHints && nodeNamed:
		return sameNode
	case zoneHints && zoneNamed:
		return sameZone
	case zoneHints && n.in.Node == nil && p.unsure == "":
		p.unsure = "the endpoints have hints for zones, and the Node with its zone was not collected"
	}
	return noTopology
}

// annotated tells whether a Service may use zone hints as far as its annotations go.
func (n *Node) annotated(svc *corev1.Service) bool {
	if !n.features.annotation {
		return true
	}
	value, ok := svc.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	if n.features.autoOnly {
		return value == "Auto" || value == "auto"
	}
	if !ok {
		value = svc.Annotations[corev1.AnnotationTopologyMode]
	}
	return value != "" && value != "disabled" && value != "Disabled"
}

// inTopology tells whether the topology allows a ready endpoint.
func (n *Node) inTopology(e *Endpoint, t topology) bool {
	switch t {
	case sameNode:
		return slices.Contains(e.HintNodes, n.name)
	case sameZone:
		return slices.Contains(e.HintZones, n.zone)
	case noTopology:
	}
	return true
}

// Hinted tells whether an endpoint of a Service has a hint, whether or not anybody goes by it.
func (n *Node) Hinted(svc *corev1.Service) bool {
	return slices.ContainsFunc(n.in.Index.slices[NameOf(svc)], func(s *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Hints != nil })
	})
}

// FollowsHints tells whether kube-proxy of this version goes by hints for zones, and for nodes, in a Service.
func (n *Node) FollowsHints(svc *corev1.Service) (zones, nodes bool) {
	return n.features.zoneHints && n.annotated(svc), n.features.nodeHints
}
