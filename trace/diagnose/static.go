// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// nodeWide finds what is wrong with the node's rules as a whole, whatever Service they are for.
func (n *node) nodeWide() []report.Finding {
	var out []report.Finding
	for _, f := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		if n.unread[f] != "" {
			continue
		}
		if !n.programmed[f] && n.hasFrontends[f] && n.mode.Actual != userspaceMode {
			is := issue{expected: n.dialect.services + " in " + n.dialect.rules, actual: "none", message: fmt.Sprintf("the node has no %s rules of kube-proxy's", f)}
			code := NotProgrammed
			if n.programmed[netfilter.Inet&^f] {
				code = FamilyMissing
			}
			out = append(out, n.finding(code, f.String(), is))
		}
		if live := n.backends[f]; len(live) > 1 {
			out = append(out, n.finding(SplitBackend, f.String(), issue{
				expected: "one backend", actual: "nft and legacy",
				message: "kube-proxy's rules are in iptables-nft and in iptables-legacy, and both are live: whichever was loaded last is asked first",
			}))
		}
	}
	for _, is := range n.leftovers() {
		out = append(out, n.finding(ModeLeftover, is.subject, is))
		n.mode.Leftovers = append(n.mode.Leftovers, is.subject)
	}
	out = append(out, n.ownWord()...)
	out = append(out, n.tableFull()...)
	out = append(out, n.lostConnections()...)
	return append(out, n.duplicates()...)
}

// leftovers finds kube-proxy's rules of other modes than the one that it runs in.
func (n *node) leftovers() []issue {
	var out []issue
	for _, x := range []struct {
		of      *dialect
		subject string
		actual  string
		live    func() bool
	}{
		{&iptablesDialect, "table nat", "kube-proxy's iptables chains, too", n.iptablesLeft},
		{&nftDialect, "table " + nftTable, "kube-proxy's nftables table, too", func() bool { return slices.ContainsFunc(n.rules.Tables, isNFTKube) }},
		{&ipvsDialect, "virtual servers of IPVS", "kube-proxy's virtual servers, too", n.virtualLeft},
		{&ipvsDialect, "addresses on " + ipvsDevice, "addresses of Services on " + ipvsDevice + ", too", n.addressesLeft},
	} {
		if x.of == n.dialect || !x.live() {
			continue
		}
		message := fmt.Sprintf("kube-proxy runs in %s mode, and its rules of %s mode are still live: whichever translates a packet first decides", n.dialect.mode, x.of.mode)
		if x.of == &ipvsDialect {
			message = fmt.Sprintf("kube-proxy runs in %s mode, and what it made in ipvs mode is still there: the node takes these addresses for its own", n.dialect.mode)
		}
		out = append(out, issue{subject: x.subject, expected: "rules of " + n.dialect.mode + " mode alone", actual: x.actual, message: message})
	}
	return out
}

// duplicates finds rules that stand more than once in a chain of kube-proxy's, or that lead to one more than once.
func (n *node) duplicates() []report.Finding {
	var evidence, chains []string
	count := 0
	for _, t := range n.rules.Tables {
		for _, c := range t.Chains {
			if c.Base == nil && !byKube(netfilter.Ref{Chain: c}) {
				continue
			}
			more := slices.DeleteFunc(repeated(c), func(r *netfilter.Rule) bool { return n.listedTwice(c, r) })
			if len(more) == 0 {
				continue
			}
			count += len(more)
			chains = append(chains, chainName(c))
			for _, r := range more {
				evidence = append(evidence, cite(netfilter.Ref{Chain: c, Rule: r}))
			}
		}
	}
	if count == 0 {
		return nil
	}
	return []report.Finding{n.finding(DuplicateRules, cut(chains, 3), issue{
		actual:  fmt.Sprintf("%d rules too many", count),
		message: "the same rule stands in a chain more than once: kube-proxy appends where it should find its own", evidence: evidence[:min(len(evidence), maxEvidence)],
	})}
}

// listedTwice tells whether kube-proxy itself writes a rule as often as the API lists what it is for: an address that is both
// an external and a load-balancer IP, or is listed twice, and a source range that is.
func (n *node) listedTwice(c *netfilter.Chain, r *netfilter.Rule) bool {
	return n.twice[r.Key.Dst.String()] || n.twice[r.Key.Src.String()] || n.twice[strings.TrimPrefix(c.Name, "KUBE-FW-")]
}

// noteTwice notes what a Service lists twice: addresses, and the chain (without its prefix) of repeated source ranges.
func (n *node) noteTwice(svc *corev1.Service) {
	seen := map[string]bool{}
	note := func(s string) {
		if seen[s] {
			n.twice[s] = true
		}
		seen[s] = true
	}
	for _, ip := range svc.Spec.ExternalIPs {
		note(canonical(ip))
	}
	for i := range svc.Status.LoadBalancer.Ingress {
		note(canonical(svc.Status.LoadBalancer.Ingress[i].IP))
	}
	ranges := map[string]bool{}
	for _, r := range svc.Spec.LoadBalancerSourceRanges {
		r = strings.TrimSpace(r)
		if ranges[r] {
			for i := range svc.Spec.Ports {
				p := &svc.Spec.Ports[i]
				chains := expect.ChainNames(expect.ServicePortName(svc.Namespace, svc.Name, p.Name), p.Protocol)
				n.twice[strings.TrimPrefix(chains.Firewall, "KUBE-FW-")] = true
			}
		}
		ranges[r] = true
	}
}

func canonical(ip string) string {
	if a, err := netip.ParseAddr(ip); err == nil {
		return a.String()
	}
	return ip
}

// repeated returns the rules of a chain that stand in it before already; of a base chain only those that lead to kube-proxy's.
func repeated(c *netfilter.Chain) []*netfilter.Rule {
	if len(c.Rules) < 2 {
		return nil
	}
	var out []*netfilter.Rule
	seen := make(map[string]bool, len(c.Rules))
	for _, r := range c.Rules {
		if c.Base != nil && !isNFTKube(c.Table) && !strings.HasPrefix(r.Target, "KUBE-") {
			continue
		}
		if seen[r.Text] {
			out = append(out, r)
		}
		seen[r.Text] = true
	}
	return out
}

// survey notes what the rules hold, and what the API has that rules are due for.
func (n *node) survey() {
	n.programmed = map[netfilter.Family]bool{}
	n.backends = map[netfilter.Family]map[netfilter.Backend]bool{}
	n.hasFrontends = map[netfilter.Family]bool{}
	for _, t := range n.rules.Tables {
		if !n.dialect.home(t) {
			continue
		}
		if c := t.Chain(n.dialect.services); c != nil && len(c.Rules) > 0 {
			n.programmed[t.Family] = true
			if n.backends[t.Family] == nil {
				n.backends[t.Family] = map[netfilter.Backend]bool{}
			}
			n.backends[t.Family][t.Backend] = true
		}
	}
	for _, f := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		n.programmed[f] = n.programmed[f] && (!n.isIPVS() || n.hasVirtual(f))
	}
	n.frontends = map[frontendKey]bool{}
	n.clusterIPs = map[netip.Addr]bool{}
	n.owners = map[frontendKey][]expect.Frontend{}
	n.twice = map[string]bool{}
	for _, svc := range n.cluster.Services {
		if len(svc.Spec.ExternalIPs)+len(svc.Status.LoadBalancer.Ingress) > 0 {
			n.noteTwice(svc)
		}
		for _, f := range n.exp.Frontends(svc) {
			k := keyOf(f)
			n.hasFrontends[netfilter.FamilyOf(f.Address)] = true
			if f.Kind == expect.ClusterIP {
				n.clusterIPs[f.Address] = true
			}
			if f.Kind == expect.ExternalIP || f.Kind == expect.LoadBalancerIP {
				n.owners[k] = append(n.owners[k], f)
			}
			n.frontends[k] = true
		}
		if p := svc.Spec.HealthCheckNodePort; p != 0 {
			n.frontends[frontendKey{proto: netfilter.TCP, port: uint16(p)}] = true //nolint:gosec // a port
		}
		for i := range svc.Spec.Ports {
			if p := &svc.Spec.Ports[i]; p.NodePort != 0 {
				n.frontends[frontendKey{proto: protocolNumber(p.Protocol), port: uint16(p.NodePort)}] = true //nolint:gosec // a port
			}
		}
	}
}
