// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

// mode is what differs between kube-proxy's modes. Everything that depends on the mode is here.
type mode struct {
	// loopbackNodePorts tells whether NodePorts are served at a family's loopback address under a configuration (iptables:
	// only IPv4, by route_localnet).
	loopbackNodePorts func(c *kubeproxy.Config, v6 bool) bool
	// nodePortAddresses is the mode's default, nil for all addresses. When it holds is [features].primary.
	nodePortAddresses []string
	// bypassesRefusal tells whether a packet that kube-proxy means to refuse passes none of the hooks at which the mode
	// refuses. local: the destination is an address of the node.
	bypassesRefusal func(k FrontendKind, o OriginKind, local bool) bool
	// refusesEverywhere: a NodePort without endpoints is refused at every address, also where nodePortAddresses leaves it
	// out.
	refusesEverywhere bool
	// firewallFirst: loadBalancerSourceRanges are checked before the endpoints, and also for an address that is an
	// external IP as well.
	firewallFirst bool
	// firewallOfNode: loadBalancerSourceRanges are checked for packets of a process on the node alone; all others are
	// translated already where they are checked.
	firewallOfNode bool
	// outputBeforeDNAT: packets of a process on the node are refused before they are translated, and before their source
	// is matched: where there is no local endpoint, the rule that gives them all endpoints is not reached. NodePorts are
	// refused elsewhere, but for nodePortsAtOutput.
	outputBeforeDNAT, nodePortsAtOutput bool
	// hairpinLocal: only connections of this node's own endpoints to themselves are masqueraded.
	hairpinLocal bool
	// loopbackFeature tells whether the mode serves or rejects NodePorts at loopback addresses by the feature
	// KubeProxyNFTablesLocalhostNodePorts.
	loopbackFeature bool
	// virtual: IPVS virtual servers balance connections to the endpoints (see [Node.throughVirtualServer]).
	virtual bool
}

// iptablesMode is pkg/proxy/iptables/proxier.go.
var iptablesMode = mode{
	loopbackNodePorts: func(c *kubeproxy.Config, v6 bool) bool { return !v6 && c.LocalhostNodePorts },
	nodePortAddresses: nil,
	// The filter table refuses ClusterIPs in FORWARD and OUTPUT, all other frontends in INPUT and FORWARD
	// (iptablesJumpChains).
	bypassesRefusal: func(k FrontendKind, o OriginKind, local bool) bool {
		switch k {
		case ClusterIP:
			return local && o != FromNode
		case ExternalIP, LoadBalancerIP:
			return !local && o == FromNode
		case NodePort:
		}
		return false
	},
	refusesEverywhere: true,
}

// nftablesMode is pkg/proxy/nftables/proxier.go. Its chains service-endpoints-check and nodeport-endpoints-check refuse
// at every hook that such a packet passes (nftablesJumpChains). NodePorts at loopback addresses are an alpha feature of
// 1.37, served by a process (KubeProxyNFTablesLocalhostNodePorts); no rule translates them.
func nftablesMode(l kubeproxy.Layout) *mode {
	return &mode{
		loopbackNodePorts: func(*kubeproxy.Config, bool) bool { return false },
		nodePortAddresses: []string{"primary"},
		bypassesRefusal:   func(FrontendKind, OriginKind, bool) bool { return false },
		firewallFirst:     true,
		firewallOfNode:    l.NFTFilter == kubeproxy.NFTFilterAlpha,
		outputBeforeDNAT:  l.NFTFilter != kubeproxy.NFTFilterPostDNAT,
		nodePortsAtOutput: l.NFTFilter == kubeproxy.NFTFilterAlpha,
		hairpinLocal:      l.NFTHairpin == kubeproxy.NFTHairpinSet,
		loopbackFeature:   true,
	}
}

// ipvsMode is pkg/proxy/ipvs/proxier.go. NodePorts at loopback addresses have no virtual server.
var ipvsMode = mode{
	loopbackNodePorts: func(*kubeproxy.Config, bool) bool { return false },
	bypassesRefusal:   func(FrontendKind, OriginKind, bool) bool { return false },
	hairpinLocal:      true, // the set KUBE-LOOP-BACK has local endpoints only
	virtual:           true,
}

// modes are those in which something else is to be expected than in iptables mode, by name, for a layout.
var modes = map[string]func(l kubeproxy.Layout) *mode{
	kubeproxy.NFTables: nftablesMode,
	kubeproxy.IPVS:     func(kubeproxy.Layout) *mode { return &ipvsMode },
}

// modeOf returns the rules of a mode.
func modeOf(c *kubeproxy.Config, l kubeproxy.Layout) *mode {
	if of := modes[c.Mode]; of != nil {
		return of(l)
	}
	return &iptablesMode
}

// familyIndex is the place of a family in tables of two: 0 for IPv4, 1 for IPv6.
func familyIndex(a netip.Addr) int {
	if a.Is4() || a.Is4In6() {
		return 0
	}
	return 1
}
