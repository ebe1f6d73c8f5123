// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import "strings"

// IPVSDevice is the interface that ipvs mode binds the addresses of Services to (pkg/proxy/ipvs/proxier.go,
// defaultDummyDevice).
const IPVSDevice = "kube-ipvs0"

// Chains of ipvs mode that iptables mode does not have (pkg/proxy/ipvs/proxier.go).
const (
	IPVSChainNodePort = "KUBE-NODE-PORT"
	IPVSChainFilter   = "KUBE-IPVS-FILTER"
)

// IPVSNames are the names of ipvs mode, which has no chains of single Services.
var IPVSNames = Names{
	Own: PrefixOwn, Services: ChainServices, NodePorts: IPVSChainNodePort, ProxyFirewall: ChainProxyFirewall,
	MarkMasq: ChainMarkMasq, Postrouting: ChainPostrouting,
}

// Sets of ipvs mode (pkg/proxy/ipvs/proxier.go, ipsetInfo), with their names for IPv4; IPVSSetName returns that of a
// family.
const (
	IPVSSetClusterIP              = "KUBE-CLUSTER-IP"
	IPVSSetExternalIP             = "KUBE-EXTERNAL-IP"
	IPVSSetLoadBalancer           = "KUBE-LOAD-BALANCER"
	IPVSSetLoadBalancerFirewall   = "KUBE-LOAD-BALANCER-FW"
	IPVSSetLoadBalancerSourceCIDR = "KUBE-LOAD-BALANCER-SOURCE-CIDR"
	IPVSSetNodePort               = "KUBE-NODE-PORT-"       // and the protocol
	IPVSSetNodePortLocal          = "KUBE-NODE-PORT-LOCAL-" // and the protocol
	IPVSSetLoopBack               = "KUBE-LOOP-BACK"
	IPVSSetLocalSuffix            = "-LOCAL" // of the sets of frontends with externalTrafficPolicy Local
	IPVSSetHashSuffix             = "-HASH"  // of the sets of NodePorts of SCTP
)

// IPVSSetName is the name of a set in a family: at most 31 characters (pkg/proxy/ipvs/ipset.go, NewIPSet).
func IPVSSetName(name string, v6 bool) string {
	const longest = 31
	if v6 {
		name = strings.Replace(name, PrefixOwn, "KUBE-6-", 1)
	}
	return name[:min(len(name), longest)]
}

// IsIPVSSet tells whether a set has a name that kube-proxy gives in ipvs mode.
func IsIPVSSet(name string) bool {
	name = strings.Replace(name, "KUBE-6-", PrefixOwn, 1)
	for _, own := range []string{
		IPVSSetClusterIP, IPVSSetExternalIP, IPVSSetLoadBalancer, IPVSSetNodePort, IPVSSetLoopBack, "KUBE-IPVS-IPS",
		"KUBE-HEALTH-CHECK-NODE-PORT",
	} {
		if strings.HasPrefix(name, own) {
			return true
		}
	}
	return false
}
