// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// A walk of any rules ends within bounded time and memory.
func TestBudget(t *testing.T) {
	count := op(func(c *Context) Effect { c.Packet.Mark++; return Effect{} })
	flip := func(bit int) op {
		return func(c *Context) Effect { c.Packet.Mark ^= 1 << bit; return Effect{} }
	}
	many := func(n int, of func(i int) []Op) *Table {
		c := base("PREROUTING", Prerouting, -100, TypeNAT, Accept)
		for i := range n {
			c.Rules = append(c.Rules, &Rule{Num: i + 1, Text: fmt.Sprint("rule ", i+1), Ops: of(i)})
		}
		return nat(c)
	}
	wide := op(func(c *Context) Effect {
		e := Effect{Kind: Split}
		for i := range 4096 {
			p := *c.Packet
			p.CTMark = p.CTMark*4096 + uint32(i)
			e.Alts = append(e.Alts, Alt{P: 1. / 4096, Packet: p})
		}
		return e
	})
	tests := []struct {
		name  string
		table *Table
		full  bool // with the limits that walks have; else with lower ones
		ended bool // Result.Ended says why; else the walk is complete
	}{
		{"chains that lead twice to the next, and count", tower(45, Jump, []Op{count}, []Op{verdict(Next)}), true, true},
		{"certain branches that multiply", many(40, func(i int) []Op {
			return []Op{chance(0.5), flip(i % 32)}
		}), false, true},
		{"uncertain branches that multiply", many(40, func(i int) []Op {
			return []Op{unknown("x"), flip(i % 32)}
		}), false, false},
		{
			"certain branches that leave a chain", tower(40, Jump, []Op{chance(0.5), count}, []Op{chance(0.5), flip(1)}), false,
			true,
		},
		{"draws among thousands, one after the other", many(3, func(int) []Op { return []Op{wide} }), false, true},
		{"a chain of very many rules", many(30_000, func(int) []Op {
			return []Op{chance(1e-9), verdict(Drop)}
		}), false, true},
		{"a chain of very many rules that do not match", many(30_000, func(int) []Op {
			return []Op{dst("10.0.0.1"), verdict(Drop)}
		}), false, false},
		{"very many rules for many branches", many(30_000, func(i int) []Op {
			if i == 0 {
				return []Op{wide}
			}
			return []Op{dst("10.0.0.1"), verdict(Drop)}
		}), false, true},
	}
	for _, tt := range tests {
		for _, steps := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, steps %v", tt.name, steps), func(t *testing.T) {
				rs := &Ruleset{Tables: []*Table{tt.table}}
				rs.Link()
				w := NewWalker(rs, testHost(t), nil)
				if !tt.full {
					w.limits.work, w.limits.uncertain, w.limits.branches, w.limits.steps = 1<<18, 1<<16, 1<<12, 1<<12
				}
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				start := testutil.ProcessorTime()
				res := w.Walk(send(Prerouting, "10.96.0.1"), Options{Steps: steps})
				d := testutil.ProcessorTime() - start
				runtime.ReadMemStats(&after)
				t.Logf("%v, work %d, %d outcomes, %d steps", d, w.ctx.Work, len(res.Outcomes), len(res.Steps))
				if d > 20*time.Second {
					t.Errorf("it took %v of the processor's time", d)
				}
				if res.Ended == "" == tt.ended {
					t.Errorf("ended: %q", res.Ended)
				}
				if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 300<<20 {
					t.Errorf("it took %d MB", grown>>20)
				}
				if res.Ended == "" {
					return
				}
				lost := false
				for i := range res.Outcomes {
					o := &res.Outcomes[i]
					lost = lost || o.End == Lost && !o.Certain && o.Why == res.Ended && strings.HasPrefix(o.Where.String(), "nat ")
				}
				if !lost {
					t.Errorf("no outcome says where it ended: %v", res.Outcomes[0])
				}
				if u := res.Uncertain[len(res.Uncertain)-1]; u.Why != res.Ended || u.Where.Chain == nil {
					t.Errorf("%+v", u)
				}
			})
		}
	}
}
