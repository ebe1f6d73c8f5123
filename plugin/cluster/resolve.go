// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/plugin/print"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Resolve says what the API holds of a Service. With a node in the inputs it is that node's view, else the whole cluster's.
func Resolve(objects *snapshot.Cluster, t *Target, in expect.Inputs) *print.Resolve {
	svc := t.Service
	exp := expect.New(in)
	r := &print.Resolve{
		APIVersion: report.APIVersion, Kind: print.KindResolve,
		Service: *Info(objects, svc), Policy: policyOf(svc), Node: in.NodeName,
	}
	if in.Node != nil {
		r.Zone = in.Node.Labels[corev1.LabelTopologyZone]
	}
	reason, why := exp.Ignored(svc)
	if reason != "" {
		r.NotProxied = &print.Reason{Code: reason, Message: why}
	}
	r.Frontends = frontends(exp, t, in.NodeName)
	r.Endpoints = endpoints(exp, t, in.NodeName != "", reason != "")
	if reason != "" && svc.Spec.ClusterIP != corev1.ClusterIPNone {
		for i := range r.Endpoints {
			if r.Endpoints[i].Used = false; r.Endpoints[i].Ready {
				r.Endpoints[i].Why = "ready, but kube-proxy leaves this Service alone"
			} else {
				r.Endpoints[i].Why = "not ready"
			}
		}
	}
	r.DNS = dnsOf(svc, r.Endpoints)
	return r
}

func policyOf(svc *corev1.Service) print.Policy {
	p := print.Policy{
		External:                 string(svc.Spec.ExternalTrafficPolicy),
		LoadBalancerSourceRanges: svc.Spec.LoadBalancerSourceRanges,
		PublishNotReadyAddresses: svc.Spec.PublishNotReadyAddresses,
	}
	if svc.Spec.InternalTrafficPolicy != nil {
		p.Internal = string(*svc.Spec.InternalTrafficPolicy)
	}
	if svc.Spec.TrafficDistribution != nil {
		p.TrafficDistribution = *svc.Spec.TrafficDistribution
	}
	if svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		p.AffinitySeconds = corev1.DefaultClientIPServiceAffinitySeconds
		if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			p.AffinitySeconds = *c.ClientIP.TimeoutSeconds
		}
	}
	return p
}

// frontends lists the addresses of a Service. In the cluster's view a NodePort stands without address: it is every node's.
func frontends(exp *expect.Node, t *Target, node string) []report.Frontend {
	var out []report.Frontend
	for _, f := range exp.Frontends(t.Service) {
		if node == "" && f.Kind == expect.NodePort || !t.Selects(&f, node) {
			continue
		}
		out = append(out, report.Frontend{Kind: string(f.Kind), Address: f.Address.String(), Port: int32(f.Port), Protocol: string(f.Protocol), PortName: f.PortName})
	}
	if node != "" {
		return out
	}
	for i := range t.Service.Spec.Ports {
		p := &t.Service.Spec.Ports[i]
		if p.NodePort != 0 && t.hasPort(p.Name, protocolOf(p)) && (!t.Address.IsValid() || t.NodePort != 0) {
			out = append(out, report.Frontend{Kind: string(expect.NodePort), Port: p.NodePort, Protocol: string(protocolOf(p)), PortName: p.Name})
		}
	}
	return out
}

// endpoints lists every endpoint of the ports asked for, port by port.
func endpoints(exp *expect.Node, t *Target, nodeView, ignored bool) []print.ResolvedEndpoint {
	var out []print.ResolvedEndpoint
	ports := t.Ports
	if ports == nil {
		ports = t.Service.Spec.Ports
	}
	for _, family := range Families(t.Service) {
		if t.Address.IsValid() && (family == corev1.IPv4Protocol) != t.Address.Is4() {
			continue
		}
		for i := range ports {
			for _, u := range exp.Usage(t.Name(), &ports[i], family) {
				out = append(out, endpoint(&ports[i], &u, nodeView, ignored))
			}
		}
		if len(ports) == 0 && ignored {
			for _, e := range exp.Endpoints(t.Name(), nil, family) {
				out = append(out, endpoint(&corev1.ServicePort{}, &expect.Usage{Endpoint: e}, nodeView, ignored))
			}
		}
	}
	return out
}

func endpoint(p *corev1.ServicePort, u *expect.Usage, nodeView, ignored bool) print.ResolvedEndpoint {
	e := print.ResolvedEndpoint{
		PortName: p.Name, Protocol: string(protocolOf(p)),
		Address: u.Address.Addr().String(), Port: int32(u.Address.Port()), Pod: u.Pod, Node: u.Node, Zone: u.Zone,
		Slices: u.Slices, Ready: u.Ready, Serving: u.Serving, Terminating: u.Terminating, HintZones: u.HintZones, HintNodes: u.HintNodes,
	}
	const unused = "no traffic of this Service follows policy"
	switch {
	case ignored:
		// DNS gives out what is ready; for publishNotReadyAddresses the controller marks everything so.
		e.Used, e.Why = u.Ready, "not ready, so not in DNS"
		if u.Ready {
			e.Why = "ready, so DNS gives it out"
		}
	case nodeView:
		e.Cluster, e.Local = &print.Use{Used: u.Cluster.Used, Why: u.Cluster.Why}, &print.Use{Used: u.Local.Used, Why: u.Local.Why}
		e.Used = u.Cluster.Used || u.Local.Used
		e.Why = bothWhys(u, unused)
	case u.Cluster.Used || len(u.Cluster.Why) < len(unused) || u.Cluster.Why[:len(unused)] != unused:
		e.Used, e.Why = u.Cluster.Used, u.Cluster.Why
	default: // everything follows policy Local: each node uses its own
		e.Used, e.Why = u.Ready, "not ready"
		if u.Ready {
			e.Why = "ready, for clients on its own node (policy Local)"
		}
	}
	return e
}

// bothWhys says in one clause what the traffic policies make of an endpoint. A policy that nothing follows is not worth a word.
func bothWhys(u *expect.Usage, unused string) string {
	idle := func(x expect.Use) bool { return len(x.Why) >= len(unused) && x.Why[:len(unused)] == unused }
	switch {
	case idle(u.Local) || u.Cluster == u.Local:
		return u.Cluster.Why
	case idle(u.Cluster):
		return u.Local.Why
	}
	return "policy Cluster: " + u.Cluster.Why + "; policy Local: " + u.Local.Why
}

// dnsOf says what the cluster's DNS answers (github.com/kubernetes/dns, docs/specification.md).
func dnsOf(svc *corev1.Service, endpoints []print.ResolvedEndpoint) print.DNS {
	d := print.DNS{Name: svc.Name + "." + svc.Namespace + ".svc.cluster.local"}
	switch {
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
		d.Records = []string{"CNAME " + svc.Spec.ExternalName}
		d.Note = "clients get another name, and connect to that: no Service address and no proxy has a part in it"
	case svc.Spec.ClusterIP == corev1.ClusterIPNone:
		for i := range endpoints {
			if rec := recordOf(endpoints[i].Address); endpoints[i].Ready && !slices.Contains(d.Records, rec) {
				d.Records = append(d.Records, rec)
			}
		}
		d.Note = "headless: clients get the endpoints' own addresses, and connect to those"
		if len(d.Records) == 0 {
			d.Note = "headless, and no endpoint is ready: the name does not resolve"
		}
	default:
		for _, ip := range addressesOf(svc) {
			d.Records = append(d.Records, recordOf(ip))
		}
	}
	return d
}

func recordOf(ip string) string {
	if a, err := netip.ParseAddr(ip); err == nil && a.Is6() {
		return "AAAA " + ip
	}
	return "A " + ip
}
