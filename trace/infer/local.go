// SPDX-License-Identifier: Apache-2.0

package infer

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
)

// local is how rules recognise packets of the node's pods (pkg/proxy/util/localdetector.go); the zero local: they do
// not.
type local struct {
	cidr  netip.Prefix
	iface string
	wild  bool // iface is the prefix of a name
}

func (l local) String() string {
	switch {
	case l.cidr.IsValid():
		return l.cidr.String()
	case l.iface != "":
		return l.iface
	}
	return "none"
}

func (l local) isNone() bool { return l == local{} }

func byString(a, b local) int { return cmp.Compare(a.String(), b.String()) }

// localOf returns how a rule recognises pods: by a condition on the source or on the incoming interface, that is
// negated (not) or not.
func localOf(r *netfilter.Rule, not bool) local {
	for _, b := range r.Bounds() {
		switch {
		case b.Not != not:
		case b.Field == netfilter.BoundSource:
			return local{cidr: b.Prefix}
		case b.Field == netfilter.BoundIncoming:
			return local{iface: b.Iface, wild: b.Wild}
		}
	}
	return local{}
}

// masquerade is what the rules of a family show of whose packets to cluster IPs are masqueraded.
type masquerade struct {
	by  counts[local] // how pods are recognised
	all counts[bool]  // whether the source of all packets is translated
	// explicit: a rule without a condition on the source shows masqueradeAll by itself.
	explicit bool
}

func newMasquerade() *masquerade { return &masquerade{by: counts[local]{}, all: counts[bool]{}} }

// internal counts the rules of a chain of a Service's cluster IP; marks finds the one that asks for masquerade
// (pkg/proxy/iptables/proxier.go and pkg/proxy/nftables/proxier.go up to 1.35, "Set up internal traffic handling").
func (m *masquerade) internal(c *netfilter.Chain, marks func(r *netfilter.Rule) bool) {
	if c == nil || len(c.Rules) == 0 {
		return
	}
	i := slices.IndexFunc(c.Rules, marks)
	if i < 0 {
		if c.Table.Holes == "" {
			m.by[local{}]++
			m.all[false]++
		}
		return
	}
	if r := c.Rules[i]; !r.Masked {
		m.marked(localOf(r, true))
	}
}

// marked counts a rule that asks for masquerade, for packets of others than by.
func (m *masquerade) marked(by local) {
	m.all[by.isNone()]++
	if !by.isNone() {
		m.by[by]++
	}
}

// external counts a chain of a Service's external addresses with externalTrafficPolicy Local, which leads pods to all
// endpoints. Without a local endpoint it tells nothing where it leads them nowhere.
func (m *masquerade) external(c *netfilter.Chain, cluster, localPrefix string) {
	if c == nil {
		return
	}
	leads := func(r *netfilter.Rule, prefix string) bool {
		return slices.ContainsFunc(jumps(r), func(name string) bool { return strings.HasPrefix(name, prefix) })
	}
	isLocal := false
	for _, r := range c.Rules {
		if r.Masked {
			return
		}
		if by := localOf(r, false); leads(r, cluster) && !by.isNone() {
			m.by[by]++
			return
		}
		isLocal = isLocal || leads(r, localPrefix)
	}
	if isLocal && c.Table.Holes == "" {
		m.by[local{}]++
	}
}

// localFacts says what the families show of detectLocalMode and masqueradeAll.
func (in *Input) localFacts(families [2]*masquerade) []Fact {
	all := counts[bool]{}
	explicit := false
	var choices [2][]local
	var details []string
	var shown []netfilter.Family
	for i, m := range families {
		for v, n := range m.all {
			all[v] += n
		}
		explicit = explicit || m.explicit
		var detail string
		if choices[i], detail = in.choose(m, nodestate.Families[i]); len(choices[i]) > 0 {
			shown = append(shown, nodestate.Families[i])
		}
		if detail != "" {
			details = append(details, detail)
		}
	}
	mode := Fact{Setting: kubeproxy.DetectLocal, Families: shown, Detail: strings.Join(details, "; ")}
	of := choice(kubeproxy.MasqueradeAll, all, explicit,
		func(c *kubeproxy.Config, v bool) { c.MasqueradeAll = v }, "rules")
	if len(shown) == 0 {
		return []Fact{mode, of}
	}
	// A family without any such rule goes with the other one.
	for i := range choices {
		if len(choices[i]) == 0 {
			choices[i] = []local{{}}
			if other := choices[1-i]; len(other) == 1 && other[0].iface != "" {
				choices[i] = other
			}
		}
	}
	for _, v4 := range choices[0] {
		for _, v6 := range choices[1] {
			if c, ok := together(v4, v6); ok {
				mode.Allowed = append(mode.Allowed, c)
			}
		}
	}
	if len(mode.Allowed) == 0 { // no configuration makes such rules of both families
		for _, l := range slices.Concat(choices[0], choices[1]) {
			c, _ := together(l, l)
			mode.Allowed = append(mode.Allowed, c)
		}
	}
	mode.Known = len(mode.Allowed) == 1
	return []Fact{mode, of}
}

// choose returns how the rules of a family may recognise pods, the likeliest first; one where they show it, none where
// no rule shows anything.
func (in *Input) choose(m *masquerade, f netfilter.Family) (allowed []local, detail string) {
	by, votes, all := m.by.most(byString)
	detail = ofAll(votes, all, "rules")
	if all == 0 && len(m.all) == 0 {
		return nil, ""
	}
	if detail != "" {
		detail = f.String() + ": " + detail
	}
	// That no rule recognises pods is shown by many Services alone. Rules that do, by a range of the node's pods, are no
	// accident: without clusterCIDR kube-proxy writes none.
	plausible := !by.isNone() && in.ofPods(by)
	if agree(votes, all) && (votes >= enough || plausible) || plausible && votes+m.by[local{}] == all && 2*votes >= all {
		return []local{by}, detail
	}
	for _, p := range in.PodCIDRs {
		if netfilter.FamilyOf(p.Addr()) == f {
			allowed = append(allowed, local{cidr: p})
		}
	}
	for l := range m.by {
		if !l.isNone() && !slices.Contains(allowed, l) {
			allowed = append(allowed, l)
		}
	}
	slices.SortFunc(allowed, byString)
	if len(allowed) == 0 {
		for _, a := range in.Pods {
			if netfilter.FamilyOf(a) == f {
				allowed = append(allowed, local{cidr: netip.PrefixFrom(a, a.BitLen())})
				break
			}
		}
	}
	return append(allowed, local{}), detail
}

// ofPods tells whether packets of the node's pods are recognised, as far as they are known.
func (in *Input) ofPods(l local) bool {
	if l.cidr.IsValid() {
		return slices.ContainsFunc(in.PodCIDRs, func(p netip.Prefix) bool {
			return l.cidr.Bits() <= p.Bits() && l.cidr.Contains(p.Addr())
		}) || slices.ContainsFunc(in.Pods, l.cidr.Contains)
	}
	return slices.ContainsFunc(in.State.Host.Devs(), func(dev string) bool {
		return dev == l.iface || l.wild && strings.HasPrefix(dev, l.iface)
	})
}

// together is the configuration with which kube-proxy recognises pods so in each family; false where it has none. By
// interface it recognises those of both families or of none; a family of which nothing is known goes with the other.
func together(v4, v6 local) (kubeproxy.Config, bool) {
	c := kubeproxy.Config{DetectLocalMode: kubeproxy.DetectClusterCIDR}
	if v4.iface != "" || v6.iface != "" {
		if v4 != v6 {
			return c, false
		}
		c.DetectLocalMode, c.BridgeInterface = kubeproxy.DetectBridge, v4.iface
		if v4.wild {
			c.DetectLocalMode, c.BridgeInterface, c.InterfaceNamePrefix = kubeproxy.DetectNamePrefix, "", v4.iface
		}
		return c, true
	}
	for _, l := range []local{v4, v6} {
		if l.cidr.IsValid() {
			c.ClusterCIDRs = append(c.ClusterCIDRs, l.cidr)
		}
	}
	return c, true
}

// ofAll says how many rules show something; "" where there are none.
func ofAll(votes, all int, what string) string {
	switch {
	case all == 0:
		return ""
	case votes == all:
		return fmt.Sprintf("all %d %s", all, what)
	}
	return fmt.Sprintf("%d of %d %s", votes, all, what)
}
