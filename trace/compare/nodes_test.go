// SPDX-License-Identifier: Apache-2.0

package compare_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/compare"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// web asks for the Service of the cluster of testdata/endtoend.
var web = judge.Request{
	Services: []types.NamespacedName{{Namespace: "shop", Name: "web"}}, Matching: true, Steps: true,
}

// TestNodes compares nodes of one cluster, which are in iptables mode with the nft and the legacy backend and in
// nftables mode: a fault is said, and what nodes have to differ in is not.
func TestNodes(t *testing.T) {
	const archive = "endtoend/vxlan.tar.gz"
	node := map[string]*capture{}
	for _, n := range []string{"node1", "node2", "node3"} {
		node[n] = open(t, archive, n)
	}
	backend := []string{
		"configuration changed backend: nft → legacy",
		"versions changed kube-proxy's iptables: iptables v1.8.9 (nf_tables) → iptables v1.8.9 (legacy)",
	}
	for _, x := range []struct {
		name      string
		good, bad *capture
		want      []string // that begin so; of rules, paths and settings alone
	}{
		{"healthy nodes with different backends", node["node1"], node["node2"], nil},
		{"healthy nodes in different modes", node["node1"], node["node3"], []string{
			"settings changed net/ipv4/conf/all/route_localnet: 1 → 0",
		}},
		{
			"an endpoint is missing", node["node1"],
			node["node2"].with(t, snapshot.IPTablesLegacyFile, without("-j KUBE-SEP-OXLTS5H7VR6G56SY")),
			[]string{
				"path ClusterIP 10.97.166.150:80 from pod Match Mismatch +MissingEndpoint",
				"path ClusterIP 10.97.166.150:80 from node Match Mismatch +MissingEndpoint",
				"path NodePort 10.79.0.12:30201 from external Match Mismatch +MissingEndpoint",
				"path NodePort 10.79.0.12:30201 from node Match Mismatch +MissingEndpoint",
				"path NodePort 127.0.0.1:30201 from node Match Mismatch +MissingEndpoint",
				"rules removed IPv4 nat KUBE-SVC-67NZLRHBNDSAWJRO: -A KUBE-SVC-67NZLRHBNDSAWJRO ",
			},
		},
		{
			"a rule drops what goes to an endpoint of the node itself", node["node1"],
			node["node2"].with(t, snapshot.IPTablesNFTFile, func(s string) string {
				before, after, _ := strings.Cut(s, "*filter\n")
				return before + "*filter\n" + strings.Replace(after, "COMMIT\n", "-A FORWARD -d 10.245.0.2/32 -j DROP\nCOMMIT\n", 1)
			}),
			[]string{
				"path ClusterIP 10.97.166.150:80 from pod Match Mismatch +Dropped",
				"path NodePort 10.79.0.12:30201 from external Match Mismatch +Dropped",
				"rules added IPv4 filter FORWARD:  → -A FORWARD -d 10.245.0.2/32 -j DROP",
			},
		},
		{
			"a setting", node["node1"],
			node["node2"].with(t, snapshot.SysctlFile, func(s string) string {
				return strings.Replace(s, "net/ipv4/fwmark_reflect=0", "net/ipv4/fwmark_reflect=1", 1)
			}),
			[]string{"settings changed net/ipv4/fwmark_reflect: 0 → 1"},
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			d := compare.Nodes(x.good.facts(t, web), x.bad.facts(t, web))
			var got []string
			for _, line := range lines(&d) {
				for _, of := range []string{"path ", "rules ", "sets ", "settings "} {
					if strings.HasPrefix(line, of) {
						got = append(got, line)
					}
				}
			}
			if !slices.EqualFunc(got, x.want, strings.HasPrefix) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(x.want, "\n"))
			}
			if x.bad.node == "node2" {
				for _, want := range backend {
					if !slices.Contains(lines(&d), want) {
						t.Errorf("%q is not said", want)
					}
				}
			}
		})
	}
}

// without removes the first line that has a text.
func without(text string) func(string) string {
	return func(s string) string {
		all := strings.SplitAfter(s, "\n")
		at := slices.IndexFunc(all, func(line string) bool { return strings.Contains(line, text) })
		if at < 0 {
			return s
		}
		return strings.Join(slices.Delete(all, at, at+1), "")
	}
}
