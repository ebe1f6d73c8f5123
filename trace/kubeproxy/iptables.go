// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Chains of iptables mode that belong to no single Service (pkg/proxy/iptables/proxier.go). Those of userspace mode are
// from pkg/proxy/userspace/proxier.go of 1.25.
const (
	ChainServices         = "KUBE-SERVICES"          // nat: dispatches to all frontends; filter: refuses cluster IPs
	ChainNodePorts        = "KUBE-NODEPORTS"         // nat: dispatches to all NodePorts
	ChainExternalServices = "KUBE-EXTERNAL-SERVICES" // filter: refuses frontends other than cluster IPs
	ChainProxyFirewall    = "KUBE-PROXY-FIREWALL"    // filter: loadBalancerSourceRanges
	ChainMarkMasq         = "KUBE-MARK-MASQ"         // nat: marks packets whose source is to be translated
	ChainPostrouting      = "KUBE-POSTROUTING"       // nat: translates the source of marked packets
	ChainForward          = "KUBE-FORWARD"           // filter: accepts what is marked, and what is established

	ChainPortalsContainer  = "KUBE-PORTALS-CONTAINER"
	ChainPortalsHost       = "KUBE-PORTALS-HOST"
	ChainNodePortContainer = "KUBE-NODEPORT-CONTAINER"
	ChainNodePortHost      = "KUBE-NODEPORT-HOST"
)

// Prefixes of the names of chains in iptables and ipvs mode. PrefixOwn begins all of kube-proxy's names.
const (
	PrefixOwn      = "KUBE-"
	PrefixCluster  = "KUBE-SVC-"
	PrefixLocal    = "KUBE-SVL-"
	PrefixExternal = "KUBE-EXT-"
	PrefixFirewall = "KUBE-FW-"
	PrefixEndpoint = "KUBE-SEP-" // also the xt_recent list of an endpoint
)

// othersPrefixes begin the names of chains that begin with PrefixOwn and are not kube-proxy's: kube-router's for
// NetworkPolicies (pkg/controllers/netpol/network_policy_controller.go).
var othersPrefixes = []string{"KUBE-ROUTER-", "KUBE-POD-FW-", "KUBE-NWPLCY-"}

// OfOthers tells whether a chain has the name of one of theirs.
func OfOthers(chain string) bool {
	return slices.ContainsFunc(othersPrefixes, func(p string) bool { return strings.HasPrefix(chain, p) })
}

// OfKubernetes tells whether a chain of iptables has the name of one of kube-proxy's, or of kubelet's.
func OfKubernetes(chain string) bool { return strings.HasPrefix(chain, PrefixOwn) && !OfOthers(chain) }

// IPTablesNames are the names of iptables mode.
var IPTablesNames = Names{
	Own:      PrefixOwn,
	Services: ChainServices, NodePorts: ChainNodePorts, ExternalServices: ChainExternalServices,
	ProxyFirewall: ChainProxyFirewall, MarkMasq: ChainMarkMasq, Postrouting: ChainPostrouting,
	OtherMode: IPVSChainNodePort,
	Cluster:   PrefixCluster, Local: PrefixLocal, External: PrefixExternal, Firewall: PrefixFirewall,
	Endpoint: PrefixEndpoint, ClientLists: PrefixEndpoint,
	OfPort: func(svc types.NamespacedName, port string, protocol corev1.Protocol) Chains {
		return ChainNames(ServicePortName(svc.Namespace, svc.Name, port), protocol)
	},
	OfEndpoint: func(svc types.NamespacedName, port string, protocol corev1.Protocol, endpoint netip.AddrPort) []string {
		return []string{EndpointChain(ServicePortName(svc.Namespace, svc.Name, port), protocol, endpoint)}
	},
}

// Chains are the names of the nat chains that kube-proxy's iptables mode creates for one Service port. Which of them
// exist depends on the Service (pkg/proxy/iptables/proxier.go; the names are the same from 1.26 to 1.37).
type Chains struct {
	Cluster  string // KUBE-SVC-…: the endpoints of traffic policy Cluster
	Local    string // KUBE-SVL-…: the endpoints of traffic policy Local
	External string // KUBE-EXT-…: packets to NodePorts, external and load-balancer IPs
	Firewall string // KUBE-FW-…: loadBalancerSourceRanges
}

// hashLength is the length of the hash in a chain's name: 16 letters of base32 are 10 bytes.
const hashLength = 16

// ServicePortName returns kube-proxy's name of a Service port in comments and hashes: namespace/name, and :port unless
// the port has no name (pkg/proxy/types.go, ServicePortName).
func ServicePortName(namespace, name, port string) string {
	if port == "" {
		return namespace + "/" + name
	}
	return namespace + "/" + name + ":" + port
}

// ChainNames returns the names of a Service port's chains; servicePort is as ServicePortName returns it
// (pkg/proxy/iptables/proxier.go, portProtoHash).
func ChainNames(servicePort string, protocol corev1.Protocol) Chains {
	var buf [128]byte
	hash := string(chainHash(append(append(buf[:0], servicePort...), lower(protocol)...)))
	return Chains{
		Cluster: PrefixCluster + hash, Local: PrefixLocal + hash, External: PrefixExternal + hash,
		Firewall: PrefixFirewall + hash,
	}
}

// EndpointChain returns the name of the chain, and of the xt_recent list, of one endpoint of a Service port
// (pkg/proxy/iptables/proxier.go, servicePortEndpointChainName).
func EndpointChain(servicePort string, protocol corev1.Protocol, endpoint netip.AddrPort) string {
	var buf [192]byte
	b := append(append(buf[:0], servicePort...), lower(protocol)...)
	return PrefixEndpoint + string(chainHash(endpoint.AppendTo(b)))
}

func chainHash(data []byte) []byte {
	sum := sha256.Sum256(data)
	out := make([]byte, hashLength)
	base32.StdEncoding.Encode(out, sum[:hashLength*5/8])
	return out
}

func lower(p corev1.Protocol) string {
	switch p {
	case corev1.ProtocolUDP:
		return "udp"
	case corev1.ProtocolSCTP:
		return "sctp"
	case corev1.ProtocolTCP:
	}
	return "tcp"
}
