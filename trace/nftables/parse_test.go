// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// lines writes base chains as "family table chain hook priority type policy [unread]".
func lines(tables []*netfilter.Table) []string {
	var out []string
	for _, t := range tables {
		for _, c := range t.Chains {
			if c.Base == nil {
				continue
			}
			s := fmt.Sprintf("%s %s %s %s %d %d", t.Family, t.Name, c.Name, c.Base.Hook, c.Base.Priority, c.Base.Type)
			if c.Base.Policy == netfilter.Drop {
				s += " drop"
			}
			if c.Unread != "" {
				s += " unread"
			}
			out = append(out, s)
		}
	}
	return out
}

func TestBaseChains(t *testing.T) {
	// Taken from nft 1.0.6: firewalld.json has a firewalld table, tables of families that do not count, a table of which
	// nft garbles the flags, a base chain of a person's own in the table filter of iptables-nft, and iptables-nft's table
	// nat.
	for _, c := range []struct {
		file    string
		managed func(family, table string) bool
		want    []string
	}{
		{"firewalld.json", IPTables, []string{
			"IPv4+IPv6 firewalld mangle_PREROUTING PREROUTING -140 0",
			"IPv4+IPv6 firewalld filter_INPUT INPUT 10 0",
			"IPv4+IPv6 firewalld nat_POST POSTROUTING 110 1",
			"IPv4+IPv6 firewalld ing INGRESS 0 0",
			"IPv4+IPv6 firewalld dropall FORWARD -5 0 drop",
			"IPv4+IPv6 firewalld route_out OUTPUT -150 2",
			"no family netdev nd i INGRESS 0 0 drop",
			"no family bridge b i BRIDGE INPUT 0 0 drop",
			"ARP arp a i INPUT 0 0 drop",
			"IPv4 t i INPUT 0 0 drop unread",
			"IPv4 filter input INPUT 0 0 drop",
		}},
		{"real-2node-iptables.json", IPTables, nil},
		{"iptables-legacy.json", IPTables, nil},
		{"real-2node-nftables.json", IPTables, []string{
			"IPv4 kube-proxy filter-prerouting-pre-dnat PREROUTING -110 0",
		}},
		{"nftables.json", nil, []string{
			"IPv4 kube-proxy filter-prerouting-pre-dnat PREROUTING -110 0",
			"IPv4 kube-proxy filter-output-pre-dnat OUTPUT -110 0",
			"IPv4 kube-proxy filter-input INPUT 0 0",
		}},
	} {
		tables, err := Parse(readFile(t, c.file), c.managed)
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		got := lines(tables)
		if strings.Contains(c.file, "nftables") && len(got) > len(c.want) {
			if len(got) != 16 {
				t.Errorf("%s: %d chains, where kube-proxy makes 8 for each family", c.file, len(got))
			}
			got = got[:len(c.want)]
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\ngot  %s\nwant %s", c.file, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
		for _, table := range tables {
			if table.Backend != netfilter.BackendNative {
				t.Errorf("%s: table %s has the backend %s", c.file, table.Name, table.Backend)
			}
		}
	}
}

// Of a table that iptables-save shows only what it leaves out is read, with the chains that it jumps to.
func TestManagedTable(t *testing.T) {
	const text = `{"nftables":[{"table":{"family":"ip","name":"filter"}},
		{"chain":{"family":"ip","table":"filter","name":"INPUT","type":"filter","hook":"input","prio":0,"policy":"drop"}},
		{"chain":{"family":"ip","table":"filter","name":"mine","type":"filter","hook":"input","prio":-5,"policy":"accept"}},
		{"chain":{"family":"ip","table":"filter","name":"a"}},{"chain":{"family":"ip","table":"filter","name":"b"}},
		{"rule":{"family":"ip","table":"filter","chain":"INPUT","expr":[{"jump":{"target":"b"}}]}},
		{"rule":{"family":"ip","table":"filter","chain":"mine","expr":[{"jump":{"target":"a"}}]}},
		{"rule":{"family":"ip","table":"filter","chain":"a","expr":[{"drop":null}]}}]}`
	for managed, want := range map[bool][]string{true: {"mine", "a"}, false: {"INPUT", "mine", "a", "b"}} {
		tables, err := Parse([]byte(text), func(string, string) bool { return managed })
		if err != nil || len(tables) != 1 {
			t.Fatal(tables, err)
		}
		var got []string
		for _, c := range tables[0].Chains {
			got = append(got, c.Name)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("managed %v: chains %v, want %v", managed, got, want)
		}
	}
}

func TestDormant(t *testing.T) {
	for flags, want := range map[string]int{
		`"dormant"`: 0, `["owner","dormant"]`: 0, `["owner","persist"]`: 1, `"owner"`: 1,
	} {
		text := `{"nftables":[
			{"chain":{"family":"ip","table":"t","name":"c","type":"filter","hook":"input","prio":0,"policy":"drop"}},
			{"table":{"family":"ip","name":"t","flags":` + flags + `}}]}`
		tables, err := Parse([]byte(text), nil)
		if err != nil || len(tables) != want || want == 1 && tables[0].Chains[0].Unread != "" {
			t.Errorf("flags %s: %v, %v", flags, lines(tables), err)
		}
	}
}

func TestErrors(t *testing.T) {
	good := readFile(t, "firewalld.json")
	const chain = `{"nftables":[{"table":{"family":"ip","name":"t"}},{"chain":{"family":"ip","table":"t","name":"c",%s}}]}`
	for name, c := range map[string]struct{ text, want string }{
		"empty":          {" \n", "it is empty"},
		"text":           {"table ip filter {\n", "not JSON"},
		"cut off":        {string(good[:900]), "cut off at byte 900"},
		"cut off at end": {strings.TrimSpace(string(good))[:len(strings.TrimSpace(string(good)))-1], "cut off"},
		"other JSON":     {`{"kind":"List","items":[]}`, `no "nftables"`},
		"a list":         {`[]`, "[ where { was due"},
		"no list":        {`{"nftables":5}`, "5 where [ was due"},
		"wrong type":     {`{"nftables":[{"chain":{"family":5}}]}`, "number"},
		"trailing":       {`{"nftables":[]} {}`, "after the ruleset"},
		"no table": {
			`{"nftables":[{"chain":{"family":"ip","table":"t","name":"c","hook":"input","prio":0,"type":"filter"}}]}`,
			"in no table",
		},
		"chain twice": {
			`{"nftables":[{"table":{"family":"ip","name":"t"}},{"chain":{"family":"ip","table":"t","name":"c"}},
				{"chain":{"family":"ip","table":"t","name":"c"}}]}`, "chain ip t c is there twice",
		},
		"no priority": {fmt.Sprintf(chain, `"hook":"input","type":"filter"`), "no priority"},
		"policy":      {fmt.Sprintf(chain, `"hook":"input","type":"filter","prio":0,"policy":"maybe"`), `"maybe"`},
		"type":        {fmt.Sprintf(chain, `"hook":"input","type":"odd","prio":0`), `"odd"`},
	} {
		tables, err := Parse([]byte(c.text), nil)
		if err == nil || tables != nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "nft-ruleset.json") {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"firewalld.json", "iptables-legacy.json", "everything.json"} {
		f.Add(readFile(f, name))
	}
	testutil.AddHostile(f, `{"nftables":[{"set":{"family":"ip","table":"t","name":"s","type":"ipv4_addr","elem":["1.1.1.1"]}}]}`)
	f.Fuzz(func(t *testing.T, data []byte) {
		testutil.Promptly(t, func() {
			tables, err := Parse(data, IPTables)
			if err != nil && (tables != nil || !strings.HasPrefix(err.Error(), "nft-ruleset.json: ")) {
				t.Errorf("error %v with %d tables", err, len(tables))
			}
			rs := &netfilter.Ruleset{Tables: tables}
			rs.Link()
			w := netfilter.NewWalker(rs, emptyHost(t), nil)
			for _, s := range starts {
				res := w.Walk(s, netfilter.Options{Steps: true})
				sum := 0.0
				for _, o := range res.Outcomes {
					if o.Certain {
						sum += o.P
					}
				}
				if sum > 1+1e-9 {
					t.Errorf("outcomes of %v add up to %v", s, sum)
				}
			}
		})
	})
}

func BenchmarkParse(b *testing.B) {
	text := strings.TrimSuffix(strings.TrimSpace(string(readFile(b, "real-2node-iptables.json"))), "]}")
	_, rule, _ := strings.Cut(text, `{"rule"`)
	rule = `{"rule"` + rule
	all := text + strings.Repeat(", "+rule, 26<<20/len(rule)) + "]}"
	b.SetBytes(int64(len(all)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse([]byte(all), IPTables); err != nil {
			b.Fatal(err)
		}
	}
}
