// SPDX-License-Identifier: Apache-2.0

package links

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
)

// generator makes rules and packets.
type generator struct {
	*rand.Rand
	port uint16
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// targets are addresses that packets are sent and translated to: of the node, of pods, of others, of a Service.
var targets = []string{
	"10.77.0.11", "10.244.1.1", "10.244.1.15", "10.244.1.16", "192.0.2.7", "10.96.0.10", "fd00:77::11", "fd00:244:1::1",
	"fd00:244:1::15", "fd00:244:1::16", "2001:db8::7", "fd00:96::10",
}

// priorities are few, so that chains share them; nft's bridge has br_netfilter's at 0 and -1.
var priorities = []int{-300, -200, -150, -5, -1, 0, 1, 100, 300}

// rules is a rule set as nft reads it.
func (g *generator) rules() string {
	var b strings.Builder
	for i := range 1 + g.IntN(3) {
		dev := pick(g.Rand, devices...)
		hook := pick(g.Rand, "ingress", "ingress", "egress")
		on := fmt.Sprintf("device %s", dev)
		if g.IntN(3) == 0 {
			on = fmt.Sprintf("devices = { %s }", strings.Join(devices[:1+g.IntN(len(devices))], ", "))
		}
		g.table(&b, "netdev", fmt.Sprintf("d%d", i), hook, on, "")
	}
	if g.IntN(2) == 0 {
		g.table(&b, "inet", "i0", "ingress", "device "+pick(g.Rand, devices...), "")
	}
	for i := range g.IntN(4) {
		g.table(&b, "bridge", fmt.Sprintf("b%d", i),
			pick(g.Rand, "prerouting", "input", "forward", "output", "postrouting"), "", "")
	}
	for i := range g.IntN(3) {
		g.table(&b, "inet", fmt.Sprintf("f%d", i),
			pick(g.Rand, "prerouting", "input", "forward", "output", "postrouting"), "", "")
	}
	for _, x := range [][2]string{{"ip", "10.96.0.10"}, {"ip6", "fd00:96::10"}} {
		fmt.Fprintf(&b, "table %s nat {\n", x[0])
		for _, hook := range []string{"prerouting", "output"} {
			fmt.Fprintf(&b, "\tchain %s {\n\t\ttype nat hook %s priority -100;\n", hook, hook)
			for _, to := range targets {
				if strings.Contains(to, ":") == (x[0] == "ip6") && to != x[1] && g.IntN(3) == 0 {
					fmt.Fprintf(&b, "\t\t%s daddr %s dnat to %s\n", x[0], x[1], to)
					break
				}
			}
			b.WriteString("\t}\n")
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// table writes a table of one chain. The frame that says that packets are through passes it first.
func (g *generator) table(b *strings.Builder, family, name, hook, on, kind string) {
	if kind == "" {
		kind = "filter"
	}
	policy := pick(g.Rand, "accept", "accept", "accept", "accept", "accept", "accept", "drop")
	fmt.Fprintf(
		b,
		"table %s %s {\n\tchain c {\n\t\ttype %s hook %s %s priority %d; policy %s;\n",
		family,
		name,
		kind,
		hook,
		on,
		pick(g.Rand, priorities...),
		policy,
	)
	if on != "" || family == "bridge" {
		fmt.Fprintf(b, "\t\tmeta protocol %#x accept\n", flushType)
	}
	// Neighbours are looked for and found by what no rule is to stop.
	b.WriteString("\t\tmeta l4proto != udp accept\n")
	for range 1 + g.IntN(4) {
		var words []string
		v4 := g.IntN(2) == 0
		for range 1 + g.IntN(2) {
			words = append(words, g.match(family, hook, v4))
		}
		fmt.Fprintf(b, "\t\t%s %s\n", strings.Join(words, " "), g.target(family, hook))
	}
	b.WriteString("\t}\n}\n")
}

// match is a condition that packets of one IP family may meet.
func (g *generator) match(family, hook string, v4 bool) string {
	a := pick(g.Rand, targets...)
	for strings.Contains(a, ":") == v4 {
		a = pick(g.Rand, targets...)
	}
	ip := map[bool]string{true: "ip", false: "ip6"}[v4]
	list := []string{
		ip + " daddr " + a, ip + " daddr " + a, ip + " saddr " + a, fmt.Sprintf("udp dport %d", pick(g.Rand, 53, 80, 8080)),
		fmt.Sprintf("meta mark %d", pick(g.Rand, 0, 1, 2)), "meta l4proto udp", "iifname " + pick(g.Rand, devices...),
		"oifname " + pick(g.Rand, devices...), "iifname != " + pick(g.Rand, devices...), "meta protocol " + ip,
		"iifname { v1, eth0 }", "oifname { v2, cni0 }", "udp sport > 1024",
	}
	if family == "bridge" || family == "netdev" {
		list = append(list, "ether type "+ip)
	}
	if family == "inet" {
		list = append(list, "meta nfproto "+map[bool]string{true: "ipv4", false: "ipv6"}[v4])
	}
	if family == "inet" && hook != "ingress" {
		list = append(list, "ct state new", "ct state invalid", "ct state untracked", "meta pkttype host",
			"fib daddr type local")
	}
	if family == "inet" && hook == "ingress" || family == "bridge" {
		list = append(list, "meta pkttype host")
	}
	return pick(g.Rand, list...)
}

func (g *generator) target(family, hook string) string {
	list := []string{
		"accept", "drop", "drop", "continue", fmt.Sprintf("meta mark set %d", pick(g.Rand, 1, 2)),
		fmt.Sprintf("meta mark set %d", pick(g.Rand, 1, 2)), "counter return",
	}
	if hook == "ingress" || hook == "prerouting" {
		list = append(list, "notrack")
	}
	_ = family
	return pick(g.Rand, list...)
}

// packet makes a packet from a port of its own.
func (g *generator) packet() packet {
	g.port++
	p := packet{in: pick(g.Rand, "", "eth0", "v1", "v1", "v2")}
	i := g.IntN(2)
	src := map[string][]string{"": {"10.77.0.11", "fd00:77::11"}, "eth0": {"192.0.2.7", "2001:db8::7"}}[p.in]
	if src == nil {
		src = []string{far[p.in][0].String(), far[p.in][1].String()}
	}
	p.src = netip.AddrPortFrom(netip.MustParseAddr(src[i]), 33000+g.port)
	for {
		a := netip.MustParseAddr(pick(g.Rand, targets...))
		if g.IntN(2) == 0 {
			a = netip.MustParseAddr(pick(g.Rand, "10.96.0.10", "fd00:96::10"))
		}
		if a.Is4() == p.src.Addr().Is4() && a != p.src.Addr() {
			p.dst = netip.AddrPortFrom(a, pick[uint16](g.Rand, 53, 80, 8080))
			return p
		}
	}
}
