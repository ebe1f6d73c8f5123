// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// HintsIgnored says that a Service asks for endpoints that are near, and that this node uses all of them.
const HintsIgnored = "HintsIgnored"

var _ = register(kind{
	code: HintsIgnored, severity: note, scope: onNode, by: ignoredHints,
	remedy: advice("nothing, if the endpoints are distributed as intended; else run endpoints in the zone of every node"),
	issues: []string{"kubernetes/kubernetes#119990", "kubernetes/kubernetes#103888", "aws/eks-anywhere#6770"},
})

// ignoredHints finds Services that ask for topology aware routing and do not get it on this node
// (pkg/proxy/topology.go, topologyModeFromHints; staging/src/k8s.io/endpointslice/topologycache, SetNodes). What is due
// in that case are all endpoints, so that no path is wrong.
var ignoredHints = &detector{stage: stageAsked, asked: func(n *node, req *Request) []issue {
	var out []issue
	for _, svc := range n.asked(req) {
		itp := svc.Spec.InternalTrafficPolicy
		if reason, _ := n.exp.Ignored(svc); reason != "" || n.object == nil ||
			itp != nil && *itp == corev1.ServiceInternalTrafficPolicyLocal {
			continue
		}
		if byZone, _ := n.exp.FollowsHints(svc); !byZone || !asksByAnnotation(svc) && !n.exp.Hinted(svc) {
			continue
		}
		for i := range svc.Spec.Ports {
			if is, ok := n.hintsIgnored(svc, n.endpointsOf(svc, &svc.Spec.Ports[i])); ok {
				out = append(out, is)
				break
			}
		}
	}
	return out
}}

// hintsIgnored judges the endpoints of a Service port; ok is false where nothing is ignored.
func (n *node) hintsIgnored(svc *corev1.Service, endpoints []expect.Endpoint) (is issue, ok bool) {
	_, byNode := n.exp.FollowsHints(svc)
	ready, without := 0, 0
	zones := []string{}
	forNode, forZone := false, false
	zone := n.object.Labels[corev1.LabelTopologyZone]
	for i := range endpoints {
		e := &endpoints[i]
		if !e.Ready {
			continue
		}
		ready++
		forNode = forNode || slices.Contains(e.HintNodes, n.object.Name)
		forZone = forZone || zone != "" && slices.Contains(e.HintZones, zone)
		for _, z := range e.HintZones {
			if !slices.Contains(zones, z) {
				zones = append(zones, z)
			}
		}
		if len(e.HintZones) == 0 {
			without++
		}
	}
	if byNode && forNode || ready == 0 {
		return is, false
	}
	if without == ready && !asksByAnnotation(svc) {
		return is, false
	}
	slices.Sort(zones)
	is = issue{
		code: HintsIgnored, subject: expect.NameOf(svc).String(), actual: "all endpoints", expected: "those of zone " + zone,
	}
	switch {
	case without == ready:
		return n.hintsNotGiven(is)
	case zone == "":
		is.severity, is.expected = warning, "those of the node's zone"
		is.message = fmt.Sprintf(
			"the endpoints of %s are assigned to zones (%s), and the Node has no label %s: it uses all "+
				"of them",
			is.subject,
			cut(zones, 4),
			corev1.LabelTopologyZone,
		)
		is.remedy = report.Remedy{
			Text: "give the Node the label of its zone; the cloud's controller does where it knows the node",
			Commands: []report.Command{{
				Line: report.ShellLine("kubectl", "label", "node", n.object.Name, corev1.LabelTopologyZone+"="+zones[0]),
				When: "if that is its zone",
			}},
		}
	case without > 0:
		is.message = fmt.Sprintf(
			"endpoints of %s have no hint for a zone (%s): as long as one has none, kube-proxy uses all",
			is.subject,
			cut(withoutHint(endpoints), 3),
		)
		is.remedy = report.Remedy{Text: "nothing, while endpoints come and go; else look for a second controller that " +
			"writes EndpointSlices for the Service"}
	case !forZone:
		is.message = fmt.Sprintf("no endpoint of %s is meant for zone %s (they are for %s): this node uses all of them",
			is.subject, zone, cut(zones, 4))
	default:
		return is, false
	}
	return is, true
}

// withoutHint are the addresses of endpoints that are ready, and meant for no zone.
func withoutHint(endpoints []expect.Endpoint) []string {
	var out []string
	for i := range endpoints {
		if e := &endpoints[i]; e.Ready && len(e.HintZones) == 0 {
			out = append(out, e.Address.String())
		}
	}
	return out
}

// hintsNotGiven is about a Service with the annotation, none of whose endpoints has a hint: the controller gives none
// while it does not know the zone and the CPUs of every node that is ready.
func (n *node) hintsNotGiven(is issue) (issue, bool) {
	var lacking []string
	for _, o := range n.cluster.Nodes {
		if !countsForHints(o) {
			continue
		}
		switch {
		case o.Labels[corev1.LabelTopologyZone] == "":
			lacking = append(lacking, o.Name+" has no label "+corev1.LabelTopologyZone)
		case o.Status.Allocatable.Cpu().IsZero():
			lacking = append(lacking, o.Name+" reports no allocatable CPU")
		}
	}
	if len(lacking) == 0 {
		return is, false
	}
	is.severity, is.evidence = warning, say(lacking[:min(len(lacking), maxEvidence)]...)
	is.expected = "those of the node's zone"
	is.message = fmt.Sprintf(
		"%s asks for topology aware routing, and its endpoints get no hints, as zone or CPU is not known "+
			"of every node: every node uses all endpoints",
		is.subject,
	)
	is.remedy = report.Remedy{
		Text: "give every Node the label " + corev1.LabelTopologyZone + "; a running kubelet reports its CPUs",
		Commands: []report.Command{
			{Line: "kubectl get nodes -L topology.kubernetes.io/zone -o wide", When: "to see which have one"},
		},
	}
	return is, true
}

// asksByAnnotation tells whether a Service has the annotation of topology aware routing.
func asksByAnnotation(svc *corev1.Service) bool {
	value := svc.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	if value == "" {
		value = svc.Annotations[corev1.AnnotationTopologyMode]
	}
	return (value == "Auto" || value == "auto") && svc.Spec.TrafficDistribution == nil
}

// countsForHints tells whether the controller shares out endpoints for a Node: it is ready, and no control plane's.
func countsForHints(o *corev1.Node) bool {
	for _, label := range controlPlane {
		if _, is := o.Labels[label]; is {
			return false
		}
	}
	return slices.ContainsFunc(o.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// controlPlane are the labels of Nodes of the control plane.
var controlPlane = []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"}

// NodeLabels are those of Nodes that the judgement of another node goes by.
var NodeLabels = append([]string{corev1.LabelTopologyZone}, controlPlane...)
