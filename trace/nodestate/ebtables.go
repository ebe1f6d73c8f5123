// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"errors"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// ebtablesHooks are where the chains of ebtables' tables are called (ebtable_broute.c, ebtable_filter.c and
// ebtable_nat.c in net/bridge/netfilter, enum nf_br_hook_priorities), by table and chain.
var ebtablesHooks = map[string]netfilter.Base{
	"broute BROUTING": {Hook: netfilter.BridgePrerouting, Priority: beforeAll},
	"nat PREROUTING":  {Hook: netfilter.BridgePrerouting, Priority: -300},
	"filter INPUT":    {Hook: netfilter.BridgeInput, Priority: -200},
	"filter FORWARD":  {Hook: netfilter.BridgeForward, Priority: -200},
	"nat OUTPUT":      {Hook: netfilter.BridgeOutput, Priority: 100},
	"filter OUTPUT":   {Hook: netfilter.BridgeOutput, Priority: 200},
	"nat POSTROUTING": {Hook: netfilter.BridgePostrouting, Priority: 300},
}

// errEbtables says what is expected.
var errEbtables = errors.New("lines of ebtables with a table and a chain were expected (docs/snapshots.md)")

// parseEbtables reads ebtables.txt. Each line has a table, a chain that a hook calls, and a text:
//
//	ebtables filter FORWARD 3 rules policy accept
//
// Lines of the same chain belong together. What the rules do is not followed.
func parseEbtables(data []byte) ([]*netfilter.Table, error) {
	order, found, bad := byPlace(data, errEbtables, ebtablesChain)
	out := make([]*netfilter.Table, 0, len(order))
	for _, chain := range order {
		base := ebtablesHooks[chain]
		base.Policy = netfilter.Accept
		out = append(out, programTable("ebtables", chain, base, anyPacket(anyFrame,
			onOneLine(found[chain]), "rules of ebtables-legacy decide over what passes the bridge")))
	}
	return out, bad
}

// ebtablesChain returns the table and the chain that a line is about, as ebtablesHooks has them.
func ebtablesChain(words []string) (chain string, rest []string, ok bool) {
	if len(words) < 4 || words[0] != "ebtables" {
		return "", nil, false
	}
	chain = words[1] + " " + words[2]
	_, ok = ebtablesHooks[chain]
	return chain, words[3:], ok
}
