// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Whatever makes a path Unknown, a finding says by its code what, where and why, and what would tell.
func TestUnknownHasACode(t *testing.T) {
	for _, tt := range []struct {
		name, base, from string // from: the path of shop/ep3
		do               func(w *capturedNode)
		code             string
		says, command    string
	}{
		{
			name: "an unknown match", from: "pod", code: RuleNotEvaluated,
			do: func(w *capturedNode) {
				w.first(v4, "filter", "FORWARD", "-m bpf --object-pinned /sys/fs/bpf/guard -j DROP")
			},
			says:    "filter FORWARD rule 1 decides, and cannot be evaluated: ",
			command: "kubectl svcproxy trace --live --node node1 -n shop -- ep3",
		},
		{
			name: "an unknown target", from: "pod", code: RuleNotEvaluated,
			do:   func(w *capturedNode) { w.first(v4, "mangle", "PREROUTING", "-d 10.96.77.154/32 -j MAGIC --level 7") },
			says: "mangle PREROUTING rule 1 decides, and cannot be evaluated: ",
		},
		{
			name: "a rate", from: "node", code: RuleNotEvaluated,
			do:   func(w *capturedNode) { w.first(v4, "filter", "OUTPUT", "-m limit --limit 1/sec -j DROP") },
			says: "filter OUTPUT rule 1 decides, and cannot be evaluated: ",
		},
		{
			name: "a jump to a chain that is not there", from: "pod", code: RuleNotEvaluated,
			do: func(w *capturedNode) {
				w.edit(v4, func(l string) []string {
					if strings.HasPrefix(l, ":KUBE-SVC-") || strings.Contains(l, "-A KUBE-SVC-") {
						return nil
					}
					return []string{l}
				})
			},
			says: "decides, and cannot be evaluated: ",
		},
		{
			name: "a DNAT without a destination", from: "pod", code: BrokenRule,
			do: func(w *capturedNode) {
				w.replace(v4, "--to-destination 10.244.2.20:8080", "", "-j DNAT", "--to-destination 10.244.2.20:8080")
			},
			says: "kube-proxy's DNAT rule has no usable destination",
		},
		{
			name: "one backend that was not read", from: "pod", code: NotCollected,
			do: func(w *capturedNode) {
				w.files[snapshot.UnreadFile] = snapshot.EncodeUnread(map[string]string{"iptables-legacy-save.txt": "no such file"})
			},
			says: "iptables-legacy-save.txt was not read: no such file",
		},
		{
			name: "no addresses", base: "nftables", from: "node", code: NotCollected,
			do: func(w *capturedNode) {
				delete(w.files, "ip-addr.json")
				delete(w.files, "configz.json")
				delete(w.files, "kube-proxy-config.yaml")
				w.cluster.Nodes, w.cluster.Missing = nil, append(w.cluster.Missing, "nodes")
				w.cluster.Pods = nil
				for _, s := range w.cluster.EndpointSlices {
					for i := range s.Endpoints {
						s.Endpoints[i].NodeName = nil
					}
				}
			},
			says: "no source address is known for a packet from node",
		},
		{
			name: "nftables: an unknown expression", base: "nftables", from: "pod", code: RuleNotEvaluated,
			do: func(w *capturedNode) {
				w.change("rule", `"expr": [`, `"expr": [{"xt": {"type": "match", "name": "fancy"}}, {"drop": null}, `,
					`"chain": "nat-prerouting"`)
			},
			says: "nft kube-proxy nat-prerouting rule 1 decides, and cannot be evaluated: ",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, base(tt.base))
			tt.do(w)
			found := false
			for _, p := range w.run().Paths {
				if p.Service.Name != "ep3" || p.Origin.Kind != tt.from {
					continue
				}
				i := slices.IndexFunc(p.Findings, func(f report.Finding) bool {
					return f.Code == tt.code && strings.Contains(f.Message, tt.says)
				})
				if p.Verdict != report.Unknown || i < 0 {
					t.Errorf("%s: %+v", p.Verdict, p.Findings)
					continue
				}
				found = true
				if !slices.Contains(p.Codes(), tt.code) {
					t.Errorf("the table shows %q", p.Codes())
				}
				if tt.command != "" {
					compareCommands(t, p.Findings[i].Commands, []string{tt.command, "iptables-nft -t filter -S FORWARD @node1"})
				}
			}
			if !found {
				t.Error("no such path")
			}
		})
	}
}
