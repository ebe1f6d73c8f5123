// SPDX-License-Identifier: Apache-2.0

package random

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/iptables"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// alike tells whether two walks of the same packet came to the same: outcomes, what is not known, and steps, in their
// order. The shares may differ by rounding.
func alike(a, b *netfilter.Result) bool {
	near := func(p, q float64) bool { return math.Abs(p-q) <= 1e-9*max(1, p) }
	return a.Both == b.Both && a.Ended == b.Ended && slices.Equal(a.Uncertain, b.Uncertain) &&
		slices.EqualFunc(a.Outcomes, b.Outcomes, func(x, y netfilter.Outcome) bool {
			p := x.P
			x.P = y.P
			return reflect.DeepEqual(x, y) && near(p, y.P)
		}) &&
		slices.EqualFunc(a.Steps, b.Steps, func(x, y netfilter.Step) bool {
			p := x.P
			x.P = y.P
			return x == y && near(p, y.P)
		})
}

// Whether a walk remembers what chains do, and from when on, changes nothing: not for the rule sets that are held
// against the kernel, either. It needs no kernel: the rules are read as they were written.
func TestRandomRuleSetsWithMemo(t *testing.T) {
	compared, steps := 0, 0
	for seed := range uint64(300) {
		g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), vocabulary: everything()}
		set := g.ruleSet()
		rs := &netfilter.Ruleset{}
		for _, s := range saves {
			text := set.save(s.backend, s.family)
			if text == "" {
				continue
			}
			tables, err := iptables.Parse([]byte(text), s.ip, s.backend)
			if err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, text)
			}
			rs.Tables = append(rs.Tables, tables...)
		}
		rs.Link()
		plain := netfilter.NewWalker(rs, &host.Network{}, nil, netfilter.WithMemoAfter(math.MaxInt))
		remembers := netfilter.NewWalker(rs, &host.Network{}, nil, netfilter.WithMemoAfter(0))
		for range 8 {
			p := g.packet()
			want := plain.Walk(p.start(), netfilter.Options{Steps: true})
			got := remembers.Walk(p.start(), netfilter.Options{Steps: true})
			if !alike(&want, &got) {
				t.Fatalf("seed %d: %v\n%v\nwith    %+v\nwithout %+v", seed, p, set, got, want)
			}
			compared++
			steps += len(got.Steps)
		}
	}
	t.Logf("%d walks, %d steps", compared, steps)
	if steps < compared {
		t.Error("the packets meet too few rules")
	}
}
