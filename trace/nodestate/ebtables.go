// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

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
	found := map[string][]string{}
	var order []string
	var bad error
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		key := ""
		if len(words) > 3 && words[0] == "ebtables" {
			key = words[1] + " " + words[2]
		}
		if _, known := ebtablesHooks[key]; !known || !printable(line) {
			bad = cmp.Or(bad, fmt.Errorf("it has the line %q: %w", short(strings.TrimSpace(line)), errEbtables))
			continue
		}
		if found[key] == nil {
			order = append(order, key)
		}
		found[key] = append(found[key], strings.Join(words[3:], " "))
	}
	out := make([]*netfilter.Table, 0, len(order))
	for _, key := range order {
		base := ebtablesHooks[key]
		base.Policy = netfilter.Accept
		out = append(out, programTable("ebtables", key, base, anyPacket(netfilter.Inet,
			short(strings.Join(found[key], "; ")), "rules of ebtables-legacy decide over what passes the bridge")))
	}
	return out, bad
}
