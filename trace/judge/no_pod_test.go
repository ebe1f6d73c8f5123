// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Rules that follow an EndpointSlice are right, and lead to nobody where no pod has its addresses. Of pods that were
// not listed nothing follows.
func TestEndpointOfNoPod(t *testing.T) {
	const (
		byHand, selected = "faults-by-hand", "faults"
		gone             = "faults-54ff54844f-gm94n" // on node1, 10.245.1.5
	)
	addresses := []string{"10.245.1.5:8080", "[fd00:10:245:1::5]:8080"}
	change := func(do func(*corev1.Pod)) func([]*corev1.Pod) []*corev1.Pod {
		return func(pods []*corev1.Pod) []*corev1.Pod {
			for i, p := range pods {
				if p.Name == gone {
					pods[i] = p.DeepCopy()
					do(pods[i])
				}
			}
			return pods
		}
	}
	without := func(drop func(*corev1.Pod) bool) func([]*corev1.Pod) []*corev1.Pod {
		return func(pods []*corev1.Pod) []*corev1.Pod { return slices.DeleteFunc(pods, drop) }
	}
	address := func(ip string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.PodIP, p.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}} }
	}
	failed := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	noneOfNode := without(func(p *corev1.Pod) bool { return p.Spec.NodeName == "node1" })
	missing := without(func(p *corev1.Pod) bool { return p.Name == gone })
	for name, tt := range map[string]struct {
		service string
		pods    func([]*corev1.Pod) []*corev1.Pod
		says    string // "": nothing is found
	}{
		"as captured":                    {selected, change(func(*corev1.Pod) {}), ""},
		"as captured, by hand":           {byHand, change(func(*corev1.Pod) {}), ""},
		"the pod is gone":                {selected, missing, "and not this one"},
		"the address is nobody's":        {byHand, missing, "10.245.1.0/24 of node1, and none of the node's pods has it"},
		"the pod has another address":    {selected, change(address("10.245.1.77")), "which has 10.245.1.77"},
		"another pod's, by hand":         {byHand, change(func(p *corev1.Pod) { p.Name = "other" }), ""},
		"the pod has ended":              {selected, change(failed), "has ended (Failed)"},
		"the pod has no address yet":     {selected, change(func(p *corev1.Pod) { p.Status.PodIPs = nil }), ""},
		"the other family's address":     {selected, change(address("fd00:10:245:1::5")), ""},
		"the node's pods are not listed": {selected, noneOfNode, ""},
		"the same, by hand":              {byHand, noneOfNode, ""},
		"pods of one namespace alone, by hand": {byHand, without(func(p *corev1.Pod) bool {
			return p.Name == gone || p.Namespace != "svcproxy-e2e"
		}), ""},
		"pods of one namespace alone": {selected, without(func(p *corev1.Pod) bool {
			return p.Name == gone || p.Namespace != "svcproxy-e2e"
		}), ""},
		"no pods were listed": {selected, without(func(*corev1.Pod) bool { return true }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, files := openSnapshot(t, "testdata/faults/iptables-neighbours/healthy", "node1")
			changed := *c
			changed.Pods = tt.pods(slices.Clone(c.Pods))
			got := judgeServices(&changed, files, "svcproxy-e2e", tt.service)
			found := 0
			for i := range got.Paths {
				p := &got.Paths[i]
				for _, f := range p.Findings {
					if f.Code != EndpointOfNoPod {
						continue
					}
					found++
					if p.Verdict != report.Warning || !slices.Contains(addresses, f.Subject) || tt.says == "" ||
						!slices.ContainsFunc(f.Evidence, func(e report.Evidence) bool { return strings.Contains(e.Text, tt.says) }) {
						t.Errorf("%s %+v", p.Verdict, f)
					}
				}
			}
			if (found > 0) != (tt.says != "") {
				t.Errorf("%d findings, want %q", found, tt.says)
			}
			if want := []string{"node1"}; found > 0 && tt.service == selected && !slices.Equal(NodesOfMissingPods(&got), want) {
				t.Errorf("pods are to be listed again of %v, want %v", NodesOfMissingPods(&got), want)
			}
		})
	}
}

func judgeServices(c *snapshot.Cluster, files *snapshot.Node, namespace, service string) report.NodeReport {
	return Files(c, files, Request{Services: []types.NamespacedName{{Namespace: namespace, Name: service}}})
}
