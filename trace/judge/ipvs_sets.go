// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// setEntry is an element that a set of ipvs mode must have for a frontend: the packet that it is asked for, and by
// which fields.
type setEntry struct {
	set    string
	flags  []string
	packet netfilter.Packet
}

// entriesDue lists what the sets must have for a path (pkg/proxy/ipvs/proxier.go, syncProxyRules).
func (p *pathCase) entriesDue() []setEntry {
	f := p.want.Frontend
	svc := p.cluster.services[f.Service]
	local := policyOf(svc, expect.NodePort)
	at := netfilter.Packet{
		Family: netfilter.FamilyOf(
			f.Address,
		),
		Proto:   protocolNumber(f.Protocol),
		Src:     p.want.Origin.Address,
		Dst:     f.Address,
		DstPort: f.Port,
	}
	var out []setEntry
	add := func(set string, packet netfilter.Packet, flags ...string) {
		out = append(out, setEntry{kubeproxy.IPVSSetName(set, f.Address.Is6()), flags, packet})
	}
	switch f.Kind {
	case expect.ClusterIP:
		add(kubeproxy.IPVSSetClusterIP, at, "dst", "dst")
	case expect.ExternalIP:
		set := kubeproxy.IPVSSetExternalIP
		if local {
			set += kubeproxy.IPVSSetLocalSuffix
		}
		add(set, at, "dst", "dst")
	case expect.LoadBalancerIP:
		add(kubeproxy.IPVSSetLoadBalancer, at, "dst", "dst")
		if local {
			add(kubeproxy.IPVSSetLoadBalancer+kubeproxy.IPVSSetLocalSuffix, at, "dst", "dst")
		}
		firewall := kubeproxy.IPVSSetName(kubeproxy.IPVSSetLoadBalancerFirewall, f.Address.Is6())
		restricted := len(sourceRanges(svc, f.Address.Is4())) > 0
		if restricted {
			add(kubeproxy.IPVSSetLoadBalancerFirewall, at, "dst", "dst")
		}
		// kube-proxy before 1.34 restricts the clients, too, where a range allows all of them, which no set takes.
		refuses := restricted || p.allowsAnybody() && p.inSet(firewall, &at, "dst", "dst")
		if refuses && p.want.Action == expect.DNAT && p.want.Origin.Kind != expect.FromNode {
			add(kubeproxy.IPVSSetLoadBalancerSourceCIDR, at, "dst", "dst", "src")
		}
	case expect.NodePort:
		flags, suffix := []string{"dst"}, string(f.Protocol)
		if f.Protocol == "SCTP" {
			flags, suffix = append(flags, "dst"), suffix+kubeproxy.IPVSSetHashSuffix
		}
		add(kubeproxy.IPVSSetNodePort+suffix, at, flags...)
		if local {
			add(kubeproxy.IPVSSetNodePortLocal+suffix, at, flags...)
		}
	}
	for i := range p.want.Endpoints {
		if e := &p.want.Endpoints[i]; e.Local {
			self := at
			self.Src, self.Dst, self.DstPort = e.Address.Addr(), e.Address.Addr(), e.Address.Port()
			add(kubeproxy.IPVSSetLoopBack, self, "dst", "dst", "src")
		}
	}
	return out
}

// entriesMissing names the sets that lack what they must have for a path.
func (p *pathCase) entriesMissing() []string {
	if p.Sets == nil {
		return nil
	}
	var out []string
	for _, e := range p.entriesDue() {
		c := netfilter.Context{Packet: &e.packet, Host: p.net, Sets: p.Sets}
		if in, known, _ := p.Sets.Match(&c, e.set, e.flags); known && !in && !slices.Contains(out, e.set) {
			out = append(out, e.set)
		}
	}
	return out
}

// inSet tells whether a set is known to match a packet.
func (p *pathCase) inSet(set string, packet *netfilter.Packet, flags ...string) bool {
	in, known, _ := p.Sets.Match(&netfilter.Context{Packet: packet, Host: p.net, Sets: p.Sets}, set, flags)
	return known && in
}
