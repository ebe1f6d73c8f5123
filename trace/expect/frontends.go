// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Frontends returns every frontend of a Service that kube-proxy has to program on this node, both families: in the
// order of spec.ports, then ClusterIP, NodePort, ExternalIP, LoadBalancerIP, then the families as in spec.ipFamilies,
// then by address. It is empty for Services that kube-proxy ignores (Ignored says why). The rules are those of
// serviceToServiceMap and newBaseServiceInfo (pkg/proxy/servicechangetracker.go, serviceport.go).
func (n *Node) Frontends(svc *corev1.Service) []Frontend {
	s := n.of(svc)
	if s.reason != "" {
		return nil
	}
	out := make([]Frontend, 0, len(svc.Spec.Ports)*len(s.order))
	for i := range svc.Spec.Ports {
		spec := &svc.Spec.Ports[i]
		for _, kind := range [...]FrontendKind{ClusterIP, NodePort, ExternalIP, LoadBalancerIP} {
			number := spec.Port
			if kind == NodePort {
				number = spec.NodePort
			}
			if number <= 0 || number > 65535 {
				continue
			}
			proto := Frontend{
				Service: s.name, PortName: spec.Name, Kind: kind, Port: uint16(number), Protocol: protocolOf(spec.Protocol),
			}
			for _, family := range s.order {
				if kind == ClusterIP {
					proto.Address = s.families[family].clusterIP
					out = append(out, proto)
					continue
				}
				for _, a := range n.addresses(s, family, kind) {
					proto.Address = a
					out = append(out, proto)
				}
			}
		}
	}
	return out
}

// addresses returns the addresses of one kind of frontend.
func (n *Node) addresses(s *service, family int, kind FrontendKind) []netip.Addr {
	switch kind {
	case NodePort:
		return n.nodePorts[family].addresses
	case ExternalIP:
		return s.families[family].externalIPs
	case LoadBalancerIP:
		return s.families[family].vips
	case ClusterIP:
	}
	return nil
}

// claim is an address and port of a Service from outside the cluster's own ranges, so that two Services may have the
// same one. kube-proxy writes Services in no fixed order; which of the two gets the packet is undefined.
type claim struct {
	address  netip.Addr
	port     int32
	protocol corev1.Protocol
}

// claimsOf returns, for each claim to an external or load-balancer IP, the Services that have it.
func (n *Node) claimsOf(services []*corev1.Service) map[claim][]types.NamespacedName {
	claims := map[claim][]types.NamespacedName{}
	add := func(svc *corev1.Service, text string) {
		a, ok := kubeproxy.ParseAddr(text)
		if !ok {
			return
		}
		for i := range svc.Spec.Ports {
			c := claim{a, svc.Spec.Ports[i].Port, protocolOf(svc.Spec.Ports[i].Protocol)}
			if name := NameOf(svc); !slices.Contains(claims[c], name) {
				claims[c] = append(claims[c], name)
			}
		}
	}
	external := func(svc *corev1.Service) bool {
		return len(svc.Spec.ExternalIPs) > 0 || len(svc.Status.LoadBalancer.Ingress) > 0
	}
	for _, svc := range services {
		if !external(svc) {
			continue
		}
		if reason, _ := n.features.ignored(svc); reason != "" {
			continue
		}
		if n.features.externalIPs {
			for _, ip := range svc.Spec.ExternalIPs {
				add(svc, ip)
			}
		}
		for i := range svc.Status.LoadBalancer.Ingress {
			if ing := &svc.Status.LoadBalancer.Ingress[i]; !n.features.ipMode || ing.IPMode == nil ||
				*ing.IPMode == corev1.LoadBalancerIPModeVIP {
				add(svc, ing.IP)
			}
		}
	}
	if len(claims) == 0 {
		return nil
	}
	for _, svc := range services {
		if a, ok := kubeproxy.ParseAddr(svc.Spec.ClusterIP); ok {
			n.claimClusterIP(claims, svc, a)
		}
		for _, ip := range svc.Spec.ClusterIPs[min(1, len(svc.Spec.ClusterIPs)):] {
			if a, ok := kubeproxy.ParseAddr(ip); ok {
				n.claimClusterIP(claims, svc, a)
			}
		}
	}
	return claims
}

// claimClusterIP adds a Service to the claims of others that are to its cluster IP.
func (n *Node) claimClusterIP(claims map[claim][]types.NamespacedName, svc *corev1.Service, a netip.Addr) {
	for i := range svc.Spec.Ports {
		c := claim{a, svc.Spec.Ports[i].Port, protocolOf(svc.Spec.Ports[i].Protocol)}
		if l, ok := claims[c]; ok && !slices.Contains(l, NameOf(svc)) {
			if reason, _ := n.features.ignored(svc); reason == "" {
				claims[c] = append(l, NameOf(svc))
			}
		}
	}
}

// otherClaim returns another Service that claims a frontend's address and port.
func (n *Node) otherClaim(f *Frontend) (types.NamespacedName, bool) {
	if n.claims == nil {
		return types.NamespacedName{}, false
	}
	for _, name := range n.claims[claim{f.Address, int32(f.Port), f.Protocol}] {
		if name != f.Service {
			return name, true
		}
	}
	return types.NamespacedName{}, false
}
