// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables"
)

// A reading that takes over what one before has found of anonymous maps has what one without it has, whatever has
// changed meanwhile.
func TestMemory(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "nft") {
		return
	}
	nft := func(text string) { testutil.Run(t, text, "nft", "-f", "-") }
	const table = `table ip k {
		map named { type inet_service : ipv4_addr; elements = { 80 : 10.0.0.9 }; }
		chain a { meta l4proto tcp dnat ip addr . port to numgen random mod 2 map { 0 : 10.0.0.1 . 80, 1 : 10.0.0.2 . 80 }; }
		chain b { meta l4proto tcp dnat ip addr . port to numgen random mod 2 map { 0 : 10.0.0.3 . 80, 1 : 10.0.0.4 . 80 }; }
		chain c { numgen random mod 2 vmap { 0 : goto a, 1 : goto b }; }
		chain base { type nat hook prerouting priority -100; dnat to tcp dport map @named; goto c; }
	}
`
	m := &Memory{}
	for _, step := range []struct {
		name, change string
		known        int // sets of which the elements are not requested
		kept         int // and after that
	}{
		{"nothing is known", table, 0, 2},
		{"nothing has changed", "", 2, 2},
		{"a map is another one", "flush chain ip k a\nadd rule ip k a meta l4proto tcp dnat ip addr . port to " +
			"numgen random mod 2 map { 0 : 10.0.0.1 . 8080, 1 : 10.0.0.7 . 8080 }\n", 1, 2},
		{"a rule is gone", "flush chain ip k b\n", 1, 1},
		{"a named map has changed", "add element ip k named { 81 : 10.0.0.8 }\n", 1, 1},
		{"a chain has another name", "rename chain ip k b other\n", 1, 1},
		{"the table is another one", "delete table ip k\n" + strings.ReplaceAll(table, "10.0.0.2", "10.0.0.6"), 0, 2},
		{"it was flushed", "flush ruleset\n", 0, 0},
		{"it is back", table, 0, 2},
	} {
		if step.change != "" {
			nft(step.change)
		}
		before := m.sets
		with, err := ruleset(dial(t), nil, m)
		if err != nil {
			t.Fatal(err)
		}
		known := 0
		for name := range m.sets {
			if _, ok := before[name]; ok {
				known++
			}
		}
		if known != step.known || len(m.sets) != step.kept {
			t.Errorf("%s: %d of %d sets were known, want %d of %d", step.name, known, len(m.sets), step.known, step.kept)
		}
		got, want := texts(t, with), texts(t, askKernel(t, nil))
		if len(want) == 0 != (step.kept == 0) || !slices.Equal(got, want) {
			t.Errorf("%s: the readings differ:\n%q\n%q", step.name, got, want)
		}
	}
}

// texts are those of all rules and sets of a dump.
func texts(t *testing.T, dump []byte) (out []string) {
	t.Helper()
	tables, err := nftables.Parse(dump, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		for _, c := range table.Chains {
			for _, r := range c.Rules {
				out = append(out, table.Name+" "+c.Name+" "+r.Text)
			}
		}
		for _, s := range table.Sets {
			out = append(out, table.Name+" "+s.Name())
			s.Texts(func(text string) { out = append(out, text) })
		}
	}
	return out
}
