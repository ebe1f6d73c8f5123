// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// The kernel takes the command that writes the chain of an endpoint, and the chain is then as kube-proxy writes it.
func TestCommandForAnEndpointsChain(t *testing.T) {
	testutil.NeedRoot(t, "nft", "unshare")
	for _, tt := range []struct {
		family netfilter.Family
		in     string
		name   string
		rules  []string
	}{
		{
			netfilter.IPv4, "ip", "GKDFVH4Y-shop/sticky/tcp/http__10.245.0.2/8080", []string{
				"ip saddr 10.245.0.2 jump mark-for-masquerade",
				"update @affinity-GKDFVH4Y-shop/sticky/tcp/http__10.245.0.2/8080 { ip saddr }",
				"meta l4proto tcp dnat to 10.245.0.2:8080",
			},
		},
		{
			netfilter.IPv6, "ip6", "", []string{
				"ip6 saddr fd00:10:245::2 jump mark-for-masquerade", "meta l4proto udp dnat to [fd00:10:245::2]:53",
			},
		},
	} {
		if tt.name == "" {
			tt.name = nftEndpoint("kube-system/dns/udp/dns", "fd00:10:245::2", 53)
		}
		chain := "endpoint-" + tt.name
		c := &netfilter.Chain{Name: chain, Table: &netfilter.Table{Family: tt.family, Name: "kube-proxy"}}
		c.Table.Chains = []*netfilter.Chain{{Name: "mark-for-masquerade", Table: c.Table}, c}
		sets := ""
		if len(tt.rules) == 3 {
			c.Table.Sets = []netfilter.Set{namedSet{name: "affinity-" + tt.name}}
			sets = "set affinity-" + tt.name + " { type ipv4_addr; flags dynamic,timeout; timeout 3h; }\n"
		}
		table := func(rules string) string {
			return "table " + tt.in + " kube-proxy {\n" + sets +
				"chain mark-for-masquerade { meta mark set meta mark | 0x4000; }\nchain " +
				chain + " {\n" + rules + "}\nchain service { type nat hook prerouting priority dstnat; jump " + chain + "; }\n}\n"
		}
		node := testutil.NewNamespace(t)
		list := func() string { return node.Run(t, "nft", "list", "table", tt.in, "kube-proxy") }
		load := func(text string) {
			cmd := node.Command(t, "nft", "-f", "-")
			cmd.Stdin = strings.NewReader(text)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		load(table(strings.Join(tt.rules, "\n") + "\n"))
		want := list()
		line := rewritten(c)
		for _, rules := range []string{"", "drop\n"} {
			node.Run(t, "nft", "delete", "table", tt.in, "kube-proxy")
			load(table(rules))
			if list() == want {
				t.Fatal("nothing is wrong")
			}
			node.Run(t, "sh", "-c", line)
			if got := list(); got != want {
				t.Errorf("after %s: %s, want %s", line, got, want)
			}
		}
	}
}

// nftEndpoint is what the names of an endpoint's chain and set end in.
func nftEndpoint(port, address string, number uint16) string {
	part := strings.Split(port, "/")
	chain, _ := kubeproxy.NFTEndpointNames(types.NamespacedName{Namespace: part[0], Name: part[1]}, part[3],
		corev1.Protocol(strings.ToUpper(part[2])), netip.AddrPortFrom(netip.MustParseAddr(address), number))
	return strings.TrimPrefix(chain, kubeproxy.NFTPrefixEndpoint)
}

type namedSet struct {
	netfilter.Set

	name string
}

func (s namedSet) Name() string { return s.name }
