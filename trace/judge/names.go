// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// chainNames are the names of a mode, and what this package asks them. Nothing else in it knows a name of a mode whose
// rules are those of iptables mode; nftables mode and ipvs mode have names of maps, sets and devices besides, in their
// files.
type chainNames struct{ *kubeproxy.Names }

// has tells whether a chain of a table has a name that only this mode gives.
func (c chainNames) has(t *netfilter.Table, chain string) bool {
	if c.Table != "" {
		return c.hasTable(t)
	}
	return c.Own != "" && strings.HasPrefix(chain, c.Own) && !kubeproxy.OfOthers(chain)
}

// hasTable tells whether a table is the mode's.
func (c chainNames) hasTable(t *netfilter.Table) bool {
	return c.Table != "" && t.Backend == netfilter.BackendNative && t.Name == c.Table && t.Family != netfilter.Inet
}

// ofService tells whether a chain of the mode's belongs to a Service port: one whose name begins with a prefix.
func (c chainNames) ofService(chain, prefix string) bool {
	return prefix != "" && strings.HasPrefix(chain, prefix) && strings.Contains(chain, c.Infix)
}

// anyOfService tells whether a chain belongs to a Service port, or to an endpoint of one.
func (c chainNames) anyOfService(chain string) bool {
	return slices.ContainsFunc([]string{c.Cluster, c.Local, c.External, c.Firewall, c.Endpoint},
		func(prefix string) bool { return c.ofService(chain, prefix) })
}

// frontendChains are the chains whose rules name frontends, by table.
func (c chainNames) frontendChains() map[string][]string {
	return map[string][]string{
		"nat":    {c.Services, c.NodePorts},
		"filter": {c.Services, c.ExternalServices, c.ProxyFirewall},
	}
}

// marks says for people how a rule marks for masquerade.
func (c chainNames) marks() string {
	if c.MarkMasq == "" {
		return "sets the mark for masquerade"
	}
	return "jumps to " + c.MarkMasq
}

// due calls f with the name of everything that the mode may have made for the Services and endpoints there are, used or
// not.
func (c chainNames) due(n *node, f func(name string)) {
	n.eachPortServed(func(svc *corev1.Service, port *corev1.ServicePort) {
		name := expect.NameOf(svc)
		names := c.OfPort(name, port.Name, port.Protocol)
		for _, chain := range []string{names.Cluster, names.Local, names.External, names.Firewall} {
			f(chain)
		}
		for _, e := range n.endpointsOf(svc, port) {
			for _, name := range c.OfEndpoint(name, port.Name, port.Protocol, e.Address) {
				f(name)
			}
		}
	})
}

// namedByKubeProxy tells whether a chain of a table has a name that only kube-proxy gives, in whatever mode.
func namedByKubeProxy(t *netfilter.Table, chain string) bool {
	return slices.ContainsFunc(modes, func(m mode) bool { return m.names().has(t, chain) })
}

// clientLists begin the names of the lists that kube-proxy keeps, one an endpoint: of xt_recent (pkg/proxy/iptables),
// and the sets of its table in nftables mode (pkg/proxy/nftables); and of those that the command program keeps in its
// place. A new client is in none of them.
func clientLists() []string {
	out := []string{kubeproxy.ProgramChainPrefix, kubeproxy.ProgramTablePrefix}
	for _, m := range modes {
		if p := m.names().ClientLists; p != "" && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}
