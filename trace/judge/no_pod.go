// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// EndpointOfNoPod says that no pod has the address of an endpoint: its EndpointSlice is out of date, or wrong. The
// rules that follow it are right, and connections go to nobody, or to whoever has the address now.
const EndpointOfNoPod = "EndpointOfNoPod"

var _ = register(kind{
	code: EndpointOfNoPod, severity: warning, scope: onPath, by: ofNoPod,
	issues: []string{"kubernetes/kubernetes#109414", "canonical/microk8s#1991"},
})

var ofNoPod = &detector{stage: stageSettings, path: func(p *pathCase) []issue {
	if len(p.cluster.Pods) == 0 {
		return nil
	}
	is := issue{code: EndpointOfNoPod, predicate: true}
	for i := range p.want.Endpoints {
		e := &p.want.Endpoints[i]
		why := p.noPodHas(e)
		if why == "" {
			continue
		}
		is.endpoints = append(is.endpoints, addressText(e.Address))
		if len(is.evidence) < maxEvidence {
			is.evidence = append(is.evidence, report.Evidence{
				Text: fmt.Sprintf("EndpointSlice %s: %s %s", strings.Join(e.Slices, ", "), e.Address.Addr(), why),
			})
		}
	}
	if is.endpoints == nil {
		return nil
	}
	is.subject = cut(is.endpoints, 4)
	is.message = "has no pod: connections reach no host, or a different one that has the address now"
	if len(is.endpoints) > 1 {
		is.message = "have no pods: connections reach no host, or different ones that have the addresses now"
	}
	is.remedy = report.Remedy{
		Text: "if it stays so for longer than a minute: correct an EndpointSlice that a person or a program of yours has " +
			"written; of another one (label " + discoveryv1.LabelManagedBy + ") see why its controller does not follow the pods",
		Commands: append(readSlices(p.svc).Commands,
			report.Command{Line: report.ShellLine("kubectl", "get", "pods", "-n", p.svc.Namespace, "-o", "wide")}),
	}
	return []issue{is}
}}

// noPodHas says why the address of an endpoint is that of no pod; "" where it is, or where that is not known: from a
// pod that is missing nothing follows unless all pods of its node were listed.
func (n *node) noPodHas(e *expect.Endpoint) string {
	a := e.Address.Addr()
	if e.Pod == "" {
		return n.unowned(a)
	}
	pod, node := n.cluster.podsByName[e.Pod], e.Node
	switch {
	case pod == nil && node != "" && n.cluster.podsListed(node):
		return fmt.Sprintf("is listed for the pod %s on %s; the API lists that node's pods, and not this one", e.Pod, node)
	case pod == nil:
		return ""
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return fmt.Sprintf("is listed for the pod %s, which has ended (%s)", e.Pod, pod.Status.Phase)
	}
	var has []string
	for _, ip := range pod.Status.PodIPs {
		if b, ok := kubeproxy.ParseAddr(ip.IP); ok && b == a {
			return ""
		} else if ok && b.Is4() == a.Is4() {
			has = append(has, b.String())
		}
	}
	if has == nil {
		return "" // it has none yet, or not of this family
	}
	why := fmt.Sprintf("is listed for the pod %s, which has %s", e.Pod, strings.Join(has, ", "))
	if other := n.cluster.podNames[a]; other != "" && other != e.Pod {
		why += "; it is the address of the pod " + other
	}
	return why
}

// unowned says why an address that is said to be no particular pod's is that of none: it is in the pod network of a
// node, and neither a pod of the node nor the node itself has it.
func (n *node) unowned(a netip.Addr) string {
	if n.cluster.podNames[a] != "" || n.cluster.ofNode(a) != "" {
		return ""
	}
	for _, x := range n.cluster.podNets.of(a) {
		// The first addresses are the node's own, of a bridge or a tunnel; of another node nobody tells which.
		if first := x.network.Addr(); a == first || a == first.Next() {
			continue
		}
		if x.node.Name == n.Name && (n.net.Addresses() == nil || slices.Contains(n.net.Addresses(), a)) {
			return ""
		}
		if !n.cluster.podsListed(x.node.Name) {
			return ""
		}
		return fmt.Sprintf("is in the pod network %s of %s, and none of the node's pods has it", x.network, x.node.Name)
	}
	return ""
}

// podsListed tells whether all pods of a node were listed, as far as the list shows: it has some of kube-system, and
// of another namespace.
func (c *Cluster) podsListed(node string) bool {
	in := c.podSpaces[node]
	return len(in) > 1 && in[metav1.NamespaceSystem]
}

// NodesOfMissingPods are the nodes whose pods a report misses behind endpoints, in order: of a running cluster they are
// to be listed again before anybody is told, as EndpointSlices may have been read later than pods.
func NodesOfMissingPods(r *report.NodeReport) []string {
	var out []string
	for i := range r.Paths {
		p := &r.Paths[i]
		for k := range p.Findings {
			f := &p.Findings[k]
			if f.Code != EndpointOfNoPod {
				continue
			}
			for _, e := range p.Expected.Endpoints {
				at := report.JoinHostPort(e.Address, e.Port)
				if e.Node != "" && slices.Contains(f.Endpoints, at) && !slices.Contains(out, e.Node) {
					out = append(out, e.Node)
				}
			}
		}
	}
	slices.Sort(out)
	return out
}
