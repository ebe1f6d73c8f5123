// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Names are those that a proxy mode gives to what it writes; "" and nil where it has nothing of the kind. A mode has
// either Own or Table.
type Names struct {
	Own   string // begins the names of all of its chains
	Table string // the table of nf_tables that has all of them, one in each of the families ip and ip6

	// Chains that belong to no single Service.
	Services         string // dispatches to all frontends (nat), and refuses cluster IPs (filter)
	NodePorts        string // nat: dispatches to all NodePorts
	ExternalServices string // filter: refuses frontends other than cluster IPs
	ProxyFirewall    string // filter: loadBalancerSourceRanges
	MarkMasq         string // nat: marks packets whose source is to be translated
	Postrouting      string // nat: translates the source of marked packets
	OtherMode        string // a chain that Services leads to in another mode, with the same name of Services

	// What the names of the chains of one Service port begin with, and what they have in them besides.
	Cluster, Local, External, Firewall, Endpoint string
	Infix                                        string

	// ClientLists begins the names of the lists of xt_recent, or of the sets ("TABLE@NAME"), that hold the clients of an
	// endpoint.
	ClientLists string

	// OfPort returns the names of the chains of a Service port.
	OfPort func(svc types.NamespacedName, port string, protocol corev1.Protocol) Chains
	// OfEndpoint returns the names of what one endpoint of a Service port has.
	OfEndpoint func(svc types.NamespacedName, port string, protocol corev1.Protocol, endpoint netip.AddrPort) []string
}
