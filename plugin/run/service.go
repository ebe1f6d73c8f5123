// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"

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

// FindService finds the one Service that a reference leads to, and reads the pods that this takes. namespace is that of
// names without one.
func (s *Session) FindService(ctx context.Context, namespace string, ref cluster.Reference) (cluster.Target, error) {
	if err := s.readPodsFor(ctx, namespace, ref); err != nil {
		return cluster.Target{}, err
	}
	t, err := cluster.Find(s.Objects, namespace, ref)
	if err != nil {
		return t, Usagef("%w", err)
	}
	s.noteTargets([]cluster.Target{t})
	return t, nil
}

// FindServices finds all Services that a reference leads to.
func (s *Session) FindServices(ctx context.Context, namespace string, ref cluster.Reference) ([]cluster.Target, error) {
	if err := s.readPodsFor(ctx, namespace, ref); err != nil {
		return nil, err
	}
	found, err := cluster.FindAll(s.Objects, namespace, ref)
	if err != nil {
		return nil, Usagef("%w", err)
	}
	s.noteTargets(found)
	return found, nil
}

func (s *Session) readPodsFor(ctx context.Context, namespace string, ref cluster.Reference) error {
	which, ok := ref.NeedsPods(namespace)
	if !ok {
		return nil
	}
	return s.ReadPods(ctx, which)
}

// noteTargets says how references led to Services, where that is not obvious.
func (s *Session) noteTargets(found []cluster.Target) {
	for i := range found {
		if found[i].Note != "" {
			s.Progress.Note("%s", found[i].Note)
		}
	}
}
