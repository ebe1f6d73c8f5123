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

// readChain reads the name of a chain of kube-proxy's, which holds the hash of a Service port. One with another number
// of characters is taken, too: findChain says which one is meant.
func (r *Reference) readChain(text string) (known bool, err error) {
	if r.Chain = chainOf(text); r.Chain != "" {
		return true, nil
	}
	if strings.HasPrefix(text, kubeproxy.PrefixOwn) {
		return false, fmt.Errorf("%q belongs to no single Service: %s, or a chain that begins with %s, %s or the like",
			r.Input, forms, kubeproxy.PrefixCluster, kubeproxy.PrefixEndpoint)
	}
	return false, nil
}

// prefixesOf returns what the names of a mode's chains of one Service port begin with.
func prefixesOf(n *kubeproxy.Names) []string {
	return []string{n.Cluster, n.Local, n.External, n.Firewall, n.Endpoint}
}

// The lengths of the hashes in names of chains: in iptables mode, and in nftables mode, where the Service's name is
// behind it.
const longHash, shortHash = 16, 8

// chainOf returns the name of a chain that kube-proxy makes for one Service port, in upper and lower case as there; ""
// where a text is none. What begins as one in iptables mode is taken for one, however long it is: nothing else has such
// a name.
func chainOf(text string) string {
	text = strings.TrimRight(text, ":…")
	for i := range modes {
		for _, prefix := range prefixesOf(&modes[i]) {
			if len(text) < len(prefix) || !strings.EqualFold(text[:len(prefix)], prefix) {
				continue
			}
			hash := text[len(prefix):]
			switch {
			case strings.HasPrefix(prefix, kubeproxy.PrefixOwn) && isLettersAndDigits(hash):
				return prefix + strings.ToUpper(hash)
			// shop/web/tcp/http follows; with less, it may be a namespace and a name.
			case len(hash) > shortHash && hash[shortHash] == '-' && strings.Count(hash, "/") >= 3 &&
				isHash(strings.ToUpper(hash[:shortHash])):
				return prefix + strings.ToUpper(hash[:shortHash]) + hash[shortHash:]
			case isHash(hash[:min(shortHash, len(hash))]) && strings.HasPrefix(hash[shortHash:], "-"):
				return prefix + hash
			}
		}
	}
	return ""
}

// isHash tells whether a text is of characters of base32, as the hashes of kube-proxy are, and as long as a short one.
func isHash(text string) bool {
	return len(text) == shortHash && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

func isLettersAndDigits(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(c rune) bool {
		return (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (c < '0' || c > '9')
	})
}

// findChain finds the Service port behind a chain.
func findChain(objects *snapshot.Cluster, ref Reference) (Target, error) {
	for _, svc := range objects.Services {
		for i := range svc.Spec.Ports {
			p := &svc.Spec.Ports[i]
			if !slices.Contains(chainsOf(objects, svc, p, ref.Chain), ref.Chain) {
				continue
			}
			t := Target{Service: svc, Ports: []corev1.ServicePort{*p}}
			t.Note = fmt.Sprintf("%s belongs to service/%s/%s, port %d", ref.Chain, svc.Namespace, svc.Name, p.Port)
			return t, nil
		}
	}
	meant := nearestChain(objects, ref.Chain)
	for _, prefix := range prefixesOf(&modes[0]) {
		if hash, ok := strings.CutPrefix(ref.Chain, prefix); ok && len(hash) != longHash {
			return Target{}, fmt.Errorf("%q is not the name of a chain: kube-proxy's have %d characters behind %s, and this "+
				"one has %d%s", ref.Input, longHash, prefix, len(hash), meant)
		}
	}
	return Target{}, fmt.Errorf("%s is not a chain of any current Service or endpoint: it may be stale (verify -A lists "+
		"stale chains)%s", ref.Chain, meant)
}

// nearestChain ends an error about a chain that there is not with the one that has nearly that name.
func nearestChain(objects *snapshot.Cluster, chain string) string {
	const slips = 2 // more letters than that are another hash
	var best string
	nearest := slips + 1
	for _, svc := range objects.Services {
		for i := range svc.Spec.Ports {
			for _, name := range chainsOf(objects, svc, &svc.Spec.Ports[i], chain) {
				d := distance(name, chain)
				if len(chain) >= len(kubeproxy.PrefixCluster)+shortHash/2 && strings.HasPrefix(name, chain) {
					d = 0 // cut off
				}
				if d < nearest {
					nearest = d
					best = fmt.Sprintf("; did you mean %s of service/%s/%s?", name, svc.Namespace, svc.Name)
				}
			}
		}
	}
	return best
}

// chainsOf returns the chains that each mode has for a Service port, of the kind that a name begins as.
func chainsOf(objects *snapshot.Cluster, svc *corev1.Service, p *corev1.ServicePort, like string) (out []string) {
	for _, n := range modes {
		if !strings.HasPrefix(like, n.Endpoint) {
			c := n.OfPort(expect.NameOf(svc), p.Name, protocolOf(p))
			out = append(out, c.Cluster, c.Local, c.External, c.Firewall)
			continue
		}
		for endpoint := range endpointsOf(objects, svc, p) {
			out = append(out, n.OfEndpoint(expect.NameOf(svc), p.Name, protocolOf(p), endpoint)...)
		}
	}
	return out
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
