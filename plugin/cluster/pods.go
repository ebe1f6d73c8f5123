// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// PodIPs returns the addresses of a pod.
func PodIPs(p *corev1.Pod) []netip.Addr {
	var out []netip.Addr
	for _, text := range append([]corev1.PodIP{{IP: p.Status.PodIP}}, p.Status.PodIPs...) {
		if a, err := netip.ParseAddr(text.IP); err == nil && !slices.Contains(out, a.Unmap()) {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// PodNames names the pods, namespace/name, by their addresses. Pods on the host network have none of their own.
func PodNames(objects *snapshot.Cluster) map[netip.Addr]string {
	out := make(map[netip.Addr]string, len(objects.Pods))
	for _, p := range objects.Pods {
		if p.Spec.HostNetwork {
			continue
		}
		for _, a := range PodIPs(p) {
			out[a] = p.Namespace + "/" + p.Name
		}
	}
	return out
}
