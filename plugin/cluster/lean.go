// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Lean returns the objects without what judging needs none of, and what a person would rather not pass on: the pods'
// environment, commands and volumes (but for the ConfigMaps that kube-proxy's pods mount), annotations, managed fields,
// the nodes' lists of images.
func Lean(c *snapshot.Cluster) *snapshot.Cluster {
	out := &snapshot.Cluster{Missing: c.Missing, Unread: c.Unread}
	for _, o := range c.Services {
		o = o.DeepCopy()
		leanMeta(&o.ObjectMeta)
		out.Services = append(out.Services, o)
	}
	for _, o := range c.EndpointSlices {
		o = o.DeepCopy()
		leanMeta(&o.ObjectMeta)
		out.EndpointSlices = append(out.EndpointSlices, o)
	}
	for _, o := range c.Nodes {
		o = o.DeepCopy()
		leanMeta(&o.ObjectMeta)
		o.Status.Images, o.Status.VolumesAttached, o.Status.VolumesInUse = nil, nil, nil
		out.Nodes = append(out.Nodes, o)
	}
	for _, o := range c.Pods {
		out.Pods = append(out.Pods, leanPod(o))
	}
	for _, o := range c.ConfigMaps {
		o = o.DeepCopy()
		leanMeta(&o.ObjectMeta)
		out.ConfigMaps = append(out.ConfigMaps, o)
	}
	for _, o := range c.Endpoints {
		o = o.DeepCopy()
		leanMeta(&o.ObjectMeta)
		out.Endpoints = append(out.Endpoints, o)
	}
	return out
}

func leanMeta(m *metav1.ObjectMeta) {
	m.ManagedFields = nil
	// kube-proxy's topology once was an annotation, and still decides (kubernetes pkg/proxy/topology.go before 1.33).
	// When endpoints changed tells whether kube-proxy has heard of it.
	m.Annotations = keptOf(m.Annotations, []string{
		corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode, corev1.EndpointsLastChangeTriggerTime,
	})
}

// keptOf returns the annotations of some keys; nil where there are none.
func keptOf(annotations map[string]string, keys []string) map[string]string {
	var kept map[string]string
	for _, key := range keys {
		if v, ok := annotations[key]; ok {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = v
		}
	}
	return kept
}

func leanPod(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, Labels: p.Labels,
			CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp,
			Annotations: keptOf(p.Annotations, snapshot.StaticPodAnnotations), OwnerReferences: p.OwnerReferences,
		},
		Spec: corev1.PodSpec{
			NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork, DNSPolicy: p.Spec.DNSPolicy,
		},
		Status: corev1.PodStatus{
			Phase: p.Status.Phase, Conditions: p.Status.Conditions, PodIP: p.Status.PodIP, PodIPs: p.Status.PodIPs,
			HostIP: p.Status.HostIP, HostIPs: p.Status.HostIPs, StartTime: p.Status.StartTime,
		},
	}
	for i := range p.Status.ContainerStatuses {
		if c := &p.Status.ContainerStatuses[i]; !c.Ready { // why it is not
			out.Status.ContainerStatuses = append(out.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: c.Name, RestartCount: c.RestartCount, State: c.State, LastTerminationState: c.LastTerminationState,
			})
		}
	}
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		out.Spec.Containers = append(out.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image, Ports: c.Ports})
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil && len(c.Ports) > 0 { // it goes on beside the others
			out.Spec.InitContainers = append(out.Spec.InitContainers, corev1.Container{
				Name: c.Name, Ports: c.Ports, RestartPolicy: c.RestartPolicy,
			})
		}
	}
	if kubeproxy.RunsIn(p) { // which ConfigMaps it mounts tells which one holds its configuration
		for i := range p.Spec.Containers {
			out.Spec.Containers[i].SecurityContext = p.Spec.Containers[i].SecurityContext.DeepCopy()
		}
		for i := range p.Spec.Volumes {
			if v := &p.Spec.Volumes[i]; v.ConfigMap != nil || v.Projected != nil {
				out.Spec.Volumes = append(out.Spec.Volumes, *v.DeepCopy())
			}
		}
	}
	return out
}
