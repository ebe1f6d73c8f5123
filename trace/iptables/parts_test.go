// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// TestReadInParts: a table that several goroutines read is the one that a single one reads, and so are its errors.
func TestReadInParts(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	random := rand.New(rand.NewPCG(1, 2))
	const chains = 3000
	var rules []string
	for n := range chains {
		for i := range 1 + random.IntN(4) {
			rules = append(rules, fmt.Sprintf(
				`-A C%d -s 10.%d.%d.1/32 -p tcp -m comment --comment "of %d" -m tcp --dport %d -j C%d`,
				n, n>>8, n&255, i, 1+n, (n+1)%chains,
			))
		}
		rules = append(rules, fmt.Sprintf("[1:60] -A C%d -g C%d", n, (n+2)%chains), fmt.Sprintf("-A C%d -j RETURN", n))
	}
	declared := "*filter\n:INPUT ACCEPT [0:0]\n"
	for n := range chains {
		declared += fmt.Sprintf(":C%d - [0:0]\n", n)
	}
	table := func(rules []string) string {
		return declared + strings.Join(rules, "\n") + "\nCOMMIT\n*nat\n:OUTPUT DROP [0:0]\n-A OUTPUT -j ACCEPT\nCOMMIT\n"
	}
	with := func(more ...string) string { // somewhere behind the first part
		at := len(rules)/2 + random.IntN(len(rules)/3)
		return table(append(append(append([]string{}, rules[:at]...), more...), rules[at:]...))
	}
	for name, text := range map[string]string{
		"rules":                  table(rules),
		"with counters":          table(strings.Split("[0:0] "+strings.Join(rules, "\n[0:0] "), "\n")),
		"CRLF":                   strings.ReplaceAll(table(rules), "\n", "\r\n"),
		"a chain again":          with("-A C7 -j ACCEPT", "-A C8 -j DROP", "-A C7 -j DROP"),
		"a quote of two lines":   with("-A C7 -m comment --comment \"one\n\\\"two\" -j ACCEPT"),
		"an open quote":          with(`-A C7 -m comment --comment "one -j ACCEPT`),
		"an empty line":          with("", "-A C7 -j ACCEPT"),
		"a remark":               with("# a remark"),
		"a chain in between":     with(":LATE - [0:0]", "-A LATE -j ACCEPT", "-A C7 -j LATE"),
		"an unknown chain":       with("-A NONE -j ACCEPT"),
		"no rule":                with("what is this"),
		"another family":         with("-A C7 -s fd00::1/128 -j ACCEPT"),
		"no target":              with("-A C7 -j NOWHERE", "-A C7 -j ELSEWHERE"),
		"an unknown match":       with("-A C7 -m strange --odd -j ACCEPT"),
		"a COMMIT in the middle": with("COMMIT", "*raw", ":PREROUTING ACCEPT [0:0]"),
		"counters without end":   with("[1:2 -A C7 -j ACCEPT"),
		"cut off":                strings.TrimSuffix(table(rules), "COMMIT\n"),
	} {
		t.Run(name, func(t *testing.T) {
			read := func(processors int) ([]*netfilter.Table, int, error) {
				p := parser{scope: scope{family: netfilter.IPv4}, backend: netfilter.BackendNFT, wanted: netfilter.BackendNFT}
				runtime.GOMAXPROCS(processors)
				err := p.all(text)
				return p.tables, p.line, err
			}
			want, wantLine, wantErr := read(1)
			got, gotLine, err := read(3)
			if fmt.Sprint(err) != fmt.Sprint(wantErr) || err == nil && gotLine != wantLine {
				t.Fatalf("%v at line %d, want %v at line %d", err, gotLine, wantErr, wantLine)
			}
			if !reflect.DeepEqual(got, want) {
				t.Error("the tables differ")
			}
		})
	}
}
