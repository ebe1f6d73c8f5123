// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"
	"testing"
)

// Every element has a text by which it can be told from the others.
func TestTexts(t *testing.T) {
	const listing = `{"nftables": [
		{"table": {"family": "ip", "name": "t", "handle": 1}},
		{"chain": {"family": "ip", "table": "t", "name": "c", "handle": 2}},
		{"set": {"family": "ip", "table": "t", "name": "nets", "type": "ipv4_addr", "flags": ["interval"], "handle": 3,
			"elem": [{"prefix": {"addr": "10.0.0.0", "len": 8}}, {"range": ["192.0.2.1", "192.0.2.9"]}, "198.51.100.7"]}},
		{"set": {"family": "ip", "table": "t", "name": "many", "type": ["ipv4_addr", "inet_proto", "inet_service"],
			"handle": 4, "elem": [{"concat": ["10.0.0.1", "tcp", 80]}, {"concat": ["10.0.0.1", "udp", 53]}]}},
		{"set": {"family": "ip", "table": "t", "name": "devs", "type": "ifname", "handle": 5, "flags": ["interval"],
			"elem": ["eth0", "cni-cni", "cni*", "veth\\*"]}},
		{"set": {"family": "ip", "table": "t", "name": "marks", "type": "mark", "handle": 6, "elem": [16]}},
		{"set": {"family": "ip", "table": "t", "name": "clients", "type": "ipv4_addr", "flags": ["timeout"], "timeout": 60,
			"handle": 7}},
		{"map": {"family": "ip", "table": "t", "name": "verdicts", "type": "inet_service", "map": "verdict", "handle": 8,
			"elem": [[80, {"goto": {"target": "c"}}], [81, {"drop": null}]]}},
		{"map": {"family": "ip", "table": "t", "name": "to", "type": "inet_service", "map": "ipv4_addr", "handle": 9,
			"elem": [[80, "10.0.0.2"]]}}
	]}`
	want := map[string][]string{
		"nets":     {"10.0.0.0/8", "192.0.2.1-192.0.2.9", "198.51.100.7"},
		"many":     {"10.0.0.1 . tcp . 80", "10.0.0.1 . udp . 53"},
		"devs":     {"eth0", "cni-cni", "cni*", `veth\*`},
		"marks":    {"0x10"},
		"clients":  nil,
		"verdicts": {"80 : goto c", "81 : drop"},
		"to":       {"80 : 10.0.0.2"},
	}
	tables, err := Parse([]byte(listing), func(string, string) bool { return false })
	if err != nil || len(tables) != 1 {
		t.Fatal(tables, err)
	}
	for name, texts := range want {
		s := tables[0].Set(name)
		if s == nil {
			t.Errorf("there is no set %s", name)
			continue
		}
		var got []string
		s.Texts(func(text string) { got = append(got, text) })
		if !slices.Equal(got, texts) || s.Unread() != "" || s.Expires() != (name == "clients") {
			t.Errorf("%s: %q, want %q; expires: %t, unread: %q", name, got, texts, s.Expires(), s.Unread())
		}
	}
}
