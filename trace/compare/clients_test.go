// SPDX-License-Identifier: Apache-2.0

package compare_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/compare"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// client is the pod of a node that paths come from.
func (c *capture) client(t *testing.T) string {
	t.Helper()
	state, err := nodestate.Load(snapshot.NewNode(c.node, c.files))
	if err != nil {
		t.Fatal(err)
	}
	r := judge.Node(judge.NewCluster(c.objects), state, web)
	for i := range r.Paths {
		if a, err := netip.ParseAddr(r.Paths[i].Origin.Address); err == nil && a.Is4() && r.Paths[i].Origin.Kind == "pod" {
			return a.String()
		}
	}
	t.Fatal("no path comes from a pod")
	return ""
}

// The chains that a network plugin makes for a single pod are each node's own, also those of the pod that paths come
// from: what they do is compared.
func TestChainsOfTheClientAreTheNodesOwn(t *testing.T) {
	const archive = "endtoend/vxlan.tar.gz"
	for name, x := range map[string]struct {
		chains   [2]string // {} stands for what is of a pod alone
		table    string
		jump     string
		rule     [2]string
		want     bool // the same
		wantText string
	}{
		"the plugin bridge with ipmasq": {
			table: "nat", chains: [2]string{"CNI-0a1b2c3d4e5f60718293a4b5", "CNI-ffeeddccbbaa998877665544"},
			jump: "-A POSTROUTING -s CLIENT/32 -j CHAIN\n",
			rule: [2]string{"! -d 224.0.0.0/4 -j MASQUERADE", "! -d 224.0.0.0/4 -j MASQUERADE"}, want: true,
		},
		"a plugin that marks": {
			table: "nat", chains: [2]string{"KUBE-POD-FW-AAAABBBBCCCCDDDD", "KUBE-POD-FW-DDDDCCCCBBBBAAAA"},
			jump: "-A PREROUTING -s CLIENT/32 -j CHAIN\n",
			rule: [2]string{"-j MARK --set-xmark 0x10000/0x10000", "-j MARK --set-xmark 0x10000/0x10000"}, want: true,
		},
		"one of them does something else": {
			table: "nat", chains: [2]string{"CNI-0a1b2c3d4e5f60718293a4b5", "CNI-ffeeddccbbaa998877665544"},
			jump:     "-A POSTROUTING -s CLIENT/32 -j CHAIN\n",
			rule:     [2]string{"! -d 224.0.0.0/4 -j MASQUERADE", "! -d 224.0.0.0/4 -j MASQUERADE --random"},
			wantText: "--random",
		},
		"somebody's own chain for the pod": {
			table: "nat", chains: [2]string{"MINE", "THEIRS"}, jump: "-A POSTROUTING -s CLIENT/32 -j CHAIN\n",
			rule: [2]string{"! -d 224.0.0.0/4 -j MASQUERADE", "! -d 224.0.0.0/4 -j MASQUERADE"}, wantText: "THEIRS",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var of [2]*compare.Facts
			for i, node := range []string{"node1", "node2"} {
				c := open(t, archive, node)
				rules := strings.NewReplacer("CLIENT", c.client(t), "CHAIN", x.chains[i]).Replace(x.jump) +
					"-A " + x.chains[i] + " " + x.rule[i] + "\n"
				file := map[string]string{"node1": snapshot.IPTablesNFTFile, "node2": snapshot.IPTablesLegacyFile}[node]
				c = c.with(t, file, func(s string) string { // first in the table
					before, after, ok := strings.Cut(s, "*"+x.table+"\n")
					at := strings.Index(after, "-A ")
					if !ok || at < 0 {
						t.Fatalf("%s has no table %s", file, x.table)
					}
					return before + "*" + x.table + "\n:" + x.chains[i] + " - [0:0]\n" + after[:at] + rules + after[at:]
				})
				of[i] = c.facts(t, web)
			}
			d := compare.Nodes(of[0], of[1])
			var got []string
			for _, line := range lines(&d) {
				if strings.HasPrefix(line, "rules ") || strings.HasPrefix(line, "path ") {
					got = append(got, line)
				}
			}
			if text := strings.Join(got, "\n"); x.want != (len(got) == 0) || !strings.Contains(text, x.wantText) {
				t.Errorf("%d differences, want them to be the same: %t, %q\n%s", len(got), x.want, x.wantText, text)
			}
		})
	}
}
