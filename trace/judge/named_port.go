// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// NamedPortMissing says that some of the pods which a Service selects are no endpoints of it, as they have no container
// port of the name that is its targetPort.
const NamedPortMissing = "NamedPortMissing"

var _ = register(kind{
	code: NamedPortMissing, severity: note, scope: onPath, by: namedPorts,
	remedy: advice("give the container port in these pods the name that the Service has as its targetPort; or exclude " +
		"them by the Service's selector, where they are not meant to serve it"),
})

// selected are the pods that a Service selects, and that may be endpoints; by the name of a port, the targetPort, those
// that have no such port.
type selected struct {
	all     int
	without map[namedPort][]string
}

// namedPort is a targetPort that is a name.
type namedPort struct {
	name     string
	protocol corev1.Protocol
}

// namedPortsOf finds, for the Services with a targetPort that is a name, which of their pods have it. The controller
// leaves a port out of the slices of the pods that do not (FindPort in k8s.io/endpointslice, utils.go). Of a namespace
// that has too many pods for its selectors the rest counts as not read.
func namedPortsOf(services []*corev1.Service, pods []*corev1.Pod) map[types.NamespacedName]*selected {
	type label struct{ namespace, key, value string }
	var byLabel map[label][]*corev1.Pod
	steps := map[string]int{} // of the Services of a namespace
	out := map[types.NamespacedName]*selected{}
	for _, svc := range services {
		if len(svc.Spec.Selector) == 0 || !slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool {
			return p.TargetPort.Type == intstr.String
		}) {
			continue
		}
		if byLabel == nil {
			byLabel = map[label][]*corev1.Pod{}
			for _, p := range pods {
				for k, v := range p.Labels {
					byLabel[label{p.Namespace, k, v}] = append(byLabel[label{p.Namespace, k, v}], p)
				}
			}
		}
		var some []*corev1.Pod // with the label that the fewest have
		first := true
		for k, v := range svc.Spec.Selector {
			if list := byLabel[label{svc.Namespace, k, v}]; first || len(list) < len(some) {
				some, first = list, false
			}
		}
		if steps[svc.Namespace] += len(some) * (len(svc.Spec.Selector) + len(svc.Spec.Ports)); steps[svc.Namespace] >
			bounds.Selecting {
			continue
		}
		s := &selected{without: map[namedPort][]string{}}
		selector := labels.SelectorFromSet(svc.Spec.Selector)
		for _, p := range some {
			if selector.Matches(labels.Set(p.Labels)) && p.DeletionTimestamp == nil &&
				p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
				s.add(svc, p)
			}
		}
		if len(s.without) > 0 {
			out[expect.NameOf(svc)] = s
		}
	}
	return out
}

// add counts a pod.
func (s *selected) add(svc *corev1.Service, pod *corev1.Pod) {
	s.all++
	for i := range svc.Spec.Ports {
		x := namedPort{svc.Spec.Ports[i].TargetPort.StrVal, svc.Spec.Ports[i].Protocol}
		name := pod.Namespace + "/" + pod.Name
		if svc.Spec.Ports[i].TargetPort.Type == intstr.String && !hasPort(pod, x) {
			if list := s.without[x]; len(list) == 0 || list[len(list)-1] != name { // pods come one after the other
				s.without[x] = append(list, name)
			}
		}
	}
}

// hasPort tells whether a container of a pod has a port of a name. Of the init containers only those count that go on
// beside the others.
func hasPort(pod *corev1.Pod, x namedPort) bool {
	in := func(c *corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
			return p.Name == x.name && p.Protocol == x.protocol
		})
	}
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return in(&c) }) ||
		slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
			return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways && in(&c)
		})
}

// lacking are the pods that the Service selects and that have no port of the name that is the targetPort of a frontend;
// all is how many it selects.
func (p *pathCase) lacking() (port namedPort, pods []string, all int) {
	s := p.cluster.namedPorts[expect.NameOf(p.svc)]
	if s == nil {
		return port, nil, 0
	}
	f := &p.want.Frontend
	for i := range p.svc.Spec.Ports {
		x := &p.svc.Spec.Ports[i]
		if x.Name == f.PortName && x.Protocol == f.Protocol && x.TargetPort.Type == intstr.String {
			port = namedPort{x.TargetPort.StrVal, x.Protocol}
			return port, s.without[port], s.all
		}
	}
	return port, nil, s.all
}

// noSuchPort says that no pod which the Service selects has a container port of the name that is its targetPort. ""
// where one has it, or nothing tells.
func (p *pathCase) noSuchPort() string {
	port, without, all := p.lacking()
	if len(without) == 0 || len(without) < all {
		return ""
	}
	return fmt.Sprintf("targetPort %s: of %s that the Service selects, as far as pods were read, no container has a "+
		"port of that name and protocol", port.name, number(all, "pod"))
}

var namedPorts = &detector{stage: stageSettings, path: func(p *pathCase) []issue {
	if p.want.Action != expect.DNAT {
		return nil
	}
	port, without, all := p.lacking()
	if len(without) == 0 || len(without) >= all {
		return nil
	}
	without = slices.Sorted(slices.Values(without))
	return []issue{{
		code: NamedPortMissing, subject: cut(without, 4), expected: port.name, actual: "no such port",
		message: fmt.Sprintf("of %s that the Service selects, as far as pods were read, %d %s no container port with the "+
			"name %s (%s), which is its targetPort, and %s not among its endpoints", number(all, "pod"), len(without),
			verb(len(without), "has", "have"), port.name, port.protocol, verb(len(without), "is", "are")),
		evidence: []report.Evidence{{Text: "container ports of " + cut(without, maxEvidence)}},
	}}
}}
