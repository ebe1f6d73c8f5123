// SPDX-License-Identifier: Apache-2.0

package random

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// Terms of rules that treat answers and later packets otherwise than first packets.
var (
	onwardMatches = map[bool][]string{ // of nftables: true
		true: {
			"ct state established", "ct state established", "ct state new", "ct state invalid", "ct state untracked",
			"ct state != new", "ct direction reply", "ct direction reply", "ct direction original", "ct status seen-reply",
			"ct status assured", "ct status confirmed", "ct status dnat", "ct status snat", "ct mark 0x5",
			"tcp flags & (syn|ack) == syn|ack", "tcp flags & (syn|ack) == ack", "tcp flags & (syn|ack|psh) == ack",
			"{ip} saddr {dst}", "{ip} saddr {net}", "{ip} daddr {net}", "ct original {ip} daddr {net}",
			"ct original {ip} saddr {net}", "ct reply {ip} saddr {dst}", "ct reply {ip} daddr {own}",
			"meta l4proto {proto} ct original proto-dst {port}", "meta l4proto {proto} ct reply proto-src {port}",
			"{proto} sport {port}", "{proto} dport {sport}-65535", "{proto} sport {port} ct state established",
			"ct direction reply {ip} saddr {dst}", "ct state established ct direction original", "meta mark & 0x5 == 0x5",
			"ct direction reply tcp flags & syn == 0", "ct direction reply meta length > 100",
			"ct direction original meta length > 100", "tcp flags & fin == fin", "ct direction reply tcp flags & psh == psh",
			"ct direction original ct mark 0x5", "ct direction reply ct mark 0x5", "ct direction original", "ct direction reply",
			"{ip} saddr @seen_{ip}", "{ip} daddr @seen_{ip}", "{ip} saddr @seen_{ip} ct direction reply",
		},
		false: {
			"-m conntrack --ctstate ESTABLISHED", "-m conntrack --ctstate ESTABLISHED", "-m conntrack ! --ctstate NEW",
			"-m state --state INVALID", "-m conntrack --ctdir REPLY", "-m conntrack --ctstate ESTABLISHED --ctdir REPLY",
			"-m conntrack --ctstate ESTABLISHED --ctdir ORIGINAL", "-m conntrack --ctstatus SEEN_REPLY",
			"-m conntrack --ctstatus ASSURED", "-m conntrack ! --ctstatus SEEN_REPLY", "-m conntrack --ctstate DNAT",
			"-m conntrack --ctstate SNAT", "-p tcp -m tcp --tcp-flags SYN,ACK ACK,SYN", "-p tcp -m tcp --tcp-flags SYN,ACK ACK",
			"-p tcp -m tcp --tcp-flags SYN,ACK,PSH ACK", "-p tcp -m tcp ! --syn", "-m connmark --mark 0x5", "-s {dst}",
			"-s {net}", "-d {net}", "-m conntrack --ctorigdst {net}", "-m conntrack --ctreplsrc {dst}",
			"-m conntrack --ctrepldst {own}", "-m conntrack --ctorigsrc {net}", "-p {proto#1} -m {proto#1} --sport {port}",
			"-p {proto#1} -m {proto#1} --dport 32768:", "-m conntrack --ctproto {proto} --ctorigdstport {port}",
			"-m conntrack --ctproto {proto} --ctreplsrcport {port}", "-m mark --mark 0x5/0x5",
			"-p tcp -m conntrack --ctdir REPLY -m tcp ! --tcp-flags SYN SYN",
			"-m conntrack --ctdir REPLY -m length --length 100:65535",
			"-m conntrack --ctdir ORIGINAL -m length --length 100:65535", "-p tcp -m tcp --tcp-flags FIN FIN",
			"-p tcp -m conntrack --ctdir REPLY -m tcp --tcp-flags PSH PSH", "-m conntrack --ctdir ORIGINAL",
			"-m conntrack --ctdir ORIGINAL -m connmark --mark 0x5", "-m conntrack --ctdir REPLY -m connmark --mark 0x5",
			"-m set --match-set seen_{ip} src", "-m set --match-set seen_{ip} dst",
			"-m set --match-set seen_{ip} src -m conntrack --ctdir REPLY",
		},
	}
	onwardTargets = map[bool][]term{
		true: {
			{text: "drop", weight: 5},
			{text: "accept"},
			{text: "meta mark set ct mark"},
			{text: "meta mark set 0x5"},
			{text: "ct mark set 0x5", weight: 2},
			{text: "notrack", hooks: "po", weight: 2},
			{text: "ct zone set 5", hooks: "po", weight: 2},
			{text: "ct original zone set 5", hooks: "po"},
			{text: "ct reply zone set 5", hooks: "po"},
			{text: "ct zone set meta mark", hooks: "po"},
			{text: "add @seen_{ip} { {ip} saddr }", weight: 2},
			{text: "add @seen_{ip} { {ip} daddr }", weight: 2},
		},
		false: {
			{text: "-j DROP", weight: 5},
			{text: "-j ACCEPT"},
			{text: "-j CONNMARK --restore-mark", tables: "|mangle|filter|"},
			{text: "-j CONNMARK --set-mark 0x5", tables: "|mangle|filter|", weight: 2},
			{text: "-j MARK --set-mark 0x5"},
			{text: "-p tcp -j REJECT --reject-with tcp-reset", tables: "|filter|", hooks: "ifo"},
			{text: "-j CT --notrack", tables: "|raw|", weight: 2},
			{text: "-j CT --zone 5", tables: "|raw|", weight: 2},
			{text: "-j CT --zone-orig 5", tables: "|raw|", weight: 2},
			{text: "-j CT --zone-reply 5", tables: "|raw|", weight: 2},
			{text: "-j CT --zone mark", tables: "|raw|"},
			{text: "-j SET --add-set seen_{ip} src", weight: 2},
			{text: "-j SET --add-set seen_{ip} dst", weight: 2},
		},
	}
)

// onwardTable has the rules of nftables.
const onwardTable = "onward"

// fills tells whether rules put addresses into sets.
func (rs *ruleSet) fills() bool { return strings.Contains(rs.String(), "seen_") }

// forget empties the sets that rules fill: what a walk knows of them is what they had when they were read.
func (x *exchanger) forget() error {
	if !x.filled {
		return nil
	}
	// Only one of the two is there, and one that no rule is left of may be gone.
	for _, set := range []string{"seen_ip", "seen_ip6"} {
		_, _ = run("flush set inet "+onwardTable+" "+set+"\n", "nft", "-f", "-")
		_, _ = run("", "ipset", "flush", set)
	}
	return nil
}

// onward adds rules of these terms to a rule set.
func (g *generator) onward(rs *ruleSet) {
	native := g.IntN(2) == 0
	mine := &table{
		backend: netfilter.BackendNative, family: "inet", name: onwardTable,
		decls: []string{
			"set seen_ip { type ipv4_addr; flags dynamic; size 65535; }",
			"set seen_ip6 { type ipv6_addr; flags dynamic; size 65535; }",
		},
	}
	if native {
		rs.tables = append(rs.tables, mine)
	} else {
		rs.sets = append(rs.sets, "create seen_ip hash:ip family inet", "create seen_ip6 hash:ip family inet6")
	}
	for range 1 + g.IntN(4) {
		hook := "pifot"[g.IntN(5)]
		priority := pick(g.Rand, priorities)
		name := pick(g.Rand, []string{"raw", "mangle", "filter", "filter"})
		if !strings.ContainsRune(builtinHooks[name], rune(hook)) {
			continue
		}
		v4 := g.IntN(2) == 0
		ch := &chain{hooks: string(hook), depth: 0}
		family := map[bool]string{true: "ip", false: "ip6"}[v4]
		target := g.choose(onwardTargets[native], func(x *term) bool {
			return x.fits(ch, name, family) && (!native || x.hooks != "po" || priority < -200)
		})
		c := &chooser{Rand: g.Rand, v4: v4, other: func(string) string { return family }}
		match := c.fill(pick(g.Rand, onwardMatches[native]))
		if strings.HasPrefix(target.text, "-p") && strings.HasPrefix(match, "-p") {
			match = ""
		}
		rule := strings.Fields(match + " " + c.fill(target.text))
		if native {
			ch.name = fmt.Sprintf("onward%d", len(mine.chains))
			ch.base = fmt.Sprintf("type filter hook %s priority %d; policy accept;", hookNames[hook], priority)
			ch.rules = []string{strings.Join(rule, " ")}
			mine.chains = append(mine.chains, ch)
			continue
		}
		line := protocolFirst([]string{strings.Join(rule, " ")})
		at := slices.IndexFunc(rs.tables, func(t *table) bool {
			return t.name == name && t.family == family && t.backend != netfilter.BackendNative
		})
		if at < 0 {
			at = len(rs.tables)
			t := &table{backend: netfilter.BackendNFT, family: family, name: name}
			for _, h := range []byte(builtinHooks[name]) {
				t.chains = append(t.chains, &chain{name: hookChains[h], policy: "ACCEPT", hooks: string(h)})
			}
			rs.tables = append(rs.tables, t)
		}
		for _, ch := range rs.tables[at].chains {
			if ch.name == hookChains[hook] {
				ch.rules = append([]string{line}, ch.rules...)
			}
		}
	}
}
