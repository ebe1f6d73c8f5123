// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/ipvs"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// ipvsMode is pkg/proxy/ipvs/proxier.go: virtual servers lead to the endpoints, and rules of iptables with sets mark
// for masquerade and refuse. It has no chains of single Services.
type ipvsMode struct{ iptablesMode }

func (*ipvsMode) where() string { return "the virtual servers of IPVS, table nat" }

func (m *ipvsMode) owns(r netfilter.Ref) bool {
	return r.Chain.Table.Backend == netfilter.BackendIPVS || m.iptablesMode.owns(r)
}

func (m *ipvsMode) holds(s *nodestate.State) bool {
	return onlyServers(s) || slices.ContainsFunc(servicesChains(m, s), func(c *netfilter.Chain) bool {
		return leadsTo(c, m.chains.NodePorts)
	})
}

// programmed tells whether there is a virtual server of a family.
func (*ipvsMode) programmed(s *nodestate.State, f netfilter.Family) bool {
	return slices.ContainsFunc(s.Virtual, func(v ipvs.VirtualServer) bool {
		return v.Address.IsValid() && netfilter.FamilyOf(v.Address.Addr()) == f
	})
}

// notRead: where the collector says what it could not read, a file that is not there is a table that the kernel does
// not have.
func (m *ipvsMode) notRead(s *nodestate.State, f netfilter.Family) string {
	if why := serversNotRead(s); why != "" {
		return why
	}
	if onlyServers(s) {
		return ""
	}
	return m.iptablesMode.notRead(s, f)
}

// onlyServers tells whether the node's virtual servers were read, and nothing else that tells the mode.
func onlyServers(s *nodestate.State) bool {
	x := s.NotAll[netfilter.IPv4]
	return len(s.Virtual) > 0 && x.Has("nat") && len(s.Have[netfilter.IPv4])+len(s.Have[netfilter.IPv6]) == 0
}

func serversNotRead(s *nodestate.State) string {
	switch {
	case s.Unread(snapshot.IPVSFile) != "":
		return snapshot.IPVSFile + " was not read: " + s.Unread(snapshot.IPVSFile)
	case s.Has(snapshot.IPVSFile):
		return ""
	case !s.ListsUnread():
		return snapshot.IPVSFile + " was not collected: that is where ipvs mode has its virtual servers"
	}
	return ""
}

func (*ipvsMode) tellsWhy(s *nodestate.State) bool { return serversNotRead(s) != "" }

func (m *ipvsMode) showBackends(n *node) { m.backendsOf(n, "") }

func (*ipvsMode) leftovers(n *node) []issue {
	message := fmt.Sprintf(
		"kube-proxy runs in %s mode, and what it created in ipvs mode is still there: the node has these addresses",
		n.mode.name(),
	)
	var out []issue
	for _, left := range []struct {
		is              bool
		subject, actual string
	}{
		{n.serversLeft(), "virtual servers of IPVS", "kube-proxy's virtual servers, too"},
		{
			len(n.net.AddressesOn(kubeproxy.IPVSDevice)) > 0,
			"addresses on " + kubeproxy.IPVSDevice, "addresses of Services on " + kubeproxy.IPVSDevice + ", too",
		},
	} {
		if left.is {
			out = append(out, issue{
				code:     ModeLeftover,
				subject:  left.subject,
				expected: "rules of " + n.mode.name() + " mode alone",
				actual:   left.actual,
				message:  message,
			})
		}
	}
	return out
}

// serversLeft tells whether virtual servers serve frontends of Services that the command program has not given to them.
func (n *node) serversLeft() bool {
	ours := n.programServers()
	for k := range n.survey.servers {
		if n.isFrontend(k) && !ours[k] {
			return true
		}
	}
	return false
}

func (*ipvsMode) unowned(n *node) []issue {
	return append(n.unownedServers(), n.unownedAddresses()...)
}

func (*ipvsMode) affinity(*pathCase) []issue { return nil } // the virtual server's persistence, see explain

// Findings about a frontend of IPVS that is not served, and about what a virtual server needs.
const (
	VirtualServerMissing = "VirtualServerMissing"
	VIPMissing           = "VIPMissing"
	IPSetMissing         = "IPSetMissing"
	IPVSConntrackOff     = "IPVSConntrackOff"
)

var (
	_ = register(kind{
		code: VirtualServerMissing, severity: mismatch, scope: onPath, by: explanation, remedy: restart,
		issues: []string{"kubernetes/kubernetes#71071", "kubernetes/kubernetes#70493"},
	})
	_ = register(kind{
		code: VIPMissing, severity: mismatch, scope: onPath, by: explanation,
		remedy: advice("restart kube-proxy on {node}, and find what removes addresses from interfaces that it does not "+
			"manage "+
			"(NetworkManager, systemd-networkd)",
			restartProxy,
			command{line: "ip addr add {subject} dev " + kubeproxy.IPVSDevice, onNode: true, when: "at once"}),
		issues: []string{"kubernetes/kubernetes#88012", "kubernetes/kubernetes#80738"},
	})
	_ = register(kind{
		code: IPSetMissing, severity: mismatch, scope: onPath, by: explanation, remedy: restart,
		issues: []string{"kubernetes/kubernetes#134884", "kubernetes/kubernetes#67292", "kubernetes/kubernetes#68974"},
	})
	_ = register(kind{
		code: IPVSConntrackOff, severity: mismatch, scope: onPath, by: explanation,
		effect: map[string]string{"": "not masqueraded"},
		remedy: advice("turn net.ipv4.vs.conntrack on (kube-proxy does when it starts), and find what turned it off",
			command{line: "sysctl -w net.ipv4.vs.conntrack=1", onNode: true}),
	})
)

// explain judges the virtual server of a frontend, and says where the issues that the walk has found come from. What
// the walk has found and a finding about the virtual server explains is left out.
func (m *ipvsMode) explain(p *pathCase, issues []issue) []issue {
	f := p.want.Frontend
	if p.want.Action == expect.None || p.want.Action == expect.Drop && len(issues) == 0 {
		return issues
	}
	v := p.survey.servers[keyWithAddress(f)]
	local, known := p.net.Local(f.Address)
	switch {
	case !p.survey.programmed[netfilter.FamilyOf(f.Address)]:
		if len(issues) == 0 {
			return nil
		}
		is := issue{
			code:     NotProgrammed,
			expected: describe(p.want),
			message:  "the node has no virtual servers, or no rules, of kube-proxy's",
		}
		p.familyMissing(&is)
		return []issue{is}
	case v == nil:
		return append(without(issues, explainedByServer...), issue{
			code: VirtualServerMissing, subject: serverName(f), expected: describe(p.want), actual: "none",
			message: "IPVS has no virtual server for this frontend",
		})
	case known && !local && p.want.Origin.Kind != expect.FromNode && len(issues) > 0:
		return append(without(issues, explainedByServer...), issue{
			code:      VIPMissing,
			subject:   f.Address.String(),
			expected:  "on " + kubeproxy.IPVSDevice,
			actual:    "on no interface",
			evidence:  say("ipvs " + v.String()),
			predicate: true,
			message:   "is not an address of the node: incoming packets for it are forwarded, and IPVS never sees them",
		})
	}
	found := p.realServers(v)
	found = append(found, p.serverSettings(v)...)
	issues = without(issues, MissingEndpoint)
	if hasCode(found, RealServerWeightZero) || hasCode(found, MissingEndpoint) {
		issues = slices.DeleteFunc(issues, func(is issue) bool {
			return is.where.Chain != nil && is.where.Chain.Table.Backend == netfilter.BackendIPVS &&
				is.code == RefusedWithEndpoints
		})
	}
	return append(found, p.aroundServer(issues)...)
}

// explainedByServer are the codes of issues that a virtual server which is not reached, or not there, explains.
var explainedByServer = []string{
	ServiceNotProgrammed,
	MissingEndpoint,
	Rejected,
	RefusedWithEndpoints,
	AcceptedWithoutEndpoints,
	NoRoute,
	RefusingRoute,
	UnevenShare,
	WrongMasquerade,
	SourceRangesMismatch,
	TrafficPolicyMismatch,
	StaleEndpoint,
}

func without(issues []issue, codes ...string) []issue {
	return slices.DeleteFunc(issues, func(is issue) bool { return slices.Contains(codes, is.code) })
}

func hasCode(issues []issue, code string) bool {
	return slices.ContainsFunc(issues, func(is issue) bool { return is.code == code })
}

func serverName(f expect.Frontend) string {
	return string(f.Protocol) + " " + netip.AddrPortFrom(f.Address, f.Port).String()
}

// aroundServer explains what is wrong with the rules and sets around IPVS: they mark for masquerade, and refuse.
func (p *pathCase) aroundServer(issues []issue) []issue {
	if len(issues) == 0 {
		return nil
	}
	w := p.walkedSteps()
	missing := p.entriesMissing()
	var out []issue
	for i := range issues {
		is := issues[i]
		switch {
		case is.code == StaleEndpoint:
			p.explainStale(&is)
		case is.code != WrongMasquerade && is.code != SourceRangesMismatch && !p.byKubeProxy(is.where):
		case is.code == WrongMasquerade && is.unmasqueraded && p.untrackedByIPVS():
			is = issue{
				code:      IPVSConntrackOff,
				expected:  "net.ipv4.vs.conntrack=1",
				actual:    "0",
				subject:   is.subject,
				endpoints: is.endpoints,
				message:   "IPVS connections are not tracked: their source is never translated, and answers do not come back",
			}
		case is.code == WrongMasquerade && !is.unmasqueraded && p.markedForNodePort(w):
			is = p.nodePortClash(w, &is)
		case len(missing) > 0:
			is = issue{
				code:     IPSetMissing,
				subject:  strings.Join(missing, ", "),
				expected: "an entry",
				actual:   "none",
				evidence: is.evidence,
				message:  "the set has no entry for the frontend: " + withoutEntry(&is),
			}
			if slices.Contains(missing, p.sourceSet()) && p.allowsAnybody() {
				is.message += "; kube-proxy before 1.34 cannot add the range of all addresses, which a set of this type does " +
					"not take"
				is.remedy = p.advise(withoutAnyRange, &is)
			}
		case is.code == WrongMasquerade && is.unmasqueraded && (p.passedOverNAT(w, &is) || p.passedOverMasquerade(w, &is)):
		case is.code == WrongMasquerade && is.unmasqueraded && w.services() == nil:
			is.code, is.message = NotProgrammed, fmt.Sprintf("%s does not lead to %s: nothing marks packets whose source is "+
				"to be translated",
				p.mode.baseChain(p.hook()), p.mode.names().Services)
		case is.code == WrongMasquerade:
			p.explainMasquerade(&is)
		}
		if !slices.ContainsFunc(out, func(o issue) bool { return o.code == is.code && o.subject == is.subject }) {
			out = append(out, is)
		}
	}
	return out
}

// withoutAnyRange is the remedy where kube-proxy's own fault keeps everybody out: to write the rules again repeats it.
var withoutAnyRange = advice("take 0.0.0.0/0 and ::/0 out of the Service's loadBalancerSourceRanges: without any " +
	"range, every client is allowed; or run kube-proxy 1.34 or later")

// sourceSet is the name of the set of who may connect to the path's load balancer address.
func (p *pathCase) sourceSet() string {
	return kubeproxy.IPVSSetName(kubeproxy.IPVSSetLoadBalancerSourceCIDR, p.want.Frontend.Address.Is6())
}

// allowsAnybody tells whether one of the Service's loadBalancerSourceRanges is all addresses.
func (p *pathCase) allowsAnybody() bool {
	svc := p.cluster.services[p.want.Frontend.Service]
	return len(svc.Spec.LoadBalancerSourceRanges) > 0 && len(sourceRanges(svc, p.want.Frontend.Address.Is4())) == 0
}

// withoutEntry says what comes of a missing entry.
func withoutEntry(is *issue) string {
	if is.where.Chain != nil && is.where.Chain.Name == kubeproxy.IPVSChainFilter {
		return is.where.String() + " rejects the packet as a packet to a port of the node itself"
	}
	return is.message
}

func (n *node) untrackedByIPVS() bool { return n.isOff("net/ipv4/vs/conntrack") }
