// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// The order of rules counts where a packet may match both.
func TestRulesInAnotherOrder(t *testing.T) {
	a, b := netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("10.96.0.2")
	known := map[string]Key{
		"a:80 one": {Dst: a, Proto: 6, DstPort: 80}, "a:80 two": {Dst: a, Proto: 6, DstPort: 80},
		"a:443": {Dst: a, Proto: 6, DstPort: 443}, "a:80 of UDP": {Dst: a, Proto: 17, DstPort: 80},
		"b:80": {Dst: b, Proto: 6, DstPort: 80}, "all:80": {Proto: 6, DstPort: 80}, "all:443": {Proto: 6, DstPort: 443},
		"from b, a:80": {Src: b, Dst: a, Proto: 6, DstPort: 80}, "a": {Dst: a}, "all": {},
		"marks a:80": {Dst: a, Proto: 6, DstPort: 80}, "-m mark --mark 0x1 b:80": {Dst: b, Proto: 6, DstPort: 80},
	}
	for _, tt := range []struct {
		before, after string // of one chain
		backend       Backend
		want          bool // they do the same
	}{
		{"a:80 one; a:443; b:80", "b:80; a:80 one; a:443", BackendLegacy, true},
		{"a:80 one; a:443; b:80", "b:80; a:80 one; a:443", BackendNFT, true},
		{"a:80 one; a:443; b:80", "b:80; a:80 one; a:443", BackendNative, false},
		{"a:80 one; a:80 of UDP", "a:80 of UDP; a:80 one", BackendLegacy, true},
		{"a:80 one; a:80 two", "a:80 two; a:80 one", BackendLegacy, false},
		{"a:80 one; b:80; a:80 two", "b:80; a:80 one; a:80 two", BackendLegacy, true},
		{"a:80 one; b:80; a:80 two", "a:80 two; b:80; a:80 one", BackendLegacy, false},
		{"a:80 one; from b, a:80", "from b, a:80; a:80 one", BackendLegacy, false},
		{"a:80 one; all:443", "all:443; a:80 one", BackendLegacy, true},
		{"all:80; all:443", "all:443; all:80", BackendLegacy, true},
		{"a:80 one; all:80", "all:80; a:80 one", BackendLegacy, false},
		{"a:80 one; b:80; all:80", "b:80; all:80; a:80 one", BackendLegacy, false},
		{"a:80 one; a; b:80", "b:80; a; a:80 one", BackendLegacy, false},
		{"a:80 one; a; b:80", "a; a:80 one; b:80", BackendLegacy, false},
		{"a:80 one; b:80; all", "b:80; a:80 one; all", BackendLegacy, true},
		{"a:80 one; b:80; all", "b:80; all; a:80 one", BackendLegacy, false},
		{"a:80 one; all; all", "all; a:80 one; all", BackendLegacy, false},
		{"marks a:80; b:80", "b:80; marks a:80", BackendLegacy, false},
		{"a:80 one; -m mark --mark 0x1 b:80", "-m mark --mark 0x1 b:80; a:80 one", BackendLegacy, false},
		{"a:80 one; b:80", "a:80 one", BackendLegacy, false},
		{"a:80 one; b:80", "a:80 one; b:80; b:80", BackendLegacy, false},
		{"a:80 one; b:80", "a:80 one; a:443", BackendLegacy, false},
	} {
		prints := func(names string) *Prints {
			chain := &Chain{Name: "c"}
			for i, name := range strings.Split(names, "; ") {
				key, ok := known[name]
				if !ok {
					t.Fatalf("there is no rule %q", name)
				}
				target := "ACCEPT"
				if strings.HasPrefix(name, "marks") {
					target = "MARK"
				}
				chain.Rules = append(chain.Rules, &Rule{Num: i + 1, Text: name, Key: key, Target: target})
			}
			table := &Table{Backend: tt.backend, Name: "nat", Chains: []*Chain{chain}}
			rules := &Ruleset{Tables: []*Table{table}}
			rules.Link()
			return rules.Prints()
		}
		moves, ok := prints(tt.before).Moved(prints(tt.after))
		if got := ok && !slices.Contains(moves.Numbers, Changed); got != tt.want {
			t.Errorf("%s: %s; then %s: the same %t, want %t", tt.backend, tt.before, tt.after, got, tt.want)
		}
	}
}
