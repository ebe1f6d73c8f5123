// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Port is one port of a Service with its endpoints counted. Its Protocol is set also where the API leaves it out.
type Port struct {
	corev1.ServicePort
	Ready int // endpoints that are ready
	Total int // endpoints that there are
}

// Ports returns the ports of a Service, with their endpoints counted in the whole cluster. A dual-stack pod counts as
// one endpoint: the family that has most is counted.
func Ports(objects *snapshot.Cluster, svc *corev1.Service) []Port {
	exp := expect.New(expect.Inputs{
		Services: []*corev1.Service{svc}, Slices: objects.EndpointSlices, Config: kubeproxy.DefaultConfig(),
	})
	out := make([]Port, len(svc.Spec.Ports))
	for i := range out {
		p := &svc.Spec.Ports[i]
		out[i] = Port{ServicePort: *p}
		out[i].Protocol = protocolOf(p)
		out[i].Ready, out[i].Total = count(exp, svc, p)
	}
	return out
}

// count counts a port's endpoints in the family that has most.
func count(exp *expect.Node, svc *corev1.Service, p *corev1.ServicePort) (ready, total int) {
	for _, family := range Families(svc) {
		r, all := 0, exp.Endpoints(expect.NameOf(svc), p, family)
		for i := range all {
			if all[i].Ready {
				r++
			}
		}
		if len(all) > total {
			ready, total = r, len(all)
		}
	}
	return ready, total
}

// Families returns the IP families of a Service, both where the API does not tell.
func Families(svc *corev1.Service) []corev1.IPFamily {
	if len(svc.Spec.IPFamilies) > 0 {
		return svc.Spec.IPFamilies
	}
	return []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
}

// AddressesOf returns the cluster IPs of a Service; none for a headless one.
func AddressesOf(svc *corev1.Service) []string {
	ips := svc.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{svc.Spec.ClusterIP}
	}
	return slices.DeleteFunc(slices.Clone(ips), func(ip string) bool { return ip == "" || ip == corev1.ClusterIPNone })
}

// Type returns the type of a Service, ClusterIP where the API leaves it out.
func Type(svc *corev1.Service) corev1.ServiceType {
	if svc.Spec.Type == "" {
		return corev1.ServiceTypeClusterIP
	}
	return svc.Spec.Type
}

// NodesOf returns the nodes that run endpoints of Services: of those that the cluster has, at most limit, in order.
func NodesOf(objects *snapshot.Cluster, targets []Target, limit int) []string {
	var out []string
	add := func(node *string) {
		known := func(n *corev1.Node) bool { return n.Name == *node }
		if node != nil && len(out) < limit && !slices.Contains(out, *node) && slices.ContainsFunc(objects.Nodes, known) {
			out = append(out, *node)
		}
	}
	for i := range targets {
		svc := targets[i].Service
		for _, s := range objects.EndpointSlices {
			if !isSliceOf(s, svc) {
				continue
			}
			for k := range s.Endpoints {
				add(s.Endpoints[k].NodeName)
			}
		}
	}
	slices.Sort(out)
	return out
}
