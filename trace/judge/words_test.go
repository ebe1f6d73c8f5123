// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// The report names a place as the walk does, of every backend.
func TestRuleRef(t *testing.T) {
	if r := ruleRef(netfilter.Ref{Hook: netfilter.Input}); r != (report.RuleRef{}) {
		t.Errorf("no place is %+v", r)
	}
	for backend, want := range map[netfilter.Backend]string{
		netfilter.BackendNFT: "t c rule 2", netfilter.BackendLegacy: "t c rule 2", netfilter.BackendNative: "nft t c rule 2",
		netfilter.BackendIPVS: "ipvs TCP 10.96.0.1:443 rr",
	} {
		c := &netfilter.Chain{Name: "c", Table: &netfilter.Table{Name: "t", Backend: backend}}
		rule := &netfilter.Rule{Num: 2, Text: "text", Target: "TCP 10.96.0.1:443 rr"}
		for _, ref := range []netfilter.Ref{{Chain: c, Rule: rule}, {Chain: c}} {
			if got := ruleRef(ref).String(); got != ref.String() {
				t.Errorf("%s: %q, and the walk says %q", backend, got, ref)
			}
		}
		if got := cite(netfilter.Ref{Chain: c, Rule: rule}).String(); got != want+": text" {
			t.Errorf("%s: %q, want %q", backend, got, want+": text")
		}
	}
}

// Of a long rule the beginning is quoted, of a long chain the first rules.
func TestQuote(t *testing.T) {
	c := &netfilter.Chain{Name: "c", Table: &netfilter.Table{Name: "t", Backend: netfilter.BackendNFT}}
	for i := range maxEvidence + 3 {
		c.Rules = append(c.Rules, &netfilter.Rule{Num: i + 1, Text: strings.Repeat("word ", maxCited)})
	}
	got := quote(c)
	if len(got) != maxEvidence+1 || got[maxEvidence] != (report.Evidence{Text: "… and 3 more rules"}) {
		t.Errorf("%d pieces, the last is %q", len(got), got[len(got)-1])
	}
	if e := got[1]; e.Where.Rule != 2 || len(e.Text) > maxCited+len(" …") || !strings.HasSuffix(e.Text, "word …") {
		t.Errorf("%+v", e)
	}
}
