// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"testing"
)

func TestEvidence(t *testing.T) {
	sep := RuleRef{Table: "nat", Backend: BackendNFT, Chain: "KUBE-SVC-A", Rule: 3}
	server := RuleRef{Table: "ipvs", Backend: BackendIPVS, Chain: "INPUT", Rule: 2, Server: "TCP 10.96.0.1:443 rr"}
	for _, tt := range []struct {
		evidence          Evidence
		text, short, json string
	}{
		{Evidence{}, "", "", `{}`},
		{Evidence{Text: "ip_forward=0"}, "ip_forward=0", "ip_forward=0", `{"text":"ip_forward=0"}`},
		{
			Evidence{sep, "-A KUBE-SVC-A -j KUBE-SEP-B"},
			"nat KUBE-SVC-A rule 3: -A KUBE-SVC-A -j KUBE-SEP-B", "-j KUBE-SEP-B",
			`{"where":{"table":"nat","backend":"nft","chain":"KUBE-SVC-A","rule":3},"text":"-A KUBE-SVC-A -j KUBE-SEP-B"}`,
		},
		{
			Evidence{RuleRef{Table: "ip kube-proxy", Backend: BackendNative, Chain: "services", Rule: 1}, "drop"},
			"nft ip kube-proxy services rule 1: drop", "drop",
			`{"where":{"table":"ip kube-proxy","backend":"native","chain":"services","rule":1},"text":"drop"}`,
		},
		{
			Evidence{Where: RuleRef{Table: "filter", Backend: BackendLegacy, Chain: "FORWARD"}},
			"filter FORWARD policy", "",
			`{"where":{"table":"filter","backend":"legacy","chain":"FORWARD"}}`,
		},
		{
			Evidence{Where: server},
			"ipvs TCP 10.96.0.1:443 rr", "",
			`{"where":{"table":"ipvs","backend":"ipvs","chain":"INPUT","rule":2,"server":"TCP 10.96.0.1:443 rr"}}`,
		},
	} {
		data, err := json.Marshal(tt.evidence)
		if tt.evidence.String() != tt.text || tt.evidence.Short() != tt.short || string(data) != tt.json || err != nil {
			t.Errorf("%q, %q, %s, %v", tt.evidence, tt.evidence.Short(), data, err)
			t.Errorf("want %q, %q, %s", tt.text, tt.short, tt.json)
		}
	}
}
