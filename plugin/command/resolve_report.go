// SPDX-License-Identifier: Apache-2.0

package command

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/print"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// resolveReport puts what was resolved into the types of the report.
func resolveReport(objects *snapshot.Cluster, r *cluster.Resolution) *print.Resolve {
	out := &print.Resolve{
		APIVersion: report.APIVersion, Kind: print.KindResolve,
		Service: *run.ServiceInfo(objects, r.Service), Policy: policyOf(r.Service), Node: r.Node, Zone: r.Zone,
		DNS: print.DNS{Name: r.DNS.Name, Records: r.DNS.Records, Note: r.DNS.Note},
	}
	if r.NotProxied != "" {
		out.NotProxied = &print.Reason{Code: r.NotProxied, Message: r.Why}
	}
	for i := range r.Frontends {
		f := &r.Frontends[i]
		frontend := report.Frontend{
			Kind: string(f.Kind), Port: int32(f.Port), Protocol: string(f.Protocol), PortName: f.PortName,
		}
		if f.Address.IsValid() {
			frontend.Address = f.Address.String()
		}
		out.Frontends = append(out.Frontends, frontend)
	}
	policies := r.Node != "" && r.NotProxied == ""
	for i := range r.Endpoints {
		out.Endpoints = append(out.Endpoints, resolvedEndpoint(&r.Endpoints[i], policies))
	}
	return out
}

// policyOf says how a Service wants its traffic handled.
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

// resolvedEndpoint is one endpoint; with policies also what each traffic policy makes of it.
func resolvedEndpoint(e *cluster.Endpoint, policies bool) print.ResolvedEndpoint {
	out := print.ResolvedEndpoint{
		PortName: e.PortName, Protocol: string(e.Protocol),
		Address: e.Address.Addr().String(), Port: int32(e.Address.Port()), Pod: e.Pod, Node: e.Node, Zone: e.Zone,
		Slices: e.Slices, Ready: e.Ready, Serving: e.Serving, Terminating: e.Terminating,
		HintZones: e.HintZones, HintNodes: e.HintNodes, Used: e.Used, Why: e.Reason,
	}
	if policies {
		out.Cluster, out.Local = useOf(e.Cluster), useOf(e.Local)
	}
	return out
}

func useOf(u expect.Use) *print.Use { return &print.Use{Used: u.Used, Why: u.Why} }
