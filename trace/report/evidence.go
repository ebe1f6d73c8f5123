// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strconv"
	"strings"
)

// The backends of a RuleRef: who holds its table in the kernel.
const (
	BackendNFT    = "nft"    // iptables-nft
	BackendLegacy = "legacy" // iptables-legacy
	BackendNative = "native" // a table of nftables that iptables does not manage
	BackendIPVS   = "ipvs"   // the virtual servers of IPVS, which count as rules
)

// RuleRef names a rule, or the policy of a chain. The zero RuleRef names none.
type RuleRef struct {
	Table   string `json:"table"` // "nat"; of nftables with its family: "ip kube-proxy"
	Backend string `json:"backend,omitempty"`
	Chain   string `json:"chain"`
	Rule    int    `json:"rule,omitempty"` // 1 for the chain's first rule; 0 for its policy
	// Server is the virtual server of IPVS that the rule stands for ("TCP 10.96.0.1:443 rr"), which is what people know
	// it by.
	Server string `json:"server,omitempty"`
}

// String returns "nat KUBE-SERVICES rule 3", "nft ip kube-proxy services rule 3", "filter FORWARD policy",
// "ipvs TCP 10.96.0.1:443 rr", or "" for the zero RuleRef.
func (r RuleRef) String() string {
	switch {
	case r == RuleRef{}:
		return ""
	case r.Server != "":
		return "ipvs " + r.Server
	case r.Rule == 0:
		return r.ChainText() + " policy"
	}
	return r.ChainText() + " rule " + strconv.Itoa(r.Rule)
}

// ChainText names the chain with its table: "nat KUBE-SERVICES", "nft ip kube-proxy services".
func (r RuleRef) ChainText() string {
	if r.Backend == BackendNative {
		return "nft " + r.Table + " " + r.Chain
	}
	return r.Table + " " + r.Chain
}

// InChainOf tells whether two rules are of the same chain.
func (r RuleRef) InChainOf(o RuleRef) bool {
	return r.Table == o.Table && r.Backend == o.Backend && r.Chain == o.Chain
}

// OfIPTables tells whether the table is one of iptables, of which a node can have two of the same name.
func (r RuleRef) OfIPTables() bool { return r.Backend == BackendNFT || r.Backend == BackendLegacy }

// Evidence is something that a finding is read from: a rule, or a text that says what was found.
type Evidence struct {
	Where RuleRef `json:"where,omitzero"`
	// Text is the rule as it is written, or cut short; empty for a policy. Without Where it is all that there is:
	// "net/ipv4/ip_forward=0".
	Text string `json:"text,omitempty"`
}

// String returns "nat KUBE-SVC-X rule 3: -A KUBE-SVC-X …", or the text alone where no rule is named.
func (e Evidence) String() string {
	switch {
	case e.Where == RuleRef{}:
		return e.Text
	case e.Text == "":
		return e.Where.String()
	}
	return e.Where.String() + ": " + e.Text
}

// Short is the text without what names the rule's chain once more: iptables begins each rule with "-A CHAIN".
func (e Evidence) Short() string { return strings.TrimPrefix(e.Text, "-A "+e.Where.Chain+" ") }
