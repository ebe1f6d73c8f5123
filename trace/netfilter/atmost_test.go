// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"math"
	"testing"
)

// A rule of a share of 1/2 that a packet comes to twice has a share of 1 in all, but a quarter of the packets never
// meet it. Packets that come to it on several branches of one call are not counted twice.
func TestShareOfARuleThatIsMetTwice(t *testing.T) {
	to := func(name string) []Op { return []Op{&jump{name: name, kind: Jump}} }
	half := &Chain{Name: "HALF", Rules: rules([]Op{chance(0.5), &jump{name: "TO", kind: Jump}})}
	always := &Chain{Name: "ALWAYS", Rules: rules(to("TO"))}
	empty := &Chain{Name: "TO", Rules: rules([]Op{verdict(Return)})}
	for _, c := range []struct {
		name   string
		rules  [][]Op
		chain  string // whose first rule is asked
		p      float64
		atMost bool
	}{
		{"chance, called twice", [][]Op{to("HALF"), to("HALF")}, "HALF", 1, true},
		{"chance, called once", [][]Op{to("HALF")}, "HALF", 0.5, false},
		{"certain, called twice", [][]Op{to("ALWAYS"), to("ALWAYS")}, "ALWAYS", 2, true},
		{"certain, called once", [][]Op{to("ALWAYS")}, "ALWAYS", 1, false},
		{
			"certain, called once by each branch",
			[][]Op{{chance(0.25), mark(1)}, {chance(0.5), mark(2)}, to("ALWAYS")},
			"ALWAYS", 1, false,
		},
		{"each called by chance", [][]Op{append([]Op{chance(0.5)}, to("ALWAYS")...), to("HALF")}, "TO", 1, true},
		{"either not known", [][]Op{append([]Op{unknown("x")}, to("ALWAYS")...)}, "ALWAYS", 1, true},
		{"behind what does not matter", [][]Op{{unknown("x"), verdict(Next)}, to("ALWAYS")}, "ALWAYS", 1, false},
	} {
		for _, after := range []int{0, neverRemember} {
			pre := base("PREROUTING", Prerouting, -150, TypeFilter, Accept, c.rules...)
			rs := &Ruleset{Tables: []*Table{filter(pre, half, always, empty)}}
			rs.Link()
			res := NewWalker(rs, testHost(t), nil, WithMemoAfter(after)).
				Walk(send(Prerouting, "10.96.0.1"), Options{Steps: true})
			found := false
			for _, s := range res.Steps {
				if s.Ref.Chain.Name != c.chain || s.Ref.Rule.Num != 1 {
					continue
				}
				found = true
				if math.Abs(s.P-c.p) > 1e-9 || s.AtMost != c.atMost {
					t.Errorf("%s: %s: share %v, at most %v; want %v, %v", c.name, s.Ref, s.P, s.AtMost, c.p, c.atMost)
				}
			}
			if !found {
				t.Errorf("%s: no step of %s: %+v", c.name, c.chain, res.Steps)
			}
		}
	}
}
