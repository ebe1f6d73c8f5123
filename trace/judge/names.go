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

// chainNames are the names that a mode gives to what it writes; "" where it has nothing of the kind. Nothing else in
// this package knows a name of a mode whose rules are those of iptables mode; nftables mode and ipvs mode have names of
// maps, sets and devices besides, in their files.
type chainNames struct {
	own   string // begins the names of all chains of the mode's
	table string // or: the table of nf_tables that has all of them

	// Chains that belong to no single Service.
	services         string // dispatches to all frontends (nat), and refuses cluster IPs (filter)
	nodePorts        string // nat: dispatches to all NodePorts
	externalServices string // filter: refuses frontends other than cluster IPs
	proxyFirewall    string // filter: loadBalancerSourceRanges
	markMasq         string // nat: marks packets whose source is to be translated
	otherMode        string // a chain that services leads to in another mode, with the same name of services

	// What the names of the chains of one Service port begin with, and what they have in them besides.
	cluster, local, external, firewall, endpoint string
	infix                                        string

	clientLists string // begins the names of the lists that hold the clients of an endpoint
	where       string // the rules are, for people

	// ofPort returns the names of the chains of a Service port, ofEndpoint those of what one of its endpoints has; nil
	// where there are none.
	ofPort     func(svc *corev1.Service, port *corev1.ServicePort) kubeproxy.Chains
	ofEndpoint func(svc *corev1.Service, port *corev1.ServicePort, e *expect.Endpoint) []string
}

// has tells whether a chain of a table has a name that only this mode gives.
func (c *chainNames) has(t *netfilter.Table, chain string) bool {
	if c.table != "" {
		return c.hasTable(t)
	}
	return c.own != "" && strings.HasPrefix(chain, c.own)
}

// hasTable tells whether a table is the mode's.
func (c *chainNames) hasTable(t *netfilter.Table) bool {
	return c.table != "" && t.Backend == netfilter.BackendNative && t.Name == c.table && t.Family != netfilter.Inet
}

// ofService tells whether a chain of the mode's belongs to a Service port: one whose name begins with a prefix.
func (c *chainNames) ofService(chain, prefix string) bool {
	return prefix != "" && strings.HasPrefix(chain, prefix) && strings.Contains(chain, c.infix)
}

// anyOfService tells whether a chain belongs to a Service port, or to an endpoint of one.
func (c *chainNames) anyOfService(chain string) bool {
	return slices.ContainsFunc([]string{c.cluster, c.local, c.external, c.firewall, c.endpoint},
		func(prefix string) bool { return c.ofService(chain, prefix) })
}

// frontendChains are the chains whose rules name frontends, by table.
func (c *chainNames) frontendChains() map[string][]string {
	return map[string][]string{
		"nat":    {c.services, c.nodePorts},
		"filter": {c.services, c.externalServices, c.proxyFirewall},
	}
}

// marks says for people how a rule marks for masquerade.
func (c *chainNames) marks() string {
	if c.markMasq == "" {
		return "sets the mark for masquerade"
	}
	return "jumps to " + c.markMasq
}

// due calls f with the name of everything that the mode may have made for the Services and endpoints there are, used or
// not.
func (c *chainNames) due(n *node, f func(name string)) {
	n.eachPortServed(func(svc *corev1.Service, port *corev1.ServicePort) {
		names := c.ofPort(svc, port)
		for _, chain := range []string{names.Cluster, names.Local, names.External, names.Firewall} {
			f(chain)
		}
		for _, e := range n.endpointsOf(svc, port) {
			for _, name := range c.ofEndpoint(svc, port, &e) {
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
		if p := m.names().clientLists; p != "" && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}
