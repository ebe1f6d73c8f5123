// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// neverRemember is a memoAfter that no walk comes to.
const neverRemember = math.MaxInt

// tower is a table of n chains each of which jumps twice to the next one, by jump or goto, between the rules before and
// behind; the last one has the rules leaf.
func tower(n int, kind Kind, before, leaf []Op) *Table {
	t := nat(base("PREROUTING", Prerouting, -100, TypeNAT, Accept, []Op{&jump{name: "C1", kind: Jump}}))
	for i := 1; i < n; i++ {
		next := fmt.Sprintf("C%d", i+1)
		lists := [][]Op{{&jump{name: next, kind: Jump}}, {&jump{name: next, kind: kind}}}
		if before != nil {
			lists = slices.Insert(lists, 1, before)
		}
		t.Chains = append(t.Chains, &Chain{Name: fmt.Sprintf("C%d", i), Rules: rules(lists...)})
	}
	t.Chains = append(t.Chains, &Chain{Name: fmt.Sprintf("C%d", n), Rules: rules(leaf)})
	return t
}

func TestChainsThatJumpTwiceToTheNext(t *testing.T) {
	const n = 45
	tests := []struct {
		name         string
		kind         Kind
		before, leaf []Op
		want         string
		steps        int
		last         float64 // share of the last step
	}{
		{
			name: "empty leaves", kind: Jump, leaf: []Op{verdict(Next)},
			want: "sent 10.96.0.1", steps: 1 + 2*(n-1), last: 1 << (n - 2),
		},
		{
			name: "gotos", kind: Goto, leaf: []Op{verdict(Next)},
			want: "sent 10.96.0.1", steps: 1 + 2*(n-1), last: 1 << (n - 2),
		},
		{
			name: "marks in the leaves", kind: Jump, leaf: []Op{mark(4)},
			want: "sent 10.96.0.1", steps: 2 + 2*(n-1), last: 1 << (n - 2),
		},
		{
			name: "translations in the leaves", kind: Jump, leaf: []Op{dnat("10.1.1.1")},
			want: "sent 10.1.1.1", steps: n + 1, last: 1,
		},
		{
			name: "translations that chance decides", kind: Jump, leaf: []Op{chance(1. / 3), dnat("10.1.1.1")},
			want: "sent 10.1.1.1; sent 10.96.0.1 0", steps: 2 + 2*(n-1),
		},
		{
			name: "a return that chance decides on the path", kind: Jump, leaf: []Op{verdict(Next)},
			before: []Op{chance(0.5), verdict(Return)}, want: "sent 10.96.0.1", steps: 1 + 3*(n-1),
		},
		{
			name: "what is not known in the leaves", kind: Jump, leaf: []Op{unknown("x"), dnat("10.1.1.1")},
			want: "?sent 10.1.1.1; ?sent 10.96.0.1", steps: 2 + 2*(n-1),
		},
		{
			name: "what is not known and does not matter", kind: Jump, leaf: []Op{unknown("x"), verdict(Return)},
			want: "sent 10.96.0.1", steps: 2 + 2*(n-1),
		},
		{
			name: "an opaque target in the leaves", kind: Jump, leaf: []Op{verdict(Opaque)},
			want: "?not known 10.96.0.1 by nat C45 rule 1; ?sent 10.96.0.1", steps: 2 + 2*(n-1),
		},
	}
	for _, tt := range tests {
		for _, steps := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, steps %v", tt.name, steps), func(t *testing.T) {
				rs := &Ruleset{Tables: []*Table{tower(n, tt.kind, tt.before, tt.leaf)}}
				rs.Link()
				w := NewWalker(rs, testHost(t), nil)
				var res Result
				testutil.Promptly(t, func() { res = w.Walk(send(Prerouting, "10.96.0.1"), Options{Steps: steps}) })
				if got := strings.Join(slices.Compact(strings.Split(show(res), "; ")), "; "); got != tt.want {
					t.Errorf("got  %s\nwant %s", got, tt.want)
				}
				if res.Ended != "" {
					t.Error(res.Ended)
				}
				if !steps {
					return
				}
				if len(res.Steps) != tt.steps {
					t.Errorf("%d steps, want %d", len(res.Steps), tt.steps)
				}
				at := slices.IndexFunc(res.Steps, func(s Step) bool {
					return s.Ref.Chain.Name == "C44" && s.Ref.Rule.Num == 1
				})
				if tt.last != 0 && math.Abs(res.Steps[at].P/tt.last-1) > 1e-9 {
					t.Errorf("share of the last step is %v, want %v", res.Steps[at].P, tt.last)
				}
			})
		}
	}
}

func TestLoops(t *testing.T) {
	to := func(name string, kind Kind) []Op { return []Op{&jump{name: name, kind: kind}} }
	a := &Chain{Name: "A", Rules: rules([]Op{mark(2)}, to("B", Jump), to("A", Jump), to("B", Goto))}
	b := &Chain{Name: "B", Rules: rules(to("A", Jump), to("A", Goto))}
	pre := base("PREROUTING", Prerouting, -100, TypeNAT, Accept, to("A", Jump))
	rs := &Ruleset{Tables: []*Table{nat(pre, a, b)}}
	rs.Link()
	var res Result
	testutil.Promptly(t, func() {
		res = NewWalker(rs, testHost(t), nil).Walk(send(Prerouting, "10.96.0.1"), Options{Steps: true})
	})
	if len(res.Outcomes) < 2 || slices.ContainsFunc(res.Outcomes, func(o Outcome) bool { return o.Certain }) {
		t.Errorf("%s", show(res))
	}
}

// randomRules makes a ruleset of chains that call each other at random, loops included.
func randomRules(r *rand.Rand) *Ruleset {
	const n = 6
	matches := []func() Op{
		func() Op { return chance([]float64{0.25, 0.5, 1. / 3}[r.IntN(3)]) },
		func() Op { return unknown("m" + fmt.Sprint(r.IntN(3))) },
		func() Op { return ifMark(1 << r.IntN(3)) },
		func() Op { return dst("10.96.0.1") },
	}
	split := func() Op {
		return op(func(c *Context) Effect {
			one, two := *c.Packet, *c.Packet
			one.Mark ^= 1
			alts := []Alt{{P: 0.25, Packet: one}, {P: 0.75, Packet: two, Effect: Effect{Kind: Return}}}
			return Effect{Kind: Split, Alts: alts}
		})
	}
	remember := func() Op {
		return op(func(c *Context) Effect {
			if !inList(c.Packet.Recent, "l") {
				c.Packet.Recent += "l "
			}
			return Effect{}
		})
	}
	call := func(from int) Op {
		to := r.IntN(n)
		if r.IntN(6) > 0 {
			to = from + 1 + r.IntN(2) // a chain beyond the last is not in the table
		}
		return &jump{name: fmt.Sprintf("C%d", to), kind: []Kind{Jump, Jump, Goto}[r.IntN(3)]}
	}
	targets := []func(from int) Op{
		call, call, call, call,
		func(int) Op { return mark(1 << r.IntN(3)) },
		func(int) Op { return verdict([]Kind{Accept, Return, Drop, Reject, Opaque, Queue, Stolen}[r.IntN(7)]) },
		func(int) Op { return dnat(fmt.Sprintf("10.1.1.%d", r.IntN(3))) },
		func(int) Op { return split() },
		func(int) Op { return remember() },
		func(int) Op { return op(masquerade) },
	}
	list := func(from int) (lists [][]Op) {
		for range 1 + r.IntN(4) {
			var ops []Op
			for range r.IntN(2) {
				ops = append(ops, matches[r.IntN(len(matches))]())
			}
			lists = append(lists, append(ops, targets[r.IntN(len(targets))](from)))
		}
		return lists
	}
	t := nat(
		base("PREROUTING", Prerouting, -100, TypeNAT, Accept, list(-1)...),
		base("POSTROUTING", Postrouting, 100, TypeNAT, Accept, list(-1)...),
	)
	f := filter(base("FORWARD", Forward, 0, TypeFilter, Drop, append(list(-1), []Op{verdict(Accept)})...))
	for i := range n {
		t.Chains = append(t.Chains, &Chain{Name: fmt.Sprintf("C%d", i), Rules: rules(list(i)...)})
		f.Chains = append(f.Chains, &Chain{Name: fmt.Sprintf("C%d", i), Rules: rules(list(i)...)})
	}
	return &Ruleset{Tables: []*Table{t, f}}
}

// The memo must not change a result: outcomes, shares, what is uncertain, and steps, in their order, are those of a
// walk without it.
func TestMemoChangesNothing(t *testing.T) {
	testutil.Long(t)
	n, uses, compared := testHost(t), 0, 0
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 1))
		rs := randomRules(r)
		rs.Link()
		for _, steps := range []bool{true, false} {
			plain := NewWalker(rs, n, nil, WithMemoAfter(neverRemember))
			remembers := NewWalker(rs, n, nil, WithMemoAfter(0))
			plain.limits.work, plain.limits.uncertain = 1<<15, 1<<15
			want := plain.Walk(send(Prerouting, "10.96.0.1"), Options{Steps: steps})
			if plain.gaveUp || plain.budget != "" {
				continue // with the memo it gives up at another place
			}
			got := remembers.Walk(send(Prerouting, "10.96.0.1"), Options{Steps: steps})
			uses += len(remembers.memo.by)
			compared++
			if !sameResult(&want, &got) {
				t.Fatalf("seed %d:\nwith    %s, %d uncertain, %d steps\nwithout %s, %d uncertain, %d steps",
					seed, show(got), len(got.Uncertain), len(got.Steps), show(want), len(want.Uncertain), len(want.Steps))
			}
		}
	}
	t.Logf("%d compared, %d visits remembered", compared, uses)
	if compared < 1000 || uses < 1000 {
		t.Error("too few")
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a)) }

func sameResult(a, b *Result) bool {
	return a.Both == b.Both && a.Ended == b.Ended && slices.Equal(a.Uncertain, b.Uncertain) &&
		slices.EqualFunc(a.Outcomes, b.Outcomes, func(x, y Outcome) bool {
			p := x.P
			x.P = y.P
			return reflect.DeepEqual(x, y) && near(p, y.P)
		}) &&
		slices.EqualFunc(a.Steps, b.Steps, func(x, y Step) bool {
			p := x.P
			x.P = y.P
			return x == y && near(p, y.P)
		})
}

// A memo that is full costs time, not memory or the answer.
func TestMemoIsBounded(t *testing.T) {
	tb := tower(20, Jump, []Op{op(func(c *Context) Effect { c.Packet.Mark++; return Effect{} })}, []Op{verdict(Next)})
	rs := &Ruleset{Tables: []*Table{tb}}
	rs.Link()
	w := NewWalker(rs, testHost(t), nil)
	res := w.Walk(send(Prerouting, "10.96.0.1"), Options{Steps: true})
	if len(w.memo.by) > maxMemo || w.memo.size > maxMemo || len(res.Outcomes) == 0 {
		t.Errorf("%d visits, size %d, %s", len(w.memo.by), w.memo.size, show(res))
	}
	w.Walk(Start{Hook: Prerouting, Packet: Packet{Family: IPv6, Dst: netip.MustParseAddr("::2")}}, Options{})
	if w.memo.by != nil {
		t.Error("a walk keeps the memo of the one before")
	}
}
