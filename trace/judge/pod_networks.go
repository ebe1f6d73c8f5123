// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

// podNetworks are the pod networks of Nodes, to be found by an address: every endpoint of every path asks, and a
// cluster may have thousands of Nodes.
type podNetworks struct {
	all  map[netip.Prefix][]podNetwork
	bits []int // the lengths of these
}

// podNetwork is one of a Node's.
type podNetwork struct {
	network netip.Prefix
	node    *corev1.Node
	at      int // in the list of Nodes
}

func podNetworksOf(nodes []*corev1.Node) podNetworks {
	p := podNetworks{all: make(map[netip.Prefix][]podNetwork, len(nodes))}
	for i, o := range nodes {
		for _, text := range o.Spec.PodCIDRs {
			network, ok := kubeproxy.ParsePrefix(text)
			if !ok {
				continue
			}
			p.all[network] = append(p.all[network], podNetwork{network, o, i})
			if !slices.Contains(p.bits, network.Bits()) {
				p.bits = append(p.bits, network.Bits())
			}
		}
	}
	return p
}

// of returns those that an address is in, in the order of the Nodes.
func (p *podNetworks) of(a netip.Addr) []podNetwork {
	var out []podNetwork
	for _, bits := range p.bits {
		if network, err := a.Prefix(bits); err == nil {
			out = append(out, p.all[network]...)
		}
	}
	slices.SortStableFunc(out, func(x, y podNetwork) int { return x.at - y.at })
	return out
}
