// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// ruleset are the rules of the node as nft lists them, with what they have counted: those of each chain, by "TABLE
// CHAIN" and "FAMILY TABLE CHAIN".
type ruleset map[string][]string

var (
	ofChain = regexp.MustCompile(`^\s+chain (\S+) \{`)
	ofTable = regexp.MustCompile(`^table (\S+) (\S+) \{`)
	// dropping is a rule that counts what it drops or refuses, as all do that iptables-nft and [prelude]'s hook make.
	dropping = regexp.MustCompile(`counter packets (\d+) bytes \d+ (drop|reject)`)
)

// rules lists those that the node has.
func rules(t *testing.T) ruleset {
	t.Helper()
	out := ruleset{}
	var family, table, chain string
	for line := range strings.Lines(testutil.Run(t, "", "nft", "list", "ruleset")) {
		if m := ofTable.FindStringSubmatch(line); m != nil {
			family, table, chain = m[1], m[2], ""
			continue
		}
		if m := ofChain.FindStringSubmatch(line); m != nil {
			chain = m[1]
			continue
		}
		rule := strings.TrimSpace(line)
		switch {
		case rule == "}":
			chain = ""
		case chain != "" && rule != "" && !strings.HasPrefix(rule, "type ") && !strings.HasPrefix(rule, "policy "):
			for _, at := range []string{table + " " + chain, family + " " + table + " " + chain} {
				out[at] = append(out[at], rule)
			}
		}
	}
	return out
}

// idle is a rule that is said to drop the connections' packets, and to which none of them has come: what they fail by
// is something else. "" where there is none.
func (r ruleset) idle(of *report.NodeReport, v6 bool) string {
	for _, list := range [][]report.Finding{of.Paths[0].Findings, of.Findings} {
		for i := range list {
			for _, e := range list[i].Evidence {
				at := e.Where.Table + " " + e.Where.Chain
				if e.Where.Backend != report.BackendNative {
					at = map[bool]string{false: "ip ", true: "ip6 "}[v6] + at
				}
				n := e.Where.Rule
				if list[i].Severity != report.Error || n == 0 || n > len(r[at]) {
					continue
				}
				if m := dropping.FindStringSubmatch(r[at][n-1]); len(m) > 0 && m[1] == "0" {
					return list[i].Code + ": " + e.String()
				}
			}
		}
	}
	return ""
}

// TestIdleRules: a rule that is said to drop packets, and has counted none, is found.
func TestIdleRules(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "nft", "iptables-nft") {
		return
	}
	testutil.Run(t, "", "bash", "-ec", "iptables-nft -A FORWARD -j DROP; ip link set lo up; "+
		"nft 'table inet fault_f { chain c { type filter hook output priority 0; ip daddr 127.0.0.9 counter drop; }; }'; "+
		"echo >/dev/udp/127.0.0.9/9 || true")
	for want, ref := range map[string]report.RuleRef{
		"X: filter FORWARD rule 1": {Table: "filter", Backend: report.BackendNFT, Chain: "FORWARD", Rule: 1},
		"":                         {Table: "fault_f", Backend: report.BackendNative, Chain: "c", Rule: 1},
	} {
		r := &report.NodeReport{
			Paths:    []report.Path{{}},
			Findings: []report.Finding{{Code: "X", Severity: report.Error, Evidence: []report.Evidence{{Where: ref}}}},
		}
		if got := rules(t).idle(r, false); got != want {
			t.Errorf("%s: %q, want %q", ref, got, want)
		}
	}
}
