// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The names are those that a kube-proxy v1.36.3 has made (testdata/snapshots/nftables).
func TestNFTChainNames(t *testing.T) {
	name := func(s string) types.NamespacedName {
		namespace, name, _ := strings.Cut(s, "/")
		return types.NamespacedName{Namespace: namespace, Name: name}
	}
	for _, c := range []struct {
		service, port string
		protocol      corev1.Protocol
		want          string
	}{
		{"shop/ep2", "", corev1.ProtocolTCP, "XR6BVQQI-shop/ep2/tcp/"},
		{"shop/multiport", "dns", corev1.ProtocolUDP, "EKN5IRIH-shop/multiport/udp/dns"},
		{"shop/sctp", "", corev1.ProtocolSCTP, "5XY27UXK-shop/sctp/sctp/"},
		{"default/kubernetes", "https", corev1.ProtocolTCP, "2QRHZV4L-default/kubernetes/tcp/https"},
	} {
		got := NFTChainNames(name(c.service), c.port, c.protocol)
		if want := (Chains{"service-" + c.want, "local-" + c.want, "external-" + c.want, "firewall-" + c.want}); got != want {
			t.Errorf("%s: got %+v, want %+v", c.service, got, want)
		}
	}
	chain, affinity := NFTEndpointNames(name("shop/kitchen-sink"), "a", corev1.ProtocolTCP,
		netip.MustParseAddrPort("10.244.1.114:8080"))
	if want := "JDPYJSE2-shop/kitchen-sink/tcp/a__10.244.1.114/8080"; chain != "endpoint-"+want ||
		affinity != "affinity-"+want {
		t.Errorf("got %s, %s", chain, affinity)
	}
	if chain, _ := NFTEndpointNames(name("a/b"), "", corev1.ProtocolTCP,
		netip.MustParseAddrPort("[fd00::1]:80")); !strings.HasSuffix(chain, "__fd00..1/80") {
		t.Errorf("got %s", chain)
	}
	long := NFTChainNames(types.NamespacedName{Namespace: "a", Name: strings.Repeat("b", 300)}, "", corev1.ProtocolTCP)
	if n := strings.TrimPrefix(long.Cluster, "service-"); len(n) != nftNameLength || !strings.HasSuffix(n, "...") {
		t.Errorf("%d letters: %s", len(n), n)
	}
}
