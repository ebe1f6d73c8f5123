// SPDX-License-Identifier: Apache-2.0

package run

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// ServiceInfo describes a Service as a report does: what the API says of it, whatever a node makes of it.
func ServiceInfo(objects *snapshot.Cluster, svc *corev1.Service) *report.ServiceInfo {
	info := &report.ServiceInfo{
		Namespace: svc.Namespace, Name: svc.Name, Type: string(cluster.Type(svc)), ClusterIPs: cluster.AddressesOf(svc),
	}
	for _, p := range cluster.Ports(objects, svc) {
		port := report.ServicePort{
			Name: p.Name, Protocol: string(p.Protocol), Port: p.Port, NodePort: p.NodePort, Ready: p.Ready, Total: p.Total,
		}
		if p.TargetPort.IntValue() != 0 || p.TargetPort.StrVal != "" {
			port.TargetPort = p.TargetPort.String()
		}
		info.Ports = append(info.Ports, port)
	}
	return info
}
