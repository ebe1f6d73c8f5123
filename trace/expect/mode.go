// SPDX-License-Identifier: Apache-2.0

package expect

import "net/netip"

// mode is what differs between kube-proxy's modes. Everything that depends on the mode is here.
type mode struct {
	// loopbackNodePorts tells whether NodePorts are served at a family's loopback address, where the configuration asks for
	// it (iptables: only IPv4, by route_localnet).
	loopbackNodePorts func(c *Config, v6 bool) bool
	// nodePortAddresses stands for an unset nodePortAddresses.
	nodePortAddresses []string
	// passes tells whether a packet that is due to be refused gets past the refusal: the hooks where the mode refuses do not
	// cover every way. local says whether the destination is an address of the node.
	passes func(k FrontendKind, o OriginKind, local bool) bool
}

// iptablesMode is pkg/proxy/iptables/proxier.go.
var iptablesMode = mode{
	loopbackNodePorts: func(c *Config, v6 bool) bool { return !v6 && c.LocalhostNodePorts },
	nodePortAddresses: nil,
	// The filter table refuses ClusterIPs in FORWARD and OUTPUT, all other frontends in INPUT and FORWARD (iptablesJumpChains).
	passes: func(k FrontendKind, o OriginKind, local bool) bool {
		switch k {
		case ClusterIP:
			return local && o != FromNode
		case ExternalIP, LoadBalancerIP:
			return !local && o == FromNode
		case NodePort:
		}
		return false
	},
}

// modeOf returns the rules of a mode. The modes other than iptables are held to the same rules for now.
func modeOf(*Config) *mode { return &iptablesMode }

// familyIndex is the place of a family in tables of two: 0 for IPv4, 1 for IPv6.
func familyIndex(a netip.Addr) int {
	if a.Is4() || a.Is4In6() {
		return 0
	}
	return 1
}
