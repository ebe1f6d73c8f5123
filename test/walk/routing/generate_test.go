// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// devs are the node's interfaces, each with an address of each family, and a subnet of them.
var devs = []string{"eth0", "eth1", "pod0", "pod1"}

// world is what rules and routes of one family are made of.
type world struct {
	*rand.Rand

	v6     bool
	own    []string // addresses of the node, by devs
	near   []string // gateways, by devs
	from   []string // prefixes of sources
	to     []string // prefixes of destinations
	others []string // addresses
	tables []string
}

func worldOf(r *rand.Rand, v6 bool) *world {
	w := &world{
		Rand: r, v6: v6, tables: []string{"100", "101", "102", "main"},
		own:  []string{"10.77.0.11", "10.88.0.11", "10.244.1.1", "10.244.2.1"},
		near: []string{"10.77.0.1", "10.88.0.1", "10.244.1.9", "10.244.2.9"},
		from: []string{"10.77.0.0/24", "10.244.0.0/16", "10.88.0.11", "192.0.2.0/24", "0.0.0.0/0"},
		to:   []string{"default", "10.244.0.0/16", "10.244.5.0/24", "198.51.100.0/24", "198.51.100.7", "203.0.113.0/25"},
		others: []string{
			"10.244.1.5", "10.244.2.6", "10.244.5.5", "10.244.7.7", "198.51.100.7", "198.51.100.9", "203.0.113.1",
			"203.0.113.200", "10.77.0.20", "10.88.0.30", "192.0.2.7", "10.244.1.255",
		},
	}
	if v6 {
		w.own = []string{"fd00:77::11", "fd00:88::11", "fd00:244:1::1", "fd00:244:2::1"}
		w.near = []string{"fd00:77::1", "fd00:88::1", "fd00:244:1::9", "fd00:244:2::9"}
		w.from = []string{"fd00:77::/64", "fd00:244::/32", "fd00:88::11", "2001:db8:2::/64"}
		w.to = []string{
			"default",
			"fd00:244::/32",
			"fd00:244:5::/64",
			"2001:db8:51::/64",
			"2001:db8:51::7",
			"2001:db8:3::/65",
		}
		w.others = []string{
			"fd00:244:1::5", "fd00:244:2::6", "fd00:244:5::5", "fd00:244:7::7", "2001:db8:51::7", "2001:db8:51::9",
			"2001:db8:3::1", "2001:db8:3:0:8000::1", "fd00:77::20", "fd00:88::30", "2001:db8:2::7",
		}
	}
	return w
}

func (w *world) pick(of ...string) string { return of[w.IntN(len(of))] }

func (w *world) one(in int) bool { return w.IntN(in) == 0 }

// family is ip's option for the world's family.
func (w *world) family() string {
	if w.v6 {
		return "-6"
	}
	return "-4"
}

// setUp are the commands that make the rules and routes of one case from those of the one before.
func (w *world) setUp() []string {
	out := []string{
		"rule del priority 0", "rule flush", "rule add priority 0 lookup local", "rule add priority 32766 lookup main",
		"route flush table 100", "route flush table 101", "route flush table 102", "route flush proto boot",
		"route flush table default",
	}
	if !w.v6 {
		out = append(out, "rule add priority 32767 lookup default")
	}
	for range 4 + w.IntN(14) {
		out = append(out, w.route())
	}
	for range w.IntN(7) {
		out = append(out, w.rule())
	}
	if w.one(5) { // the table local is not looked up first
		out = append(out, "rule add priority 150 lookup local", "rule del priority 0")
	}
	return out
}

func (w *world) route() string {
	s := "route " + w.pick("add", "add", "append") + " "
	table, hops := w.pick(w.tables...), ""
	switch w.IntN(10) {
	case 0, 1, 2:
		s += w.pick("blackhole", "unreachable", "prohibit", "throw", "throw") + " " + w.pick(w.to...)
	case 3:
		s += "local " + w.pick(w.to[1:]...) + " dev lo"
	case 4:
		s, hops = s+w.pick(w.to...), w.hops()
	default:
		s += w.pick(w.to...)
		if w.v6 && w.one(4) {
			s += " from " + w.pick(w.from...)
		}
		i := w.IntN(len(devs))
		if w.one(3) {
			s += " dev " + devs[i]
		} else {
			s += " via " + w.near[i] + " dev " + devs[i]
		}
		if w.one(5) {
			s += " src " + w.pick(w.own...)
		}
	}
	if !w.v6 && w.one(6) {
		s += " tos " + w.pick("0x10", "0x08")
	}
	if w.one(3) {
		s += " metric " + w.pick("10", "20", "2000")
	}
	return s + " table " + table + hops
}

func (w *world) hops() string {
	s := ""
	for range 2 + w.IntN(2) {
		i := w.IntN(len(devs))
		s += fmt.Sprintf(" nexthop via %s dev %s weight %d", w.near[i], devs[i], 1+w.IntN(3))
	}
	return s
}

// rule makes a rule with none to three conditions.
func (w *world) rule() string {
	s := "rule add priority " + w.pick("50", "100", "101", "102", "200", "201", "32000")
	if w.one(6) {
		s += " not"
	}
	conditions := []func() string{
		func() string { return " from " + w.pick(w.from...) },
		func() string { return " to " + w.pick(w.to[1:]...) },
		func() string { return " fwmark " + w.pick("1", "2", "0x10/0xf0", "0/1", "0x4000/0x4000") },
		func() string { return " iif " + w.pick("lo", "eth0", "pod0", "pod1", "gone0") },
		func() string { return " oif " + w.pick("eth0", "eth1", "gone0") },
		func() string { return " ipproto " + w.pick("tcp", "udp", "sctp", "89") },
		func() string { return " ipproto tcp dport " + w.pick("80", "80-90", "8080-65000") },
		func() string { return " sport " + w.pick("1000-40000", "40001-60000", "41000") },
		func() string { return " uidrange " + w.pick("0-0", "1000-2000", "0-1000") },
		func() string { return " tos " + w.pick("0x10", "0x08") },
		func() string { return " dport " + w.pick("53", "80") },
		func() string { return " tun_id 7" },
	}
	for range w.IntN(4) {
		s += conditions[w.IntN(len(conditions))]()
	}
	switch w.IntN(12) {
	case 0:
		return s + " " + w.pick("blackhole", "unreachable", "prohibit")
	case 1, 2:
		return s + " goto " + w.pick("101", "200", "201", "32766", "31000")
	case 3:
		return s + " nop"
	case 4:
		return s + " l3mdev"
	}
	s += " lookup " + w.pick("100", "101", "102", "main", "local", "default", "103")
	if w.one(4) {
		s += " suppress_prefixlength " + w.pick("0", "16", "24", "64")
	}
	if w.one(5) {
		s += " suppress_ifgroup " + w.pick("7", "default")
	}
	return s
}

// query makes a question.
func (w *world) query() host.Query {
	q := host.Query{
		Mark: [...]uint32{0, 0, 1, 2, 0x10, 0x21, 0x4000}[w.IntN(7)], TOS: [...]uint8{0, 0, 0x10, 0x08}[w.IntN(4)],
		Proto: [...]uint8{netfilter.TCP, netfilter.UDP}[w.IntN(2)], SrcPort: [...]uint16{40000, 40001, 41000}[w.IntN(3)],
		DstPort: [...]uint16{80, 53, 8080, 85}[w.IntN(4)],
	}
	q.Dst = netip.MustParseAddr(w.pick(w.others...))
	if w.one(6) {
		q.Dst = netip.MustParseAddr(w.pick(w.own...))
	}
	if q.Local = w.one(2); q.Local {
		q.UID = [...]uint32{0, 1000, 1500, 3000}[w.IntN(4)]
		q.Src = netip.MustParseAddr(w.pick(w.own...))
		if w.one(2) {
			if q.Src = netip.IPv4Unspecified(); w.v6 {
				q.Src = netip.IPv6Unspecified()
			}
		}
		// A socket that is bound to an interface. Of IPv6 the question is as from one only where it has no source
		// (ip6_route_output_flags in net/ipv6/route.c).
		if w.one(4) && (!w.v6 || q.Src.IsUnspecified()) {
			q.Out = w.pick(devs...)
		}
		return q
	}
	q.In = w.pick(devs...)
	q.Src = netip.MustParseAddr(w.pick(w.others[:11]...)) // without the one that broadcasts
	return q
}
