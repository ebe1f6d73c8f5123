// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// Frontends returns every frontend of a Service that kube-proxy has to program on this node, both families: in the
// order of spec.ports, then ClusterIP, NodePort, ExternalIP, LoadBalancerIP, then the families as in spec.ipFamilies,
// then by address. It is empty for Services that kube-proxy ignores (Ignored says why). The rules are those of
// serviceToServiceMap and newBaseServiceInfo (pkg/proxy/servicechangetracker.go, serviceport.go).
func (n *Node) Frontends(svc *corev1.Service) []Frontend {
	s := n.of(svc)
	if s.reason != "" || s.beyond != "" {
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
