// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

// chainOf is struct ebt_entries as the kernel answers it, with rules of no further content.
func chainOf(name string, policy int32, rules int) []byte {
	out := make([]byte, ebtChainHead, ebtChainHead+rules*(ebtRuleHead+16))
	copy(out[4:36], name)
	binary.NativeEndian.PutUint32(out[40:], uint32(policy))
	binary.NativeEndian.PutUint32(out[44:], uint32(rules))
	for range rules {
		rule := make([]byte, ebtRuleHead+16)
		rule[0] = 1 // EBT_ENTRY_OR_ENTRIES
		binary.NativeEndian.PutUint32(rule[ebtRuleNext:], uint32(len(rule)))
		out = append(out, rule...)
	}
	return out
}

// Chains that hooks call are listed where they do something; what is no table is refused.
func TestChainsOfEbtables(t *testing.T) {
	data := bytes.Join([][]byte{
		chainOf("INPUT", -1, 0), chainOf("FORWARD", -1, 2), chainOf("OUTPUT", -2, 0), chainOf("mine", -1, 3),
	}, nil)
	var out bytes.Buffer
	if err := ebtChains(&out, "filter", data); err != nil {
		t.Fatal(err)
	}
	const want = "ebtables filter FORWARD 2 rules policy accept\nebtables filter OUTPUT 0 rules policy drop\n"
	if out.String() != want {
		t.Errorf("got %q", out.String())
	}
	for cut := 1; cut < len(data); cut++ {
		if err := ebtChains(&out, "filter", data[:cut]); err != nil && !errors.Is(err, errEbtables) {
			t.Fatal(err)
		}
	}
	rule := chainOf("FORWARD", -1, 1)
	binary.NativeEndian.PutUint32(rule[ebtChainHead+ebtRuleNext:], 0)
	if err := ebtChains(&out, "filter", rule); !errors.Is(err, errEbtables) {
		t.Errorf("a rule that leads nowhere: %v", err)
	}
}
