// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/ipvs"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Findings about the real servers and the settings of a virtual server of IPVS.
const (
	RealServerWeightZero  = "RealServerWeightZero"
	RealServerTerminating = "RealServerTerminating"
	SchedulerMismatch     = "SchedulerMismatch"
	PersistenceMismatch   = "PersistenceMismatch"
	PersistenceStale      = "PersistenceStale"
	ForwardMethod         = "ForwardMethod"
)

// notPersistent is issue.actual of a virtual server that does not keep clients.
const notPersistent = "none"

var (
	_ = register(kind{
		code: RealServerWeightZero, severity: mismatch, scope: onPath, by: explanation, remedy: restart,
		issues: []string{"kubernetes/kubernetes#92019", "kubernetes/kubernetes#108319"},
	})
	_ = register(kind{
		code: RealServerTerminating, severity: note, scope: onPath, by: explanation,
		issues: []string{"kubernetes/kubernetes#81775", "kubernetes/kubernetes#57841"},
	})
	_ = register(kind{
		code: SchedulerMismatch, severity: mismatch, scope: onPath, by: explanation,
		effect: map[string]string{"": "scheduler {actual}"},
		remedy: advice("restart kube-proxy on {node}: it rewrites all its rules; where another program owns the virtual "+
			"server, list its address in ipvs.excludeCIDRs", restartProxy),
	})
	_ = register(kind{
		code: PersistenceMismatch, severity: mismatch, scope: onPath, by: explanation, remedy: restart,
		effect: map[string]string{notPersistent: "no session affinity", "": "session affinity: {actual}"},
	})
	_ = register(kind{
		code:     PersistenceStale,
		severity: warning,
		scope:    onPath,
		by:       explanation,
		remedy: advice("turn expire_quiescent_template on (kube-proxy does when it starts), and find what turned "+
			"it off", command{line: "sysctl -w net.ipv4.vs.expire_quiescent_template=1", onNode: true}),
		issues: []string{"kubernetes/kubernetes#71809", "kubernetes/kubernetes#81587", "kubernetes/kubernetes#89358"},
	})
	_ = register(kind{
		code: ForwardMethod, severity: mismatch, scope: onPath, by: explanation,
		effect: map[string]string{"": "forward method {actual}"},
		remedy: advice("find who changed the real server (kube-proxy only writes Masq), then restart kube-proxy on {node}",
			restartProxy),
	})
)

// realServers compares the real servers with the endpoints that are due.
func (p *pathCase) realServers(v *ipvs.VirtualServer) []issue {
	if len(v.Reals) == 0 && len(p.want.Endpoints) > 0 {
		return []issue{p.withoutReals(v)}
	}
	var out []issue
	due := map[netip.AddrPort]bool{}
	for i := range p.want.Endpoints {
		at := p.want.Endpoints[i].Address
		due[at] = true
		k := slices.IndexFunc(v.Reals, func(r ipvs.RealServer) bool { return r.Address == at })
		switch {
		case k < 0:
			out = append(out, issue{
				code: MissingEndpoint, subject: at.String(), endpoints: []string{at.String()},
				expected: percent(1 / float64(len(p.want.Endpoints))), actual: "none", evidence: citeServer(v),
				message: fmt.Sprintf("the virtual server has %d real servers, and not this one", len(v.Reals)),
			})
		case v.Reals[k].Weight == 0:
			out = append(out, issue{
				code:      RealServerWeightZero,
				subject:   at.String(),
				endpoints: []string{at.String()},
				expected:  "weight 1",
				actual:    "weight 0",
				evidence: citeReal(
					v,
					&v.Reals[k],
				),
				message: "the real server gets no new connections, although the endpoint should be used",
			})
		}
	}
	for i := range v.Reals {
		r := &v.Reals[i]
		if r.Method != "Masq" && r.Method != "Local" {
			out = append(out, issue{
				code:      ForwardMethod,
				subject:   r.Address.String(),
				endpoints: []string{r.Address.String()},
				expected:  "Masq",
				actual:    r.Method,
				evidence:  citeReal(v, r),
				message: "IPVS sends connections to this real server without translating them: a pod does not accept packets for " +
					"the Service's address",
			})
		}
		if r.Weight == 0 && !due[r.Address] && p.want.Action != expect.Drop {
			out = append(out, p.terminating(v, r))
		}
	}
	return out
}

// withoutReals is one issue for a virtual server that has no real server at all.
func (p *pathCase) withoutReals(v *ipvs.VirtualServer) issue {
	is := issue{
		code: MissingEndpoint, expected: number(len(p.want.Endpoints), "real server"), actual: "none",
		evidence: citeServer(v),
		message:  "ipvs " + v.String() + " has no real server: IPVS refuses all connections",
	}
	for i := range p.want.Endpoints {
		is.endpoints = append(is.endpoints, p.want.Endpoints[i].Address.String())
	}
	is.subject = cut(is.endpoints, 4)
	return is
}

// terminating is a real server that kube-proxy keeps, without new connections, until its last one has ended
// (pkg/proxy/ipvs/graceful_termination.go).
func (p *pathCase) terminating(v *ipvs.VirtualServer, r *ipvs.RealServer) issue {
	is := issue{
		code:      RealServerTerminating,
		subject:   r.Address.String(),
		endpoints: []string{r.Address.String()},
		expected:  "no new connections",
		actual:    "weight 0",
		evidence:  citeReal(v, r),
	}
	is.message = "the endpoint is no longer used; the real server stays, without new connections, until the last one " +
		"has ended"
	if r.Active > 0 || r.Inactive > 0 {
		is.message += fmt.Sprintf(" (%d active, %d inactive)", r.Active, r.Inactive)
	}
	if p.want.Frontend.Protocol != "TCP" {
		is.message += "; for " + string(p.want.Frontend.Protocol) + " kube-proxy removes it at once"
	}
	return is
}

// serverSettings compares the scheduler and the persistence with what is configured.
func (p *pathCase) serverSettings(v *ipvs.VirtualServer) []issue {
	var out []issue
	if p.isOff("net/ipv4/vs/expire_quiescent_template") && v.Persistent > 0 {
		for i := range v.Reals {
			if r := &v.Reals[i]; r.Weight == 0 {
				out = append(out, issue{
					code:      PersistenceStale,
					subject:   r.Address.String(),
					endpoints: []string{r.Address.String()},
					expected:  "net.ipv4.vs.expire_quiescent_template=1",
					actual:    "0",
					evidence:  citeServer(v),
					message:   "clients that used this real server are still sent to it, although it should get no new connections",
				})
			}
		}
	}
	if due := p.config.Scheduler; v.Scheduler != due {
		out = append(out, issue{
			code:     SchedulerMismatch,
			subject:  serverName(p.want.Frontend),
			expected: due,
			actual:   v.Scheduler,
			evidence: citeServer(v),
			message:  "the virtual server distributes connections by another scheduler than kube-proxy's configuration names",
		})
	}
	return append(out, p.persistence(v)...)
}

// persistence compares a virtual server's persistence with the Service's session affinity.
func (p *pathCase) persistence(v *ipvs.VirtualServer) []issue {
	due := uint32(p.exp.Affinity(p.want.Frontend)) //nolint:gosec // seconds, at most a day
	if due == v.Persistent {
		return nil
	}
	seconds := func(s uint32) string {
		if s == 0 {
			return notPersistent
		}
		return "ClientIP for " + strconv.FormatUint(uint64(s), 10) + "s"
	}
	return []issue{
		{
			code:     PersistenceMismatch,
			subject:  serverName(p.want.Frontend),
			expected: seconds(due),
			actual:   seconds(v.Persistent),
			evidence: citeServer(
				v,
			),
			message: "the virtual server does not keep clients at their real server as the Service's session affinity asks for",
		},
	}
}

// citeServer quotes a virtual server and its real servers.
func citeServer(v *ipvs.VirtualServer) []report.Evidence {
	out := []string{"ipvs " + v.String()}
	for i := range v.Reals {
		if i == maxEvidence {
			out = append(out, fmt.Sprintf("… and %d more real servers", len(v.Reals)-i))
			break
		}
		out = append(out, "  -> "+v.Reals[i].String())
	}
	return say(out...)
}

func citeReal(v *ipvs.VirtualServer, r *ipvs.RealServer) []report.Evidence {
	return say("ipvs " + v.String() + " -> " + r.String())
}

// Findings about what IPVS has and no Service needs.
const (
	VirtualServerStale = "VirtualServerStale"
	VIPStale           = "VIPStale"
)

var (
	_ = register(kind{
		code: VirtualServerStale, severity: mismatch, scope: onNode, by: backwards,
		remedy: advice("restart kube-proxy on {node}: it rewrites all its rules; where another program owns the virtual "+
			"server, list its address in ipvs.excludeCIDRs", restartProxy),
		issues: []string{"kubernetes/kubernetes#78421"},
	})
	_ = register(kind{
		code:     VIPStale,
		severity: mismatch,
		scope:    onNode,
		by:       backwards,
		remedy: advice("restart kube-proxy on {node}: it rewrites all its rules",
			restartProxy,
			command{
				line:   "ip addr del {subject} dev " + kubeproxy.IPVSDevice,
				onNode: true,
				when:   "when it is certain that nothing needs it",
			}),
		issues: []string{"kubernetes/kubernetes#78421", "kubernetes/kubernetes#88012"},
	})
)

// unownedServers finds virtual servers that belong to no Service. What kube-proxy is told to leave alone, and what is
// by firewall mark, is others'.
func (n *node) unownedServers() []issue {
	var out []issue
	for i := range n.Virtual {
		v := &n.Virtual[i]
		if !v.Address.IsValid() || n.isFrontend(serverKey(v)) ||
			slices.ContainsFunc(n.config.ExcludeCIDRs, func(p netip.Prefix) bool { return p.Contains(v.Address.Addr()) }) {
			continue
		}
		is := issue{
			code: VirtualServerStale, subject: v.Protocol + " " + v.Address.String(),
			expected: "none", actual: fmt.Sprintf("%d real servers", len(v.Reals)), evidence: citeServer(v),
			message: "IPVS has a virtual server that belongs to no Service",
		}
		// kube-proxy binds the addresses of its own ones.
		if n.values.sources[kubeproxy.IPVSExcludeCIDRs].source == kubeproxy.NotKnown &&
			!slices.Contains(n.net.AddressesOn(kubeproxy.IPVSDevice), v.Address.Addr()) {
			is.severity = note
			is.message += "; its address is not on " + kubeproxy.IPVSDevice + ", and kube-proxy's excludeCIDRs is not known: " +
				"it may be another program's"
		}
		out = append(out, is)
	}
	return out
}

// unownedAddresses finds addresses on kube-ipvs0 that no Service has, among them those that it must never have: the
// node's own.
func (n *node) unownedAddresses() []issue {
	due := map[netip.Addr]bool{}
	for k := range n.survey.frontends {
		due[k.addr] = true
	}
	var out []issue
	for _, a := range n.net.AddressesOn(kubeproxy.IPVSDevice) {
		if due[a] || n.exp.ClaimsAddress(a) || a.IsLinkLocalUnicast() {
			continue
		}
		is := issue{
			code: VIPStale, subject: a.String(), expected: "not on " + kubeproxy.IPVSDevice, actual: "on it",
			message: "the node has an address that no Service has: packets to it do not leave the node",
		}
		if a == n.internalIP(a.Is4()) {
			is.message = "the node's own address is on " + kubeproxy.IPVSDevice + ", from which kube-proxy removes addresses " +
				"that no Service has"
		}
		out = append(out, is)
	}
	return out
}
