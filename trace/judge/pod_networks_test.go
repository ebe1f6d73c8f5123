// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPodNetworks: those that are found are those that a search through all Nodes finds, in its order.
func TestPodNetworks(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var nodes []*corev1.Node
	for i := range 300 {
		o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i)}}
		o.Spec.PodCIDRs = []string{
			fmt.Sprintf("10.%d.%d.7/%d", random.IntN(3), random.IntN(256), 20+random.IntN(6)),
			fmt.Sprintf("fd00:10:%x::/%d", random.IntN(200), 48+random.IntN(17)), "none",
		}
		nodes = append(nodes, o)
	}
	networks := podNetworksOf(nodes)
	found := 0
	for range 2000 {
		a := netip.AddrFrom4([4]byte{10, byte(random.IntN(3)), byte(random.IntN(256)), byte(random.IntN(256))})
		if random.IntN(2) == 0 {
			a = netip.MustParseAddr(fmt.Sprintf("fd00:10:%x::%x", random.IntN(200), random.IntN(9)))
		}
		var want, got []string
		for _, o := range nodes {
			for _, text := range o.Spec.PodCIDRs[:2] {
				if p := netip.MustParsePrefix(text); p.Contains(a) {
					want = append(want, o.Name+" "+p.Masked().String())
				}
			}
		}
		for _, x := range networks.of(a) {
			got = append(got, x.node.Name+" "+x.network.String())
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s: %q, want %q", a, got, want)
		}
		found += len(got)
	}
	if found < 1000 {
		t.Errorf("only %d were found", found)
	}
}

// BenchmarkPodNetworks: with how many Nodes does the time grow? With none.
func BenchmarkPodNetworks(b *testing.B) {
	for _, n := range []int{10, 1000} {
		var nodes []*corev1.Node
		for i := range n {
			nodes = append(nodes, &corev1.Node{
				Spec: corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.%d.%d.0/24", i/256, i%256)}},
			})
		}
		networks, a := podNetworksOf(nodes), netip.MustParseAddr("10.0.5.9")
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				networks.of(a)
			}
		})
	}
}
