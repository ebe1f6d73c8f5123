// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

func emptyHost(t testing.TB) *host.Network {
	t.Helper()
	n, errs := host.Parse(host.Files{})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return n
}

// smallHost has eth0 with 192.0.2.1 and a default route by it.
func smallHost(t testing.TB) *host.Network {
	t.Helper()
	n, errs := host.Parse(host.Files{
		Addr: []byte(`[{"ifindex":1,"ifname":"lo","flags":["LOOPBACK","UP","LOWER_UP"],
			"addr_info":[{"family":"inet","local":"127.0.0.1","prefixlen":8,"scope":"host"}]},
			{"ifindex":2,"ifname":"eth0","flags":["UP","LOWER_UP"],
			"addr_info":[{"family":"inet","local":"192.0.2.1","prefixlen":24,"scope":"global"},
			{"family":"inet6","local":"2001:db8::1","prefixlen":64,"scope":"global"}]}]`),
		Route4: []byte(
			`[{"dst":"default","gateway":"192.0.2.254","dev":"eth0"},
				{"dst":"192.0.2.0/24","dev":"eth0","prefsrc":"192.0.2.1"}]`),
		Route6: []byte(`[{"dst":"default","gateway":"2001:db8::ff","dev":"eth0"},{"dst":"2001:db8::/64","dev":"eth0"}]`),
	})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return n
}

var starts = []netfilter.Start{
	{Hook: netfilter.Prerouting, Packet: netfilter.Packet{
		Family: netfilter.IPv4, Proto: netfilter.TCP, Src: netip.MustParseAddr("10.0.0.1"),
		Dst: netip.MustParseAddr("10.96.0.1"), DstPort: 80, In: "eth0",
	}},
	{Hook: netfilter.Output, Packet: netfilter.Packet{
		Family: netfilter.IPv6, Proto: netfilter.UDP, Dst: netip.MustParseAddr("fd00::1"), DstPort: 53,
	}},
}

// ruleset makes a table t with one base chain of rules, each a list of statements in JSON; more is what else is in it.
func ruleset(t testing.TB, family, typ, hook string, prio int, more string, rules ...string) *netfilter.Ruleset {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(
		&b,
		`{"nftables":[{"table":{"family":"%[1]s","name":"t"}},
			{"chain":{"family":"%[1]s","table":"t","name":"c","type":"%[2]s","hook":"%[3]s","prio":%[4]d,"policy":"accept"}}`,
		family, typ, hook, prio)
	if more != "" {
		b.WriteString("," + strings.ReplaceAll(more, "IN", `"family":"`+family+`","table":"t"`))
	}
	for _, r := range rules {
		fmt.Fprintf(&b, `,{"rule":{"family":"%s","table":"t","chain":"c","expr":[%s]}}`, family, r)
	}
	b.WriteString("]}")
	tables, err := Parse([]byte(b.String()), nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	rs := &netfilter.Ruleset{Tables: tables}
	rs.Link()
	return rs
}

// ends writes the outcomes of a walk: "25% sent 10.0.0.1:80", with "?" for what is not certain.
func ends(res *netfilter.Result) string {
	var out []string
	for i := range res.Outcomes {
		o := &res.Outcomes[i]
		s := fmt.Sprintf("%.4g%% %s", o.P*100, o.End)
		if o.Packet.DNAT {
			s += fmt.Sprintf(" %s", netip.AddrPortFrom(o.Packet.Dst, o.Packet.DstPort))
		}
		if o.Packet.SNAT {
			s += " from " + o.Packet.Src.String()
		}
		if o.Packet.Mark != 0 {
			s += fmt.Sprintf(" mark %#x", o.Packet.Mark)
		}
		if !o.Certain {
			s += "?"
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

const (
	drop    = `{"drop":null}`
	accept  = `{"accept":null}`
	daddr   = `{"payload":{"protocol":"ip","field":"daddr"}}`
	saddr   = `{"payload":{"protocol":"ip","field":"saddr"}}`
	thDport = `{"payload":{"protocol":"th","field":"dport"}}`
	l4      = `{"meta":{"key":"l4proto"}}`
	chainX  = `{"chain":{IN,"name":"x"}},{"rule":{IN,"chain":"x","expr":[{"drop":null}]}}`
	chainsX = chainX + `,{"chain":{IN,"name":"y"}},{"rule":{IN,"chain":"y","expr":[{"reject":null}]}}`
)

func eq(left, right string) string {
	return `{"match":{"op":"==","left":` + left + `,"right":` + right + `}}`
}

func numgenOf(mod int) string {
	return fmt.Sprintf(`{"numgen":{"mode":"random","mod":%d,"offset":0}}`, mod)
}

// Every case is walked by a TCP packet from 10.0.0.1 to 10.96.0.1:80 that comes in by eth0, and is forwarded.
func TestWalk(t *testing.T) {
	for _, c := range []struct {
		name            string
		family          string // ip where empty
		typ, hook, more string
		rules           []string
		want            string
	}{
		{"nothing", "", "filter", "forward", "", nil, "100% sent"},
		{"a drop", "", "filter", "forward", "", []string{drop}, "100% dropped"},
		{"accept ends the chain", "", "filter", "forward", "", []string{accept, drop}, "100% sent"},
		{"continue does nothing", "", "filter", "forward", "", []string{`{"continue":null},{"drop":null}`}, "100% dropped"},
		{"return to the policy", "", "filter", "forward", "", []string{`{"return":null}`, drop}, "100% sent"},
		{
			"goto does not come back", "", "filter", "forward", `{"chain":{IN,"name":"e"}}`,
			[]string{`{"goto":{"target":"e"}}`, drop},
			"100% sent",
		},
		{
			"jump comes back", "", "filter", "forward", `{"chain":{IN,"name":"e"}}`,
			[]string{`{"jump":{"target":"e"}}`, drop},
			"100% dropped",
		},
		{
			"a chain that is not there", "", "filter", "forward", "",
			[]string{`{"jump":{"target":"none"}}`},
			"100% not known?, 100% sent?",
		},
		{
			"numgen draws among destinations", "", "nat", "prerouting", "",
			[]string{
				`{"dnat":{"family":"ip","addr":{"map":{"key":` + numgenOf(4) +
					`,"data":{"set":[[0,{"concat":["10.1.1.1",8080]}],[1,{"concat":["10.1.1.2",8080]}],
						[2,{"concat":["10.1.1.2",8080]}],[3,{"concat":["10.1.1.3",81]}]]}}}}}`,
			},
			"25% sent 10.1.1.1:8080, 25% sent 10.1.1.3:81, 50% sent 10.1.1.2:8080",
		},
		{
			"what no element has goes on", "", "nat", "prerouting", "",
			[]string{
				`{"dnat":{"addr":{"map":{"key":` + numgenOf(2) + `,"data":{"set":[[0,{"concat":["10.1.1.1",8080]}]]}}}}}`,
				`{"dnat":{"addr":"10.9.9.9"}}`,
			},
			"50% sent 10.1.1.1:8080, 50% sent 10.9.9.9:80",
		},
		{
			"numgen draws among ranges of numbers", "", "filter", "forward", chainsX,
			[]string{
				`{"vmap":{"key":` + numgenOf(10) +
					`,"data":{"set":[[{"range":[0,6]},{"goto":{"target":"x"}}],[{"range":[7,8]},{"jump":{"target":"y"}}]]}}}`,
			},
			"10% sent, 20% rejected, 70% dropped",
		},
		{
			"numgen inc has its share", "", "filter", "forward", chainX,
			[]string{
				`{"vmap":{"key":{"numgen":{"mode":"inc","mod":2,"offset":5}},"data":{"set":[[5,{"jump":{"target":"x"}}]]}}}`,
			},
			"50% dropped, 50% sent",
		},
		{
			"numgen in a match", "", "filter", "forward", "",
			[]string{`{"match":{"op":"<","left":` + numgenOf(4) + `,"right":1}},{"drop":null}`},
			"25% dropped, 75% sent",
		},
		{
			"a hash chooses once", "", "filter", "forward", chainX,
			[]string{`{"vmap":{"key":{"jhash":{"mod":4,"expr":` + saddr + `}},"data":{"set":[[0,{"jump":{"target":"x"}}]]}}}`},
			"25% dropped, 75% sent",
		},
		{
			"the same hash in two matches is not known", "", "filter", "forward", "",
			[]string{eq(`{"jhash":{"mod":2,"expr":`+saddr+`}}`, "0") + `,{"drop":null}`},
			"100% dropped?, 100% sent?",
		},
		{
			"a verdict map by concatenation", "", "filter", "forward",
			`{"map":{IN,"name":"m","type":["ipv4_addr","inet_proto","inet_service"],"map":"verdict",
				"elem":[[{"concat":["10.96.0.1","tcp",80]},{"drop":null}]]}}`,
			[]string{`{"vmap":{"key":{"concat":[` + daddr + `,` + l4 + `,` + thDport + `]},"data":"@m"}}`},
			"100% dropped",
		},
		{
			"a verdict map without the element", "", "filter", "forward",
			`{"map":{IN,"name":"m","type":["ipv4_addr","inet_proto","inet_service"],"map":"verdict",
				"elem":[[{"concat":["10.96.0.1","udp",80]},{"drop":null}]]}}`,
			[]string{
				`{"vmap":{"key":{"concat":[` + daddr + `,` + l4 + `,` + thDport + `]},"data":"@m"}}`,
				`{"reject":{"type":"icmp","expr":"port-unreachable"}}`,
			},
			"100% rejected",
		},
		{
			"the element for all others", "", "filter", "forward",
			`{"map":{IN,"name":"m","type":"ipv4_addr","map":"verdict","flags":["interval"],
				"elem":[[{"prefix":{"addr":"10.0.0.0","len":16}},{"accept":null}],["*",{"drop":null}]]}}`,
			[]string{`{"vmap":{"key":` + daddr + `,"data":"@m"}}`},
			"100% dropped",
		},
		{
			"intervals of a concatenation", "", "filter", "forward",
			`{"set":{IN,"name":"s","type":["ipv4_addr","inet_service"],"flags":["interval"],
				"elem":[{"concat":[{"prefix":{"addr":"10.96.0.0","len":16}},{"range":[79,81]}]}]}}`,
			[]string{eq(`{"concat":[`+daddr+`,`+thDport+`]}`, `"@s"`) + `,{"drop":null}`},
			"100% dropped",
		},
		{
			"a set whose type is not known", "", "filter", "forward", `{"set":{IN,"name":"s","type":"odd","elem":["a"]}}`,
			[]string{eq(daddr, `"@s"`) + `,{"drop":null}`},
			"100% dropped?, 100% sent?",
		},
		{
			"a set by typeof", "", "filter", "forward", `{"set":{IN,"name":"s","type":{"typeof":` + daddr +
				`},"elem":["10.96.0.1"]}}`, []string{eq(daddr, `"@s"`) + `,{"drop":null}`}, "100% dropped",
		},
		{
			"no such set", "", "filter", "forward", "",
			[]string{eq(daddr, `"@none"`) + `,{"drop":null}`},
			"100% dropped?, 100% sent?",
		},
		{
			"an unknown expression", "", "filter", "forward", "",
			[]string{eq(`{"odd":{"key":1}}`, "1") + `,{"drop":null}`},
			"100% dropped?, 100% sent?",
		},
		{
			"an unknown expression behind one that does not match", "", "filter", "forward", "",
			[]string{eq(daddr, `"10.0.0.9"`) + `,` + eq(`{"odd":{"key":1}}`, "1") + `,{"drop":null}`},
			"100% sent",
		},
		{"an unknown statement", "", "filter", "forward", "", []string{`{"odd":{"key":1}}`}, "100% not known?, 100% sent?"},
		{
			"a match of iptables", "", "filter", "forward", "",
			[]string{`{"xt":{"type":"match","name":"odd"}},{"drop":null}`},
			"100% not known?, 100% sent?",
		},
		{
			"a rate", "", "filter", "forward", "",
			[]string{`{"limit":{"rate":1,"per":"second"}},{"drop":null}`},
			"100% dropped?, 100% sent?",
		},
		{"a queue", "", "filter", "forward", "", []string{`{"queue":{"num":1}}`}, "100% not known?, 100% sent?"},
		{
			"what only counts and logs", "", "filter", "forward", "",
			[]string{`{"counter":{"packets":0,"bytes":0}},{"log":{"prefix":"x"}},{"counter":"named"},{"last":null}`},
			"100% sent",
		},
		{
			"a flowtable takes no first packet", "", "filter", "forward", "",
			[]string{`{"flow":{"op":"add","flowtable":"@f"}},{"drop":null}`},
			"100% sent",
		},
		{"a reset is for TCP", "", "filter", "forward", "", []string{`{"reject":{"type":"tcp reset"}}`}, "100% rejected"},
		{
			"a reject of the other family", "inet", "filter", "forward", "",
			[]string{`{"reject":{"type":"icmpv6","expr":"no-route"}}`},
			"100% sent",
		},
		{
			"a translation of the other family", "inet", "nat", "prerouting", "",
			[]string{
				`{"dnat":{"family":"ip6","addr":"fd00::1","port":80}}`,
				`{"dnat":{"family":"ip","addr":"10.1.1.1","port":81}}`,
			},
			"100% sent 10.1.1.1:81",
		},
		{
			"a range of addresses", "", "nat", "prerouting", "",
			[]string{`{"dnat":{"addr":{"range":["10.1.1.1","10.1.1.2"]},"port":81}}`},
			"50% sent 10.1.1.1:81, 50% sent 10.1.1.2:81",
		},
		{
			"a network is replaced", "", "nat", "prerouting", "",
			[]string{`{"dnat":{"addr":{"prefix":{"addr":"10.1.0.0","len":16}},"type_flags":"prefix"}}`},
			"100% not known?, 100% sent?",
		},
		{
			"a translation by what is not a map", "", "nat", "prerouting",
			`{"set":{IN,"name":"s","type":"inet_service","elem":[80]}}`,
			[]string{`{"dnat":{"addr":{"map":{"key":` + thDport + `,"data":"@s"}}}}`},
			"100% not known?, 100% sent?",
		},
		{
			"a translation by a map of nothing", "", "nat", "prerouting", "",
			[]string{`{"dnat":{"addr":{"map":{"key":` + thDport + `,"data":{"set":[[80,{"concat":[]}]]}}}}}`},
			"100% not known?, 100% sent?",
		},
		{
			"a destination by port", "", "nat", "prerouting",
			`{"map":{IN,"name":"m","type":"inet_service","map":"ipv4_addr","elem":[[80,"10.1.1.7"]]}}`,
			[]string{`{"dnat":{"addr":{"map":{"key":` + thDport + `,"data":"@m"}}}}`},
			"100% sent 10.1.1.7:80",
		},
		{
			"masquerade", "", "nat", "postrouting", "",
			[]string{`{"masquerade":{"flags":"fully-random"}}`},
			"100% sent from 192.0.2.1",
		},
		{
			"a source address", "", "nat", "postrouting", "",
			[]string{`{"snat":{"addr":"192.0.2.9"}}`},
			"100% sent from 192.0.2.9",
		},
		{"redirect", "", "nat", "prerouting", "", []string{`{"redirect":{"port":8080}}`}, "100% delivered 192.0.2.1:8080"},
		{
			"a proxy on the node", "", "filter", "prerouting", "",
			[]string{`{"tproxy":{"port":1}},{"accept":null}`},
			"100% not known?, 100% sent?",
		},
		{"marks", "", "filter", "forward", "", []string{
			`{"mangle":{"key":{"meta":{"key":"mark"}},"value":{"|":[{"meta":{"key":"mark"}},16384]}}}`,
			`{"match":{"op":"!=","left":{"&":[{"meta":{"key":"mark"}},16384]},"right":0}},
				{"mangle":{"key":{"meta":{"key":"mark"}},"value":{"^":[{"meta":{"key":"mark"}},16385]}}}`,
		}, "100% sent mark 0x1"},
		{
			"a mark that is not known", "", "filter", "forward", "",
			[]string{`{"mangle":{"key":{"meta":{"key":"mark"}},"value":{"meta":{"key":"priority"}}}}`},
			"100% not known?, 100% sent?",
		},
		{
			"another destination without translation", "", "filter", "forward", "",
			[]string{`{"mangle":{"key":` + daddr + `,"value":"10.1.1.1"}}`},
			"100% not known?, 100% sent?",
		},
		{
			"what changes nothing on the way", "", "filter", "forward", "",
			[]string{`{"mangle":{"key":{"tcp option":{"name":"maxseg","field":"size"}},"value":{"rt":{"key":"mtu"}}}},
				{"mangle":{"key":{"payload":{"protocol":"ip","field":"dscp"}},"value":8}}`},
			"100% sent",
		},
		{
			"a set that a rule on the way changes", "", "filter", "forward",
			`{"set":{IN,"name":"s","type":"ipv4_addr","flags":["dynamic"]}}`,
			[]string{`{"set":{"op":"add","elem":` + saddr + `,"set":"@s"}}`, eq(saddr, `"@s"`) + `,{"drop":null}`},
			"100% dropped?, 100% sent?",
		},
		{
			"a set that a rule behind changes", "", "filter", "forward",
			`{"set":{IN,"name":"s","type":"ipv4_addr","flags":["dynamic"]}}`,
			[]string{eq(saddr, `"@s"`) + `,{"drop":null}`, `{"set":{"op":"add","elem":` + saddr + `,"set":"@s"}}`},
			"100% sent",
		},
		{
			"a rate for each client", "", "filter", "forward", `{"set":{IN,"name":"s","type":"ipv4_addr","flags":["dynamic"]}}`,
			[]string{`{"set":{"op":"add","elem":` + saddr +
				`,"set":"@s","stmt":[{"limit":{"rate":1,"per":"second"}}]}},{"drop":null}`},
			"100% dropped?, 100% sent?",
		},
		{
			"flags in two ways of reading", "", "filter", "forward", "",
			[]string{`{"match":{"op":"!=","left":{"ct":{"key":"state"}},"right":["established","related"]}},{"drop":null}`},
			"100% dropped",
		},
		{
			"an address that comes late in a long chain", "", "filter", "forward", "",
			append(slices.Repeat([]string{eq(daddr, `"10.0.0.9"`) + `,` + accept}, 20),
				eq(daddr, `"10.96.0.1"`)+`,{"drop":null}`), "100% dropped",
		},
	} {
		family := c.family
		if family == "" {
			family = "ip"
		}
		prio := map[string]int{"nat": -100, "filter": 0}[c.typ]
		rs := ruleset(t, family, c.typ, c.hook, prio, c.more, c.rules...)
		w := netfilter.NewWalker(rs, smallHost(t), nil)
		res := w.Walk(starts[0], netfilter.Options{})
		if got := ends(&res); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// nft prints a masked address that is compared with a value outside of the mask as a prefix with too many bits: it is
// equal to none.
func TestPrefixWithBitsBehindItsLength(t *testing.T) {
	prefix := `{"prefix":{"addr":"10.0.0.1","len":8}}`
	for sign, want := range map[string]string{"==": "100% sent", "!=": "100% dropped"} {
		rs := ruleset(t, "ip", "filter", "forward", 0, "",
			`{"match":{"op":"`+sign+`","left":`+saddr+`,"right":`+prefix+`}},{"drop":null}`)
		res := netfilter.NewWalker(rs, smallHost(t), nil).Walk(starts[0], netfilter.Options{})
		if got := ends(&res); got != want {
			t.Errorf("%s: got %s, want %s", sign, got, want)
		}
	}
}

// What sets a field of a header is for packets that have it, and breaks the rule off for others: nft does not print
// that condition.
func TestMangleOfAHeaderThatThePacketDoesNotHave(t *testing.T) {
	set := func(protocol, field string) string {
		return `{"mangle":{"key":{"payload":{"protocol":"` + protocol + `","field":"` + field +
			`"}},"value":8}},{"drop":null}`
	}
	for _, c := range []struct{ rule, want string }{
		{set("ip", "dscp"), "100% dropped"},
		{set("ip6", "dscp"), "100% sent"},
		{set("udp", "checksum"), "100% sent"},
		{`{"mangle":{"key":{"tcp option":{"name":"maxseg","field":"size"}},"value":1000}},{"drop":null}`, "100% dropped"},
		{`{"reset":{"tcp option":{"name":"sack-perm"}}},{"drop":null}`, "100% dropped"},
	} {
		rs := ruleset(t, "inet", "filter", "forward", 0, "", c.rule)
		res := netfilter.NewWalker(rs, smallHost(t), nil).Walk(starts[0], netfilter.Options{})
		if got := ends(&res); got != c.want {
			t.Errorf("%s: got %s, want %s", c.rule, got, c.want)
		}
	}
}

// nft lists "meta nfproto ipv6 reject with tcp reset" of a table inet without its condition.
func TestResetWhoseFamilyIsNotPrinted(t *testing.T) {
	const reset = `{"reject":{"type":"tcp reset"}}`
	for _, c := range []struct{ family, rule, want string }{
		{"inet", eq(l4, `"tcp"`) + `,` + reset, "100% rejected?, 100% sent?"},
		{"inet", eq(daddr, `"10.96.0.1"`) + `,` + reset, "100% rejected"},
		{"inet", eq(`{"meta":{"key":"nfproto"}}`, `"ipv4"`) + `,{"counter":null},` + reset, "100% rejected"},
		{"ip", eq(l4, `"tcp"`) + `,` + reset, "100% rejected"},
	} {
		rs := ruleset(t, c.family, "filter", "forward", 0, "", c.rule)
		res := netfilter.NewWalker(rs, smallHost(t), nil).Walk(starts[0], netfilter.Options{})
		if got := ends(&res); got != c.want {
			t.Errorf("%s %s: got %s, want %s", c.family, c.rule, got, c.want)
		}
	}
}

// nft lists "meta protocol ip6 ct protocol tcp" of a table inet without its condition on the family.
func TestProtocolOfAConnectionWhoseFamilyIsNotPrinted(t *testing.T) {
	const protocol, original = `{"ct":{"key":"protocol"}}`, `{"ct":{"key":"protocol","dir":"original"}}`
	const unclear = "100% dropped?, 100% sent?"
	for _, c := range []struct{ family, rule, want string }{
		{"inet", eq(protocol, `"tcp"`), unclear},
		{"inet", eq(original, `"tcp"`), unclear},
		{"inet", eq(protocol, `"tcp"`) + `,` + eq(daddr, `"10.96.0.1"`), unclear},
		{"inet", eq(protocol, `"udp"`), "100% sent"},
		{"inet", eq(protocol, `{"set":["tcp","udp"]}`), "100% dropped"},
		{"inet", eq(daddr, `"10.96.0.1"`) + `,` + eq(protocol, `"tcp"`), "100% dropped"},
		{"inet", eq(`{"meta":{"key":"nfproto"}}`, `"ipv4"`) + `,{"counter":null},` + eq(protocol, `"tcp"`), "100% dropped"},
		{"ip", eq(protocol, `"tcp"`), "100% dropped"},
	} {
		rs := ruleset(t, c.family, "filter", "forward", 0, "", c.rule+`,{"drop":null}`)
		res := netfilter.NewWalker(rs, smallHost(t), nil).Walk(starts[0], netfilter.Options{})
		if got := ends(&res); got != c.want {
			t.Errorf("%s %s: got %s, want %s", c.family, c.rule, got, c.want)
		}
	}
}

// A packet costs the same however many Services there are.
