// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NFTTable is the table of nftables mode, one in each of the families ip and ip6, and ipvs mode's virtual servers,
// which the walk has as rules, are a table of the same name.
const NFTTable = "kube-proxy"

// Chains, sets and maps of nftables mode that belong to no single Service (pkg/proxy/nftables/proxier.go).
const (
	NFTChainServices        = "services"
	NFTChainMarkMasq        = "mark-for-masquerade" // up to 1.35; later rules set the mark themselves
	NFTChainMasquerading    = "masquerading"        // translates the source of marked packets
	NFTChainClusterIPsCheck = "cluster-ips-check"   // refuses packets to cluster IPs that were not translated
	// of the chains that refuse packets to frontends without endpoints, or without local ones
	NFTEndpointsCheckSuffix       = "endpoints-check"
	NFTChainEndpointsCheckAlpha   = "endpoints-check" // of all frontends (1.29)
	NFTChainServiceEndpointsCheck = "service-endpoints-check"

	NFTMapServiceIPs          = "service-ips"
	NFTMapServiceNodePorts    = "service-nodeports"
	NFTMapNoEndpointServices  = "no-endpoint-services"
	NFTMapNoEndpointNodePorts = "no-endpoint-nodeports"
	NFTMapFirewallIPs         = "firewall-ips"
	NFTSetClusterIPs          = "cluster-ips"
	NFTSetNodePortIPs         = "nodeport-ips"
	NFTSetHairpin             = "hairpin-connections" // from 1.36 on
)

// Prefixes of the names of chains and sets of nftables mode.
const (
	NFTPrefixCluster  = "service-"
	NFTPrefixLocal    = "local-"
	NFTPrefixExternal = "external-"
	NFTPrefixFirewall = "firewall-"
	NFTPrefixEndpoint = "endpoint-"
	NFTPrefixAffinity = "affinity-"
)

// NFTablesNames are the names of nftables mode.
var NFTablesNames = Names{
	Table: NFTTable, Services: NFTChainServices,
	Cluster: NFTPrefixCluster, Local: NFTPrefixLocal, External: NFTPrefixExternal, Firewall: NFTPrefixFirewall,
	Endpoint: NFTPrefixEndpoint, Infix: "/", // no other chain has one (isServiceChainName)
	ClientLists: NFTTable + "@" + NFTPrefixAffinity,
	OfPort:      NFTChainNames,
	OfEndpoint: func(svc types.NamespacedName, port string, protocol corev1.Protocol, endpoint netip.AddrPort) []string {
		chain, affinity := NFTEndpointNames(svc, port, protocol, endpoint)
		return []string{chain, affinity}
	},
}

// nftNameLength: longer names are truncated (pkg/proxy/nftables/proxier.go, hashAndTruncate): 256 is the longest that
// nftables allows, 16 are reserved for the prefix.
const nftNameLength = 256 - 16

// nftHashLength is the length of the hash at the beginning of a name.
const nftHashLength = 8

// NFTChainNames returns the names of the chains that kube-proxy's nftables mode creates for one Service port, in its
// table kube-proxy (pkg/proxy/nftables/proxier.go, servicePortChainNameBase; the same from 1.31 to 1.37).
func NFTChainNames(svc types.NamespacedName, port string, protocol corev1.Protocol) Chains {
	base := nftName(nftPort(svc, port, protocol))
	return Chains{
		Cluster: NFTPrefixCluster + base, Local: NFTPrefixLocal + base, External: NFTPrefixExternal + base,
		Firewall: NFTPrefixFirewall + base,
	}
}

// NFTEndpointNames returns the name of the chain, and of the affinity set, of one endpoint of a Service port (ibid.,
// servicePortEndpointChainNameBase).
func NFTEndpointNames(
	svc types.NamespacedName, port string, protocol corev1.Protocol, endpoint netip.AddrPort,
) (chain, affinity string) {
	addr := strings.ReplaceAll(endpoint.Addr().String(), ":", ".")
	base := nftName(nftPort(svc, port, protocol) + "__" + addr + "/" + strconv.Itoa(int(endpoint.Port())))
	return NFTPrefixEndpoint + base, NFTPrefixAffinity + base
}

func nftPort(svc types.NamespacedName, port string, protocol corev1.Protocol) string {
	return svc.Namespace + "/" + svc.Name + "/" + lower(protocol) + "/" + port
}

func nftName(name string) string {
	sum := sha256.Sum256([]byte(name))
	name = base32.StdEncoding.EncodeToString(sum[:])[:nftHashLength] + "-" + name
	if len(name) > nftNameLength {
		name = name[:nftNameLength-3] + "..."
	}
	return name
}
