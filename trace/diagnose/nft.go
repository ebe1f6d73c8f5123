// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// What is said of kube-proxy's table of nftables mode: its verdict maps lead from the frontends to the chains of Services
// (pkg/proxy/nftables/proxier.go).
const (
	nftServiceIPs  = "service-ips"
	nftNodePorts   = "service-nodeports"
	nftClusterIPs  = "cluster-ips"
	nftNodeIPs     = "nodeport-ips"
	nftFirewallIPs = "firewall-ips"
)

// nftMaps are the maps whose elements are frontends.
var nftMaps = []string{nftServiceIPs, nftNodePorts, "no-endpoint-services", "no-endpoint-nodeports", nftFirewallIPs}

// nftTables returns kube-proxy's tables of nftables mode.
func (n *node) nftTables() []*netfilter.Table {
	var out []*netfilter.Table
	for _, t := range n.rules.Tables {
		if isNFTKube(t) {
			out = append(out, t)
		}
	}
	return out
}

// elements quotes what kube-proxy's maps have for a frontend.
func (n *node) elements(f expect.Frontend) []string {
	var out []string
	for _, t := range n.nftTables() {
		for _, name := range nftMaps {
			s := t.Set(name)
			if s == nil || t.Family&netfilter.FamilyOf(f.Address) == 0 {
				continue
			}
			s.Each(func(e netfilter.SetElement) {
				if e.Proto == protocolNumber(f.Protocol) && e.Port == f.Port && (e.Addr == f.Address || !e.Addr.IsValid() && f.Kind == expect.NodePort) {
					out = append(out, citeElement(name, e))
				}
			})
		}
	}
	return out
}

// citeElement quotes an element of a map or set of kube-proxy's as nft list prints it.
func citeElement(set string, e netfilter.SetElement) string {
	var parts []string
	if e.Addr.IsValid() {
		parts = append(parts, e.Addr.String())
	}
	if e.Proto != 0 {
		parts = append(parts, protocolName(e.Proto))
	}
	if e.Port != 0 {
		parts = append(parts, fmt.Sprint(e.Port))
	}
	kind := "map "
	verdict := map[netfilter.Kind]string{netfilter.Goto: " : goto " + e.Chain, netfilter.Jump: " : jump " + e.Chain, netfilter.Drop: " : drop", netfilter.Accept: " : accept"}[e.Kind]
	if verdict == "" {
		kind = "set "
	}
	return "nft " + nftTable + " " + kind + set + ": " + strings.Join(parts, " . ") + verdict
}

func protocolName(p uint8) string {
	switch p {
	case netfilter.UDP:
		return "udp"
	case netfilter.SCTP:
		return "sctp"
	}
	return "tcp"
}

// noElement says that the map which should lead on from a frontend has nothing for it, or that nothing asks the map.
func (n *node) noElement(f expect.Frontend) string {
	name := nftServiceIPs
	key := f.Address.String() + " . "
	if f.Kind == expect.NodePort {
		name, key = nftNodePorts, ""
	}
	key += fmt.Sprintf("%s . %d", protocolName(protocolNumber(f.Protocol)), f.Port)
	if f.Kind == expect.NodePort && !n.servesNodePorts(f.Address) {
		return "nft " + nftTable + " set " + nftNodeIPs + " has no element " + f.Address.String()
	}
	for _, e := range n.elements(f) {
		if strings.Contains(e, "map "+name+":") {
			return "nft " + nftTable + " services does not come to map " + name + ", or the chain that it leads to from " + key + " translates nothing"
		}
	}
	return "nft " + nftTable + " map " + name + " has no element " + key
}

// servesNodePorts tells whether the set of the addresses that serve NodePorts has one of them; where there is no such set, all do.
func (n *node) servesNodePorts(a netip.Addr) bool {
	for _, t := range n.nftTables() {
		s := t.Set(nftNodeIPs)
		if s == nil || t.Family&netfilter.FamilyOf(a) == 0 {
			continue
		}
		has := false
		s.Each(func(e netfilter.SetElement) { has = has || e.Addr == a })
		return has
	}
	return true
}

// missingNFT says what the chain that should lead to an endpoint holds in its place: one rule that draws among destinations, or,
// with session affinity or before 1.36, one that draws among the chains of endpoints.
func missingNFT(w *way, c *netfilter.Chain, is *issue) {
	is.where, is.evidence = netfilter.Ref{Chain: c}, quote(c)
	leads := map[string]bool{}
	var empty []string
	for _, r := range c.Rules {
		for _, o := range r.Ops {
			if t, ok := o.(netfilter.Translator); ok {
				for _, d := range t.Destinations() {
					leads[d.String()] = true
				}
			}
		}
	}
	for name := range c.LeadsTo() {
		ep := c.Table.Chain(name)
		if ep == nil || !w.ofService(ep, w.endpoint) {
			continue
		}
		leads[name] = true
		if !translates(ep) && !slices.Contains(empty, name) {
			empty = append(empty, name)
		}
	}
	is.message = fmt.Sprintf("%s leads to %d endpoints, not to this one", chainName(c), len(leads))
	if len(empty) > 0 {
		is.message = fmt.Sprintf("%s leads to %s, which translates nothing", chainName(c), cut(empty, 3))
	}
}

// staleElements finds elements of kube-proxy's maps and sets that belong to no Service: what belongs to one port is one finding.
func (n *node) staleElements() []report.Finding {
	stale := map[string]*issue{}
	var names []string
	note := func(subject, evidence string) {
		is := stale[subject]
		if is == nil {
			is = &issue{expected: "no element", message: "kube-proxy's maps serve a frontend that belongs to no Service"}
			stale[subject] = is
			names = append(names, subject)
		}
		is.evidence = append(is.evidence, evidence)
	}
	for _, t := range n.nftTables() {
		for _, name := range nftMaps {
			if s := t.Set(name); s != nil {
				s.Each(func(e netfilter.SetElement) {
					if !n.frontends[frontendKey{e.Addr, e.Proto, e.Port}] {
						note(ownerOfElement(e), citeElement(name, e))
					}
				})
			}
		}
		if s := t.Set(nftClusterIPs); s != nil {
			s.Each(func(e netfilter.SetElement) {
				if !n.clusterIPs[e.Addr] {
					note(e.Addr.String(), citeElement(nftClusterIPs, e))
				}
			})
		}
	}
	slices.Sort(names)
	out := make([]report.Finding, 0, len(names))
	for _, name := range names {
		is := stale[name]
		is.actual = fmt.Sprintf("%d elements", len(is.evidence))
		is.evidence = is.evidence[:min(len(is.evidence), maxEvidence)]
		out = append(out, n.finding(StaleService, name, *is))
	}
	return out
}

// ownerOfElement returns the Service port that the chain of an element names, "HASH-shop/web/tcp/http" being "shop/web:http"; else the
// frontend itself.
func ownerOfElement(e netfilter.SetElement) string {
	if _, rest, ok := strings.Cut(e.Chain, "-"); ok && strings.Contains(e.Chain, "/") {
		if _, name, ok := strings.Cut(rest, "-"); ok {
			if parts := strings.Split(name, "/"); len(parts) == 4 { //nolint:mnd // namespace/name/protocol/port
				return kubeproxy.ServicePortName(parts[0], parts[1], parts[3])
			}
		}
	}
	if !e.Addr.IsValid() {
		return fmt.Sprintf("NodePort %d/%s", e.Port, protocolName(e.Proto))
	}
	return netip.AddrPortFrom(e.Addr, e.Port).String()
}

// eachNFTNameDue calls f with the name of every chain and affinity set that nftables mode may have made for the Services and endpoints
// there are, used or not.
func (n *node) eachNFTNameDue(f func(name string)) {
	for _, svc := range n.cluster.Services {
		if reason, _ := n.exp.Ignored(svc); reason != "" {
			continue
		}
		name := expect.NameOf(svc)
		for i := range svc.Spec.Ports {
			port := &svc.Spec.Ports[i]
			names := kubeproxy.NFTChainNames(name, port.Name, port.Protocol)
			for _, chain := range []string{names.Cluster, names.Local, names.External, names.Firewall} {
				f(chain)
			}
			for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
				for _, e := range n.exp.Endpoints(name, port, family) {
					chain, affinity := kubeproxy.NFTEndpointNames(name, port.Name, port.Protocol, e.Address)
					f(chain)
					f(affinity)
				}
			}
		}
	}
}
