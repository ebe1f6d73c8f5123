// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Info describes a Service as a report does: what the API says of it, whatever a node makes of it.
func Info(objects *snapshot.Cluster, svc *corev1.Service) *report.ServiceInfo {
	exp := expect.New(expect.Inputs{Services: []*corev1.Service{svc}, Slices: objects.EndpointSlices, Config: kubeproxy.DefaultConfig()})
	info := &report.ServiceInfo{Namespace: svc.Namespace, Name: svc.Name, Type: typeOf(svc), ClusterIPs: addressesOf(svc)}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		port := report.ServicePort{Name: p.Name, Protocol: string(protocolOf(p)), Port: p.Port, TargetPort: p.TargetPort.String(), NodePort: p.NodePort}
		if p.TargetPort.IntValue() == 0 && p.TargetPort.StrVal == "" {
			port.TargetPort = ""
		}
		port.Ready, port.Total = count(exp, svc, p)
		info.Ports = append(info.Ports, port)
	}
	return info
}

// count counts a port's endpoints in the family that has most: a dual-stack pod is one endpoint to a person, not two.
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

// addressesOf returns the cluster IPs of a Service; none for a headless one.
func addressesOf(svc *corev1.Service) []string {
	ips := svc.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{svc.Spec.ClusterIP}
	}
	return slices.DeleteFunc(slices.Clone(ips), func(ip string) bool { return ip == "" || ip == corev1.ClusterIPNone })
}

func typeOf(svc *corev1.Service) string {
	if svc.Spec.Type == "" {
		return string(corev1.ServiceTypeClusterIP)
	}
	return string(svc.Spec.Type)
}
