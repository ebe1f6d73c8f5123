// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// withPods adds pods of node1 to a snapshot.
func (w *capturedNode) withPods(addresses ...string) {
	for i, a := range addresses {
		w.cluster.Pods = append(w.cluster.Pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "client-" + string(rune('a'+i))},
			Spec:       corev1.PodSpec{NodeName: "node1"},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, PodIP: a, PodIPs: []corev1.PodIP{{IP: a}},
			},
		})
	}
}

// noPods leaves nothing that tells of a pod of node1: the endpoints name no node.
func (w *capturedNode) noPods() {
	w.cluster.Pods = nil
	for _, s := range w.cluster.EndpointSlices {
		for i := range s.Endpoints {
			s.Endpoints[i].NodeName = nil
		}
	}
}

// policy puts a NetworkPolicy into the rules, as kube-router writes them: only some may come to 10.244.2.20.
func (w *capturedNode) networkPolicy(allow ...string) {
	w.table(v4, "filter", func(l string) []string {
		if l == "*filter" {
			return []string{l, ":KUBE-POD-FW-X - [0:0]"}
		}
		return []string{l}
	})
	w.first(v4, "filter", "FORWARD", "-d 10.244.2.20/32 -j KUBE-POD-FW-X")
	for _, a := range allow {
		w.last(v4, "filter", "-A KUBE-POD-FW-X "+a+" -j RETURN")
	}
	w.last(v4, "filter", "-A KUBE-POD-FW-X -j REJECT --reject-with icmp-port-unreachable")
}

const setA = "create A hash:ip family inet hashsize 1024 maxelem 65536\nadd A 10.244.1.201\n"

// ofEp3FromPods are the paths from pods to shop/ep3: "POD,POD VERDICT CODES".
func ofEp3FromPods(r report.NodeReport) []string {
	var out []string
	for i := range r.Paths {
		p := &r.Paths[i]
		if p.Service.Name != "ep3" || p.Origin.Kind != "pod" {
			continue
		}
		pods := p.Origin.Pods
		if pods == nil {
			pods = []string{p.Origin.Address}
		}
		codes := p.Codes()
		slices.Sort(codes)
		out = append(out, strings.TrimSpace(strings.Join(pods, ",")+" "+string(p.Verdict)+" "+strings.Join(codes, ",")))
	}
	slices.Sort(out)
	return out
}

func TestWhatHoldsForTheSampleAloneIsNotClaimedOfAll(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(w *capturedNode)
		want []string
	}{
		{
			"a policy that knows one of the pods",
			func(w *capturedNode) {
				w.withPods("10.244.1.200", "10.244.1.201", "10.244.1.202")
				w.networkPolicy("-s 10.244.1.201/32")
			},
			[]string{"shop/client-a,shop/client-c Mismatch Rejected", "shop/client-b Match DiffersByPod"},
		},
		{
			"the same by an ipset",
			func(w *capturedNode) {
				w.withPods("10.244.1.200", "10.244.1.201", "10.244.1.202")
				w.networkPolicy("-m set --match-set A src")
				w.files["ipset-save.txt"] = []byte(setA)
			},
			[]string{"shop/client-a,shop/client-c Mismatch Rejected", "shop/client-b Match DiffersByPod"},
		},
		{
			"the same by a range",
			func(w *capturedNode) {
				w.withPods("10.244.1.200", "10.244.1.201")
				w.networkPolicy("-m iprange --src-range 10.244.1.201-10.244.1.210")
			},
			[]string{"shop/client-a Mismatch Rejected", "shop/client-b Match DiffersByPod"},
		},
		{
			"a policy that knows all of the pods",
			func(w *capturedNode) {
				w.withPods("10.244.1.200", "10.244.1.201")
				w.networkPolicy("-s 10.244.1.200/32", "-s 10.244.1.201/32", "-s 10.244.1.19/32")
			},
			[]string{"10.244.1.200 Match"},
		},
		{
			"a policy that knows all of the pods but the endpoint, which is its own client",
			func(w *capturedNode) {
				w.withPods("10.244.1.200", "10.244.1.201")
				w.networkPolicy("-s 10.244.1.200/32", "-s 10.244.1.201/32")
			},
			[]string{"10.244.1.19 Mismatch Rejected", "10.244.1.200 Match"},
		},
		{
			"a policy that knows none of the pods",
			func(w *capturedNode) {
				w.withPods("10.244.1.200", "10.244.1.201")
				w.networkPolicy("-s 10.244.1.9/32")
			},
			[]string{"10.244.1.200 Mismatch Rejected"},
		},
		{
			"a policy that knows the whole pod network",
			func(w *capturedNode) {
				w.withPods("10.244.1.200", "10.244.1.201")
				w.networkPolicy("-s 10.244.0.0/16")
			},
			[]string{"10.244.1.200 Match"},
		},
		{
			"no pod is known, and the policy knows one",
			func(w *capturedNode) {
				w.noPods()
				w.networkPolicy("-s 10.244.1.201/32")
			},
			[]string{"10.244.1.254 Unknown SampleOnly"},
		},
		{
			"no pod is known, and a set has some",
			func(w *capturedNode) {
				w.noPods()
				w.networkPolicy("-m set --match-set A src")
				w.files["ipset-save.txt"] = []byte(setA)
			},
			[]string{"10.244.1.254 Unknown SampleOnly"},
		},
		{
			"no pod is known, and a rule drops exactly the sample",
			func(w *capturedNode) {
				w.noPods()
				w.first(v4, "filter", "FORWARD", "-s 10.244.1.254/32 -j DROP")
				w.first(v4, "filter", "FORWARD", "-s 10.244.1.253/32 -j ACCEPT")
			},
			[]string{"10.244.1.254 Unknown SampleOnly"},
		},
		{
			"no pod is known, and the policy is of a destination that the packet does not have",
			func(w *capturedNode) {
				w.noPods()
				w.networkPolicy("-s 10.244.1.201/32")
				w.replace(v4, "-d 10.244.2.20/32", "-d 10.244.2.99/32", "-j KUBE-POD-FW-X")
			},
			[]string{"10.244.1.254 Match"},
		},
		{
			"no pod is known, and a CNI masquerades pod by pod",
			func(w *capturedNode) {
				w.noPods()
				w.last(v4, "nat", "-A POSTROUTING -s 10.244.1.201/32 -j MASQUERADE")
			},
			[]string{"10.244.1.254 Match"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			c.do(w)
			if got := ofEp3FromPods(w.run()); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestNetworkPolicyChainsAreNotKubeProxys: what kube-router's chains refuse is not cured by a restart of kube-proxy.
func TestNetworkPolicyChainsAreNotKubeProxys(t *testing.T) {
	w := openCaptured(t, "iptables")
	w.networkPolicy()
	r := w.run()
	for _, p := range r.Paths {
		if p.Service.Name == "ep3" && p.Origin.Kind == "pod" && (p.Findings[0].Code != Rejected ||
			strings.Contains(p.Findings[0].Remedy, "restart")) {
			t.Errorf("%+v", p.Findings)
		}
	}
}

// TestPodsOfOtherNodesAreNotTried: their packets come in otherwise.
func TestPodsOfOtherNodesAreNotTried(t *testing.T) {
	w := openCaptured(t, "iptables")
	w.withPods("10.244.1.200")
	w.cluster.Pods[len(w.cluster.Pods)-1].Spec.NodeName = "node2"
	w.networkPolicy("-s 10.244.1.201/32")
	req := Request{Matching: true, PerPathService: true}
	for _, p := range Files(w.cluster, snapshot.NewNode("node1", w.files), req).Paths {
		if p.Origin.Pod == "shop/client-a" {
			t.Errorf("%+v", p.Origin)
		}
	}
}
