// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// modes are the modes whose chains belong to one Service port each, by their names.
var modes = []kubeproxy.Names{kubeproxy.IPTablesNames, kubeproxy.NFTablesNames}

// readChain reads the name of a chain of kube-proxy's, which holds the hash of a Service port.
func (r *Reference) readChain(text string) (known bool, err error) {
	if chain := strings.TrimSuffix(text, ":"); isServiceChain(chain) {
		r.Chain = chain
		return true, nil
	}
	if strings.HasPrefix(text, kubeproxy.PrefixOwn) {
		return false, fmt.Errorf("%q belongs to no single Service: %s, or a chain that begins with %s, %s or the like",
			r.Input, forms, kubeproxy.PrefixCluster, kubeproxy.PrefixEndpoint)
	}
	return false, nil
}

// isServiceChain tells whether a text is the name of a chain that kube-proxy makes for one Service port.
func isServiceChain(text string) bool {
	for _, n := range modes {
		for _, prefix := range []string{n.Cluster, n.Local, n.External, n.Firewall, n.Endpoint} {
			if hash, ok := strings.CutPrefix(text, prefix); ok && isHash(hash) {
				return true
			}
		}
	}
	return false
}

// isHash tells whether a text begins with 8 letters of base32, as all hashes of kube-proxy's do, and ends there or
// goes on as those of one of the modes do.
func isHash(text string) bool {
	const short, long = 8, 16
	letters := len(text) - len(strings.TrimLeft(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"))
	return letters == long && len(text) == long || letters == short && strings.HasPrefix(text[short:], "-")
}

// findChain finds the Service port behind a chain.
func findChain(objects *snapshot.Cluster, ref Reference) (Target, error) {
	for _, svc := range objects.Services {
		for i := range svc.Spec.Ports {
			p := &svc.Spec.Ports[i]
			if !isChainOf(objects, ref.Chain, svc, p) {
				continue
			}
			t := Target{Service: svc, Ports: []corev1.ServicePort{*p}}
			t.Note = fmt.Sprintf("%s belongs to service/%s/%s, port %d", ref.Chain, svc.Namespace, svc.Name, p.Port)
			return t, nil
		}
	}
	return Target{}, fmt.Errorf("%s is not a chain of any current Service or endpoint: it may be stale (verify -A lists "+
		"stale chains)", ref.Chain)
}

func isChainOf(objects *snapshot.Cluster, chain string, svc *corev1.Service, p *corev1.ServicePort) bool {
	for _, n := range modes {
		if !strings.HasPrefix(chain, n.Endpoint) {
			c := n.OfPort(expect.NameOf(svc), p.Name, protocolOf(p))
			if slices.Contains([]string{c.Cluster, c.Local, c.External, c.Firewall}, chain) {
				return true
			}
			continue
		}
		for endpoint := range endpointsOf(objects, svc, p) {
			if slices.Contains(n.OfEndpoint(expect.NameOf(svc), p.Name, protocolOf(p), endpoint), chain) {
				return true
			}
		}
	}
	return false
}

// endpointsOf yields the endpoints of a Service port, ready or not.
func endpointsOf(
	objects *snapshot.Cluster, svc *corev1.Service, p *corev1.ServicePort,
) func(yield func(netip.AddrPort) bool) {
	return func(yield func(netip.AddrPort) bool) {
		for _, s := range objects.EndpointSlices {
			if !isSliceOf(s, svc) {
				continue
			}
			for _, port := range s.Ports {
				if port.Port == nil || !samePort(&port, p) {
					continue
				}
				for i := range s.Endpoints {
					for _, text := range s.Endpoints[i].Addresses {
						a, err := netip.ParseAddr(text)
						if err == nil && !yield(netip.AddrPortFrom(a, uint16(*port.Port))) { //nolint:gosec // of the API
							return
						}
					}
				}
			}
		}
	}
}

func isSliceOf(s *discoveryv1.EndpointSlice, svc *corev1.Service) bool {
	return expect.ServiceOf(s) == expect.NameOf(svc)
}

// samePort tells whether a port of an EndpointSlice is that of a Service port.
func samePort(a *discoveryv1.EndpointPort, p *corev1.ServicePort) bool {
	name, protocol := "", corev1.ProtocolTCP
	if a.Name != nil {
		name = *a.Name
	}
	if a.Protocol != nil {
		protocol = *a.Protocol
	}
	return name == p.Name && protocol == protocolOf(p)
}
