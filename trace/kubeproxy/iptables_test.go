// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestChainNames(t *testing.T) {
	for _, c := range []struct {
		namespace, name, port string
		protocol              corev1.Protocol
		hash                  string
	}{
		{"default", "kubernetes", "https", corev1.ProtocolTCP, "NPX46M4PTMTKRN6Y"},
		{"kube-system", "kube-dns", "dns", corev1.ProtocolUDP, "TCOU7JCQXEZGVUNU"},
		{"kube-system", "kube-dns", "dns-tcp", corev1.ProtocolTCP, "ERIFXISQEP7F7OF4"},
	} {
		got := ChainNames(ServicePortName(c.namespace, c.name, c.port), c.protocol)
		want := Chains{"KUBE-SVC-" + c.hash, "KUBE-SVL-" + c.hash, "KUBE-EXT-" + c.hash, "KUBE-FW-" + c.hash}
		if got != want {
			t.Errorf("%s/%s:%s: got %+v, want %+v", c.namespace, c.name, c.port, got, want)
		}
	}
}

func TestServicePortNameWithoutPort(t *testing.T) {
	if got := ServicePortName("shop", "web", ""); got != "shop/web" {
		t.Errorf("got %q", got)
	}
}

func BenchmarkEndpointChain(b *testing.B) {
	ep := netip.MustParseAddrPort("10.244.1.15:8080")
	for b.Loop() {
		EndpointChain("shop/web:http", corev1.ProtocolTCP, ep)
	}
}
