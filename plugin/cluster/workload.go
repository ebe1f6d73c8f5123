// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// NeedsPods says which pods Find needs besides the other objects; ok is false where it needs none. namespace is that of
// names without one.
func (r *Reference) NeedsPods(namespace string) (which Pods, ok bool) {
	if r.Namespace != "" {
		namespace = r.Namespace
	}
	switch r.Kind {
	case "", KindService, KindNode, KindEndpointSlice:
		return Pods{}, false
	case KindPod:
		return Pods{Namespace: namespace, Name: r.Name}, true
	case KindDeployment, KindReplicaSet, KindStatefulSet, KindDaemonSet, KindJob, KindController:
	}
	return Pods{Namespace: namespace}, true
}

// findSelecting finds the Services that select a pod, or the pods of a workload.
func findSelecting(objects *snapshot.Cluster, namespace string, ref Reference) ([]Target, error) {
	var pods []*corev1.Pod
	var elsewhere, names []string
	for _, p := range objects.Pods {
		switch {
		case !ownedBy(p, ref.Kind, ref.Name):
			if p.Namespace == namespace {
				names = append(names, p.Name)
			}
		case p.Namespace == namespace:
			pods = append(pods, p)
		case !slices.Contains(elsewhere, p.Namespace):
			elsewhere = append(elsewhere, p.Namespace)
		}
	}
	what := fmt.Sprintf("%s/%s in namespace %s", ref.Kind.Word(), ref.Name, namespace)
	var found []*corev1.Service
	for _, svc := range objects.Services {
		selects := func(p *corev1.Pod) bool { return isSelected(p, svc) }
		if svc.Namespace == namespace && (slices.ContainsFunc(pods, selects) ||
			ref.Kind == KindPod && isEndpoint(objects, svc, ref.Name)) {
			found = append(found, svc)
		}
	}
	switch {
	case len(found) > 0:
		return targetsOf(found, what+" is selected by", ref)
	case len(pods) > 0:
		return nil, fmt.Errorf("no Service selects %s: its labels are %s", what, labels.Set(pods[0].Labels))
	case slices.Contains(objects.Missing, "pods"):
		return nil, fmt.Errorf("%q: pods were not read, so nothing is known of it: give the Service's name", ref.Input)
	case len(elsewhere) > 0:
		return nil, fmt.Errorf("there is no %s, but one in namespace %s: add -n%s", what,
			shorten(elsewhere), only(elsewhere))
	case ref.Kind == KindPod:
		return nil, fmt.Errorf("there is no %s%s", what, DidYouMean(ref.Name, names))
	}
	return nil, noPodOf(objects, namespace, ref, what)
}

// noPodOf says that no pod is known to be of a workload: there is none, or pods of its name have no owner. A Service of
// the workload's name is what is meant most often.
func noPodOf(objects *snapshot.Cluster, namespace string, ref Reference, what string) error {
	var unowned, workloads []string
	for _, p := range objects.Pods {
		switch {
		case p.Namespace != namespace:
		case len(p.OwnerReferences) == 0 && strings.HasPrefix(p.Name, ref.Name+"-"):
			unowned = append(unowned, p.Name)
		default:
			workloads = append(workloads, ownerOf(p, ref.Kind))
		}
	}
	var here, elsewhere []string
	for _, svc := range objects.Services {
		switch full := "service/" + svc.Namespace + "/" + svc.Name; {
		case svc.Name == ref.Name && svc.Namespace == namespace:
			here = append(here, full)
		case svc.Name == ref.Name:
			elsewhere = append(elsewhere, full)
		}
	}
	hint := ": give the Service's name" + DidYouMean(ref.Name, workloads)
	if named := slices.Concat(here, elsewhere); len(named) > 0 {
		hint = "; did you mean " + strings.Join(named[:min(3, len(named))], " or ") + "?"
	}
	if unowned != nil {
		return fmt.Errorf("no owner is recorded of %s, so that it is not known whether there is a pod of %s%s",
			shorten(unowned), what, hint)
	}
	return fmt.Errorf("there is no pod of %s%s", what, hint)
}

// ownerOf returns the name of the workload of a kind that a pod belongs to; "" where it belongs to none.
func ownerOf(p *corev1.Pod, kind Kind) string {
	for i := range p.OwnerReferences {
		o := &p.OwnerReferences[i]
		hash, isReplicaSet := p.Labels[appsv1.DefaultDeploymentUniqueLabelKey], o.Kind == string(KindReplicaSet)
		switch {
		case o.Kind == string(kind):
			return o.Name
		case kind == KindDeployment && isReplicaSet && strings.HasSuffix(o.Name, "-"+hash):
			return strings.TrimSuffix(o.Name, "-"+hash)
		}
	}
	return ""
}

// WorkloadsOf returns the names of the workloads of a kind that pods belong to; of pods, their own.
func WorkloadsOf(pods []*corev1.Pod, kind Kind) []string {
	var out []string
	for _, p := range pods {
		name := p.Name
		if kind != KindPod {
			name = ownerOf(p, kind)
		}
		if name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// only returns the one element of a list, behind a space; "" of several.
func only(list []string) string {
	if len(list) != 1 {
		return ""
	}
	return " " + list[0]
}

// targetsOf makes targets of Services, with the port of a reference.
func targetsOf(services []*corev1.Service, why string, ref Reference) ([]Target, error) {
	var out []Target
	var failed error
	for _, svc := range services {
		ports, err := portsOf(svc, ref)
		if targets := portsWithTarget(svc, ref); err != nil && targets != nil {
			ports, err = targets, nil
		}
		if err != nil {
			failed = err
			continue
		}
		note := fmt.Sprintf("%s service/%s/%s", why, svc.Namespace, svc.Name)
		out = append(out, Target{Service: svc, Ports: ports, Note: note})
	}
	if len(out) == 0 {
		return nil, failed
	}
	return out, nil
}

// portsWithTarget returns the ports of a Service that lead to the port of a reference: a pod is given with its own
// port.
func portsWithTarget(svc *corev1.Service, ref Reference) (out []corev1.ServicePort) {
	for i := range svc.Spec.Ports {
		if p := &svc.Spec.Ports[i]; ref.Port != "" && p.TargetPort.String() == ref.Port && ref.speaks(protocolOf(p)) {
			out = append(out, *p)
		}
	}
	return out
}

// ownedBy tells whether a pod is the one that is named, or one of the workload that is named. A Deployment's pods
// belong to ReplicaSets, whose names are the Deployment's with the hash that the pods have as a label
// (kubernetes pkg/controller/deployment/sync.go, getNewReplicaSet).
func ownedBy(p *corev1.Pod, kind Kind, name string) bool {
	if kind == KindPod {
		return p.Name == name
	}
	owner := string(kind)
	if kind == KindDeployment {
		hash := p.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
		if hash == "" {
			return false
		}
		owner, name = string(KindReplicaSet), name+"-"+hash
	}
	for i := range p.OwnerReferences {
		if o := &p.OwnerReferences[i]; o.Kind == owner && o.Name == name {
			return true
		}
	}
	return false
}

// isSelected tells whether a Service's selector selects a pod.
func isSelected(p *corev1.Pod, svc *corev1.Service) bool {
	return len(svc.Spec.Selector) > 0 && labels.SelectorFromSet(svc.Spec.Selector).Matches(labels.Set(p.Labels))
}

// isEndpoint tells whether a pod is an endpoint of a Service in its namespace.
func isEndpoint(objects *snapshot.Cluster, svc *corev1.Service, pod string) bool {
	for _, s := range objects.EndpointSlices {
		if !isSliceOf(s, svc) {
			continue
		}
		for i := range s.Endpoints {
			if t := s.Endpoints[i].TargetRef; t != nil && t.Kind == string(KindPod) && t.Name == pod {
				return true
			}
		}
	}
	return false
}
