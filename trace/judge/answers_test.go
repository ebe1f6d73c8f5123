// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

// again puts an endpoint of a Service into a second EndpointSlice of it, changed by f.
func (w *capturedNode) again(service, address string, f func(e *discoveryv1.Endpoint)) {
	w.t.Helper()
	first := w.slice(service)
	for i := range first.Endpoints {
		if !slices.Equal(first.Endpoints[i].Addresses, []string{address}) {
			continue
		}
		second := first.DeepCopy()
		second.Name += "-again"
		second.Endpoints = []discoveryv1.Endpoint{*first.Endpoints[i].DeepCopy()}
		f(&second.Endpoints[0])
		w.cluster.EndpointSlices = append(w.cluster.EndpointSlices, second)
		return
	}
	w.t.Fatalf("no endpoint %s of %s", address, service)
}

func notReady(e *discoveryv1.Endpoint) {
	e.Conditions.Ready, e.Conditions.Serving = new(false), new(false)
}

// withoutFirst writes the chain of shop/ep3 as kube-proxy does for its last two endpoints.
func withoutFirst(w *capturedNode) {
	chain := "-A " + kubeproxy.ChainNames("shop/ep3", corev1.ProtocolTCP).Cluster
	w.drop(v4, chain, "10.244.1.19:8080")
}

func answerFaults() []fault {
	const (
		extip = "shop/extip ExternalIP 198.51.100.20:80/TCP from "
		npAt  = "shop/np ExternalIP 198.51.100.20:80/TCP from "
		local = "shop/extip-local ExternalIP 198.51.100.22:80/TCP from "
		npLoc = "shop/np ExternalIP 198.51.100.22:80/TCP from "
	)
	outside := func(path, codes string) []string {
		return []string{path + "external → " + codes, path + "node → " + codes}
	}
	claim := func(service, address string) func(w *capturedNode) {
		return func(w *capturedNode) {
			svc := w.service(service)
			svc.Spec.ExternalIPs = append(svc.Spec.ExternalIPs, address)
		}
	}
	return []fault{
		{
			name: "an endpoint twice, not ready the second time, and the rules have it",
			do:   func(w *capturedNode) { w.again("shop/ep3", "10.244.1.19", notReady) },
			want: both(ep3, "Warning: DuplicateEndpoint"),
		},
		{
			name: "an endpoint twice, not ready the second time, and the rules leave it out",
			do: func(w *capturedNode) {
				w.again("shop/ep3", "10.244.1.19", notReady)
				withoutFirst(w)
			},
			want: both(ep3, "Warning: DuplicateEndpoint"),
		},
		{
			name: "an endpoint twice, and another one is missing",
			do: func(w *capturedNode) {
				w.again("shop/ep3", "10.244.1.19", notReady)
				w.drop(v4, "-A "+kubeproxy.ChainNames("shop/ep3", corev1.ProtocolTCP).Cluster, "10.244.2.20:8080")
			},
			want: both(ep3, "Mismatch: MissingEndpoint 10.244.2.20:8080"),
		},
		{
			name: "an endpoint twice, the second time terminating: the running one counts",
			do: func(w *capturedNode) {
				w.again("shop/ep3", "10.244.1.19", func(e *discoveryv1.Endpoint) {
					notReady(e)
					e.Conditions.Terminating = new(true)
				})
			},
		},
		{
			name: "an endpoint twice, the second time terminating, and the rules leave it out",
			do: func(w *capturedNode) {
				w.again("shop/ep3", "10.244.1.19", func(e *discoveryv1.Endpoint) {
					notReady(e)
					e.Conditions.Terminating = new(true)
				})
				withoutFirst(w)
			},
			want: both(ep3, "Mismatch: MissingEndpoint 10.244.1.19:8080"),
		},
		{
			name: "an endpoint twice, the second time of another node: for traffic policy Cluster that is the same",
			do: func(w *capturedNode) {
				w.again("shop/ep3", "10.244.2.20", func(e *discoveryv1.Endpoint) { e.NodeName = new("node3") })
			},
		},
		{
			name: "a local endpoint twice, the second time of another node, traffic policy Local",
			do: func(w *capturedNode) {
				w.again("shop/itp-local", "10.244.1.61", func(e *discoveryv1.Endpoint) { e.NodeName = new("node3") })
			},
			want: both("shop/itp-local ClusterIP 10.96.233.100:80/TCP from ", "Warning: DuplicateEndpoint"),
		},
		{
			name: "one external IP of a Service with traffic policy Cluster, and of one with Local that takes the packets",
			do:   claim("shop/np", "198.51.100.22"),
			want: append(outside(local, "Warning: SharedFrontend shop/np"),
				outside(npLoc, "Warning: SharedFrontend shop/extip-local")...),
		},
		{
			name: "the same, and the one with Cluster takes the packets",
			do: func(w *capturedNode) {
				claim("shop/np", "198.51.100.22")(w)
				w.replace(v4, kubeproxy.ChainNames("shop/extip-local", corev1.ProtocolTCP).External,
					kubeproxy.ChainNames("shop/np", corev1.ProtocolTCP).External, "-A KUBE-SERVICES", "198.51.100.22/32")
			},
			want: append(outside(local, "Warning: SharedFrontend shop/np"),
				outside(npLoc, "Warning: SharedFrontend shop/extip-local")...),
		},
		{
			name: "two Services with one external IP, and a third one takes the packets",
			do: func(w *capturedNode) {
				claim("shop/np", "198.51.100.20")(w)
				w.replace(v4, kubeproxy.ChainNames("shop/extip", corev1.ProtocolTCP).External,
					kubeproxy.ChainNames("shop/lb", corev1.ProtocolTCP).External, "-A KUBE-SERVICES", "198.51.100.20/32")
			},
			want: slices.Concat(
				outside(extip, "Mismatch: MissingEndpoint *"), outside(npAt, "Mismatch: MissingEndpoint *"),
			),
		},
		{
			name: "two Services with one external IP, one without endpoints: the other one takes the packets",
			do:   claim("shop/extip-noep", "198.51.100.20"),
			want: slices.Concat(outside(extip, "Warning: SharedFrontend shop/extip-noep"),
				outside("shop/extip-noep ExternalIP 198.51.100.20:80/TCP from ", "Warning: SharedFrontend shop/extip")),
		},
		{
			name: "one NodePort of two Services, as after a restored etcd",
			do:   func(w *capturedNode) { w.service("shop/affinity-np").Spec.Ports[0].NodePort = 30080 },
			all: func(map[string]string) []string {
				out := []string{"node → StaleService shop/affinity-np"}
				for _, path := range []string{
					"10.77.0.11:%s/TCP from external", "10.77.0.11:%s/TCP from node", "127.0.0.1:%s/TCP from node",
				} {
					out = append(out,
						"shop/np NodePort "+at(path, "30080")+" → Warning: SharedFrontend shop/affinity-np",
						"shop/affinity-np NodePort "+at(path, "30080")+" → Warning: SharedFrontend shop/np",
						"shop/affinity-np NodePort "+at(path, "30099")+" → gone")
				}
				return out
			},
		},
		{
			name: "one cluster IP of two Services, as after a restored etcd",
			do: func(w *capturedNode) {
				svc := w.service("shop/ep5")
				svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "10.96.77.154", []string{"10.96.77.154"}
			},
			want: slices.Concat(
				both(ep3, "Warning: SharedFrontend shop/ep5"),
				both("shop/ep5 ClusterIP 10.96.77.154:80/TCP from ", "Warning: SharedFrontend shop/ep3"),
				[]string{
					"node → StaleService shop/ep5",
					"shop/ep5 ClusterIP 10.96.100.147:80/TCP from node → gone",
					"shop/ep5 ClusterIP 10.96.100.147:80/TCP from pod → gone",
				}),
		},
	}
}

func at(path, port string) string { return strings.Replace(path, "%s", port, 1) }

// TestEachAllowedAnswerIsAcceptedAndNoOther puts two answers into the API's data, and one of them or a third into the
// rules.
func TestEachAllowedAnswerIsAcceptedAndNoOther(t *testing.T) {
	putIn(t, "iptables", answerFaults(), 12)
}

// sharedIn are two Services with one external IP in modes where they share a map's element or a virtual server.
func sharedIn() []fault {
	var want []string
	for _, from := range []string{"external", "node"} {
		want = append(want,
			"shop/extip-local ExternalIP 198.51.100.22:80/TCP from "+from+" → Warning: SharedFrontend shop/np",
			"shop/np ExternalIP 198.51.100.22:80/TCP from "+from+" → Warning: SharedFrontend shop/extip-local")
	}
	return []fault{{
		name: "one external IP of a Service with traffic policy Cluster, and of one with Local that takes the packets",
		do:   func(w *capturedNode) { w.service("shop/np").Spec.ExternalIPs = []string{"198.51.100.22"} },
		want: want,
	}}
}

func TestASharedFrontendInOtherModes(t *testing.T) {
	for _, base := range []string{"nftables", "ipvs"} {
		t.Run(base, func(t *testing.T) { putIn(t, base, sharedIn(), 1) })
	}
}
