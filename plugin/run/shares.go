// SPDX-License-Identifier: Apache-2.0

package run

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// shares are objects as they are sent to the helpers of many nodes, which judge by them: of each object what decides a
// verdict, and no more, as it is sent a thousand times.
type shares struct {
	// all are the objects for every node. The names of pods behind endpoints are not there.
	all *snapshot.Cluster

	nodes  map[string]*corev1.Node
	slices map[string][]*discoveryv1.EndpointSlice // that have endpoints on a node
	pods   map[string][]*corev1.Pod
	of     *snapshot.Cluster
}

// shareOut makes the shares of objects.
func shareOut(c *snapshot.Cluster) *shares {
	s := &shares{
		all: cluster.Lean(&snapshot.Cluster{ConfigMaps: c.ConfigMaps, Endpoints: c.Endpoints}), of: c,
		nodes:  make(map[string]*corev1.Node, len(c.Nodes)),
		slices: map[string][]*discoveryv1.EndpointSlice{}, pods: map[string][]*corev1.Pod{},
	}
	for _, o := range c.Services {
		shared := &corev1.Service{ObjectMeta: sharedMeta(&o.ObjectMeta), Spec: o.Spec, Status: o.Status}
		// All annotations: load balancers are described in those of their vendors.
		shared.Annotations = maps.Clone(o.Annotations)
		delete(shared.Annotations, corev1.LastAppliedConfigAnnotation)
		s.all.Services = append(s.all.Services, shared)
	}
	for _, o := range c.EndpointSlices {
		s.slice(o)
	}
	for _, o := range c.Nodes {
		s.nodes[o.Name] = o
		s.all.Nodes = append(s.all.Nodes, sharedNode(o))
	}
	for _, o := range c.Pods {
		s.pods[o.Spec.NodeName] = append(s.pods[o.Spec.NodeName], o)
	}
	return s
}

// own are the objects for one node.
func (s *shares) own(node string) *snapshot.Cluster {
	own := &snapshot.Cluster{EndpointSlices: s.slices[node], Pods: s.pods[node]}
	if o := s.nodes[node]; o != nil {
		own.Nodes = []*corev1.Node{o}
	}
	own = cluster.Lean(own)
	own.Missing, own.Unread = s.of.Missing, s.of.Unread
	return own
}

// slice adds an EndpointSlice.
func (s *shares) slice(o *discoveryv1.EndpointSlice) {
	shared := &discoveryv1.EndpointSlice{
		ObjectMeta: sharedMeta(&o.ObjectMeta), AddressType: o.AddressType, Ports: o.Ports,
		Endpoints: slices.Clone(o.Endpoints),
	}
	// The time to the second: its fraction is as long as an address of each endpoint.
	if t, err := time.Parse(time.RFC3339Nano, o.Annotations[corev1.EndpointsLastChangeTriggerTime]); err == nil {
		shared.Annotations = map[string]string{
			corev1.EndpointsLastChangeTriggerTime: t.UTC().Truncate(time.Second).Format(time.RFC3339),
		}
	}
	seen := map[string]bool{}
	for i := range shared.Endpoints {
		e := &shared.Endpoints[i]
		e.TargetRef = nil
		if e.NodeName != nil && !seen[*e.NodeName] {
			seen[*e.NodeName] = true
			s.slices[*e.NodeName] = append(s.slices[*e.NodeName], o)
		}
	}
	s.all.EndpointSlices = append(s.all.EndpointSlices, shared)
}

// sharedMeta is what decides of an object's metadata.
func sharedMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, CreationTimestamp: m.CreationTimestamp,
		DeletionTimestamp: m.DeletionTimestamp, Labels: kept(m.Labels, expect.Labels),
	}
}

// sharedNode is what decides of a Node elsewhere.
func sharedNode(o *corev1.Node) *corev1.Node {
	out := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: o.Name, CreationTimestamp: o.CreationTimestamp,
			Labels: kept(o.Labels, judge.NodeLabels), Annotations: kept(o.Annotations, snapshot.NodeAnnotations),
		},
		Spec:   corev1.NodeSpec{PodCIDRs: o.Spec.PodCIDRs},
		Status: corev1.NodeStatus{Addresses: o.Status.Addresses},
	}
	for i := range o.Status.Conditions {
		if c := &o.Status.Conditions[i]; c.Type == corev1.NodeReady {
			out.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	if cpu := o.Status.Allocatable.Cpu(); !cpu.IsZero() {
		out.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu.String())}
	}
	return out
}

// kept returns the labels or annotations of some keys; nil where there are none.
func kept(all map[string]string, keys []string) map[string]string {
	var out map[string]string
	for _, key := range keys {
		if v, ok := all[key]; ok {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = v
		}
	}
	return out
}
