// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"net/netip"
	"reflect"
	"testing"
)

// readdress gives the packet another destination, and goes on.
func readdress(a string) op {
	return func(c *Context) Effect { c.Packet.Dst = netip.MustParseAddr(a); return Effect{} }
}

// byTurn goes by what another packet of the direction may not have.
var byTurn = op(func(c *Context) Effect { c.ByTurn = true; return Effect{} })

// keyed are n rules that drop packets to addresses of their own, and behind them one that accepts those to the last
// address: a chain that is looked up by destination.
func keyed(n int, first, last string) []*Rule {
	a := netip.MustParseAddr(first)
	out := make([]*Rule, 0, n+1)
	for range n {
		out = append(out, &Rule{Ops: []Op{dst(a.String()), verdict(Drop)}, Key: Key{Dst: a}})
		a = a.Next()
	}
	a = netip.MustParseAddr(last)
	return append(out, &Rule{Ops: []Op{dst(last), mark(8), verdict(Accept)}, Key: Key{Dst: a}})
}

// What a chain does with a packet in place is what it does with a branch.
func TestStraightChainsDoWhatBranchesDo(t *testing.T) {
	to := func(name string, kind Kind) Op { return &jump{name: name, kind: kind} }
	chain := func(name string, lists ...[]Op) *Chain { return &Chain{Name: name, Rules: rules(lists...)} }
	behind := &Chain{Name: "KEYED", Rules: append(rules([]Op{to("NEW", Jump)}), keyed(20, "10.97.0.1", "10.96.0.9")...)}
	tests := []struct {
		name   string
		policy Kind
		first  []Op
		chains []*Chain
		want   string
		mark   uint32
	}{
		{"nothing matches", Accept, []Op{dst("10.96.0.2"), verdict(Drop)}, nil, "sent 10.96.0.1", 0},
		{
			"the policy drops what returns", Drop,
			[]Op{to("A", Jump)},
			[]*Chain{chain("A", []Op{verdict(Return)}, []Op{mark(1)})},
			"dropped 10.96.0.1 by filter FORWARD policy", 0,
		},
		{"accepted in a call of a call", Drop, []Op{to("A", Jump)}, []*Chain{
			chain("A", []Op{mark(1)}, []Op{to("B", Jump)}, []Op{verdict(Drop)}), chain("B", []Op{mark(2), verdict(Accept)}),
		}, "sent 10.96.0.1", 3},
		{"a call returns, and the next rule marks", Accept, []Op{to("A", Jump)}, []*Chain{
			chain("A", []Op{to("B", Jump)}, []Op{mark(4)}), chain("B", []Op{mark(2)}),
		}, "sent 10.96.0.1", 6},
		{"what returns from a goto leaves the chain, too", Accept, []Op{to("A", Jump)}, []*Chain{
			chain("A", []Op{to("B", Goto)}, []Op{verdict(Drop)}), chain("B", []Op{mark(2)}),
		}, "sent 10.96.0.1", 2},
		{"translated in a call, by its rule", Accept, []Op{to("A", Jump)}, []*Chain{
			chain("A", []Op{byTurn}, []Op{mark(1)}, []Op{dnat("10.1.1.1")}, []Op{verdict(Drop)}),
		}, "sent 10.1.1.1", 1},
		{"a match behind a match that does not hold", Accept, []Op{ifMark(1), mark(2)}, nil, "sent 10.96.0.1", 0},
		{"a rule behind a call is for the new destination", Drop, []Op{to("KEYED", Jump)}, []*Chain{
			behind, chain("NEW", []Op{readdress("10.96.0.9")}),
		}, "sent 10.96.0.9", 8},
		{
			"a call drops", Accept,
			[]Op{to("A", Jump)},
			[]*Chain{chain("A", []Op{mark(1)}, []Op{verdict(Drop)})},
			"dropped 10.96.0.1 by filter A rule 2", 1,
		},
		{
			"chance in a call", Accept,
			[]Op{to("A", Jump)},
			[]*Chain{chain("A", []Op{chance(0.25), verdict(Drop)})},
			"dropped 10.96.0.1 0.25 by filter A rule 1; sent 10.96.0.1 0.75", 0,
		},
		{
			"a chain that calls itself", Accept,
			[]Op{to("A", Jump)},
			[]*Chain{chain("A", []Op{to("A", Jump)})},
			"?not known 10.96.0.1 by filter A rule 1; ?sent 10.96.0.1", 0,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := filter(append([]*Chain{base("FORWARD", Forward, 0, TypeFilter, tt.policy, tt.first)}, tt.chains...)...)
			rs := &Ruleset{Tables: []*Table{f}}
			rs.Link()
			opt := Options{Watch: map[*Chain]bool{f.Chains[len(f.Chains)-1]: true}}
			inPlace, branches := NewWalker(rs, testHost(t), nil), NewWalker(rs, testHost(t), nil, WithMemoAfter(0))
			for range 2 * oftenForked { // and once it is seldom tried
				want := branches.Walk(send(Prerouting, "10.96.0.1"), opt)
				if got := show(want); got != tt.want || want.Outcomes[0].Packet.Mark != tt.mark {
					t.Fatalf("%s, mark %d; want %s, mark %d", got, want.Outcomes[0].Packet.Mark, tt.want, tt.mark)
				}
				if got := inPlace.Walk(send(Prerouting, "10.96.0.1"), opt); !reflect.DeepEqual(got, want) {
					t.Fatalf("in place it is\n%+v, and with branches\n%+v", got, want)
				}
			}
		})
	}
}

// A chain in which packets go several ways is not run twice each time.
func TestForkedChainsAreSeldomTriedInPlace(t *testing.T) {
	runs := 0
	counted := op(func(*Context) Effect { runs++; return Effect{} })
	f := filter(base("FORWARD", Forward, 0, TypeFilter, Accept, []Op{counted, chance(0.5), verdict(Drop)}))
	rs := &Ruleset{Tables: []*Table{f}}
	rs.Link()
	w := NewWalker(rs, testHost(t), nil)
	const walks = 10 * retryForked
	for range walks {
		w.Walk(send(Prerouting, "10.96.0.1"), Options{})
	}
	if more := runs - walks; more < oftenForked || more > oftenForked+walks/retryForked {
		t.Errorf("its first match ran %d times in %d walks", runs, walks)
	}
	if n := f.Chains[0].forked.Load(); n < oftenForked {
		t.Errorf("noted %d times", n)
	}
}
