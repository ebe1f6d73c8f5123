// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
)

// op is an Op made of a function, for tests of the walk alone.
type op func(c *Context) Effect

func (o op) Run(c *Context) Effect { return o(c) }

// jump is a jump or goto by name.
type jump struct {
	name string
	kind Kind
	to   *Chain
}

func (j *jump) Run(*Context) Effect { return Effect{Kind: j.kind, Chain: j.to} }
func (j *jump) JumpsTo() string     { return j.name }
func (j *jump) Resolve(c *Chain)    { j.to = c }

func verdict(k Kind) op { return func(*Context) Effect { return Effect{Kind: k} } }

func dst(a string) op {
	return func(c *Context) Effect {
		if c.Packet.Dst == netip.MustParseAddr(a) {
			return Effect{}
		}
		return Effect{Kind: Break}
	}
}

func chance(p float64) op { return func(*Context) Effect { return Effect{Kind: Chance, P: p} } }
func unknown(why string) op {
	return func(*Context) Effect { return Effect{Kind: Unknown, Why: why} }
}

func dnat(a string) op {
	return func(c *Context) Effect {
		c.Packet.Dst, c.Packet.DstPort, c.Packet.DNAT = netip.MustParseAddr(a), 8080, true
		return Effect{Kind: Accept}
	}
}

func mark(m uint32) op {
	return func(c *Context) Effect { c.Packet.Mark |= m; return Effect{} }
}

func ifMark(m uint32) op {
	return func(c *Context) Effect {
		if c.Packet.Mark&m != 0 {
			return Effect{}
		}
		return Effect{Kind: Break}
	}
}

func masquerade(c *Context) Effect {
	c.Packet.SNAT = true
	return Effect{Kind: Accept}
}

// rules makes a chain's rules, one a list of ops.
func rules(lists ...[]Op) []*Rule {
	out := make([]*Rule, len(lists))
	for i, ops := range lists {
		out[i] = &Rule{Num: i + 1, Text: fmt.Sprintf("rule %d", i+1), Ops: ops}
	}
	return out
}

func base(name string, h Hook, prio int, typ ChainType, policy Kind, lists ...[]Op) *Chain {
	return &Chain{Name: name, Base: &Base{Hook: h, Priority: prio, Type: typ, Policy: policy}, Rules: rules(lists...)}
}

func nat(chains ...*Chain) *Table {
	return &Table{Family: IPv4, Backend: BackendNFT, Name: "nat", Chains: chains}
}

func filter(chains ...*Chain) *Table {
	return &Table{Family: IPv4, Backend: BackendNFT, Name: "filter", Chains: chains}
}

func testHost(t *testing.T) *host.Network {
	t.Helper()
	n, errs := host.Parse(host.Files{
		Addr: []byte(
			`[{"ifname":"lo","addr_info":[{"family":"inet","local":"127.0.0.1","prefixlen":8,"scope":"host"}]},
				{"ifname":"eth0","addr_info":[{"family":"inet","local":"10.0.0.1","prefixlen":24,"scope":"global"}]}]`),
		Route4: []byte(
			`[{"dst":"default","gateway":"10.0.0.254","dev":"eth0"},{"dst":"10.0.0.0/24","dev":"eth0","prefsrc":"10.0.0.1"}]`),
	})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return n
}

func send(hook Hook, to string) Start {
	s := Start{
		Hook: hook, Packet: Packet{
			Family: IPv4, Proto: TCP, Src: netip.MustParseAddr("10.244.0.5"),
			Dst: netip.MustParseAddr(to), DstPort: 80, In: "cni0",
		},
	}
	if hook == Output {
		s.Packet.Src, s.Packet.In = netip.MustParseAddr("10.0.0.1"), ""
	}
	return s
}

// show writes outcomes as "sent 10.1.1.1 masq 0.5", sorted; "?" in front of an uncertain one.
func show(r Result) string {
	var out []string
	for _, o := range r.Outcomes {
		s := fmt.Sprintf("%s %s", o.End, o.Packet.Dst)
		if o.Packet.SNAT {
			s += " masq"
		}
		if math.Abs(o.P-1) > 1e-12 {
			s += fmt.Sprintf(" %.4g", o.P)
		}
		if w := o.Where.String(); w != "" {
			s += " by " + w
		}
		if !o.Certain {
			s = "?" + s
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

func TestWalk(t *testing.T) {
	const vip = "10.96.0.1"
	svc := func(name string, lists ...[]Op) *Chain { return &Chain{Name: name, Rules: rules(lists...)} }
	pre := func(lists ...[]Op) *Chain { return base("PREROUTING", Prerouting, -100, TypeNAT, Accept, lists...) }
	out := func(lists ...[]Op) *Chain { return base("OUTPUT", Output, -100, TypeNAT, Accept, lists...) }
	post := func(lists ...[]Op) *Chain { return base("POSTROUTING", Postrouting, 100, TypeNAT, Accept, lists...) }
	fwd := func(policy Kind, lists ...[]Op) *Chain {
		return base("FORWARD", Forward, 0, TypeFilter, policy, lists...)
	}
	legacy := func(t *Table) *Table { t.Backend = BackendLegacy; return t }
	tests := []struct {
		name   string
		tables []*Table
		from   Hook
		to     string
		want   string
		unsure int
	}{
		{name: "nothing in the way", to: vip, want: "sent 10.96.0.1"},
		{name: "to the node itself", to: "10.0.0.1", want: "delivered 10.0.0.1"},
		{
			name: "one of three, each with the same chance",
			tables: []*Table{nat(pre([]Op{dst(vip), &jump{name: "SVC", kind: Jump}}),
				svc("SVC", []Op{chance(1.0 / 3), dnat("10.1.1.1")}, []Op{chance(0.5), dnat("10.1.1.2")}, []Op{dnat("10.1.1.3")}))},
			to: vip, want: "sent 10.1.1.1 0.3333; sent 10.1.1.2 0.3333; sent 10.1.1.3 0.3333",
		},
		{
			name: "what falls through a chain goes on behind the jump",
			tables: []*Table{nat(pre([]Op{&jump{name: "SVC", kind: Jump}}, []Op{dnat("10.1.1.9")}),
				svc("SVC", []Op{chance(0.25), dnat("10.1.1.1")}, []Op{verdict(Return)}, []Op{dnat("10.1.1.2")}))},
			to: vip, want: "sent 10.1.1.1 0.25; sent 10.1.1.9 0.75",
		},
		{
			name: "a goto does not come back",
			tables: []*Table{nat(pre([]Op{&jump{name: "A", kind: Jump}}, []Op{dnat("10.1.1.9")}),
				svc("A", []Op{&jump{name: "B", kind: Goto}}, []Op{dnat("10.1.1.8")}), svc("B"))}, to: vip, want: "sent 10.1.1.9",
		},
		{
			name: "accept ends the base chain only", tables: []*Table{
				nat(pre([]Op{verdict(Accept)}, []Op{dnat("10.1.1.1")})), filter(fwd(Drop)),
			},
			to: vip, want: "dropped 10.96.0.1 by filter FORWARD policy",
		},
		{name: "the translated packet is what FORWARD sees", tables: []*Table{
			nat(pre([]Op{dst(vip), dnat("10.1.1.1")})),
			filter(fwd(Accept, []Op{dst(vip), verdict(Drop)}, []Op{dst("10.1.1.1"), verdict(Reject)})),
		}, to: vip, want: "rejected 10.1.1.1 by filter FORWARD rule 2"},
		{
			name: "marks are kept from hook to hook", tables: []*Table{
				nat(pre([]Op{mark(0x4000)}, []Op{dnat("10.1.1.1")}), post([]Op{ifMark(0x4000), op(masquerade)})),
			},
			to: vip, want: "sent 10.1.1.1 masq",
		},
		{name: "local output to the node itself comes in again, and is not translated twice", tables: []*Table{
			nat(pre([]Op{dnat("10.1.1.7")}), out([]Op{dst(vip), dnat("10.0.0.1")})),
			filter(base("INPUT", Input, 0, TypeFilter, Accept, []Op{dst("10.0.0.1"), verdict(Drop)})),
		}, from: Output, to: vip, want: "dropped 10.0.0.1 by filter INPUT rule 1"},
		{name: "what is not tracked is not translated", tables: []*Table{
			{
				Family: IPv4, Backend: BackendNFT, Name: "raw",
				Chains: []*Chain{
					base("PREROUTING", Prerouting, -300, TypeFilter, Accept, []Op{
						op(func(c *Context) Effect { c.Packet.Untracked = true; return Effect{} }),
					}),
				},
			},
			nat(pre([]Op{dnat("10.1.1.1")})),
		}, to: vip, want: "sent 10.96.0.1"},
		{
			name: "an unknown match that decides", tables: []*Table{filter(fwd(Accept, []Op{unknown("magic"), verdict(Drop)}))},
			to: vip, want: "?dropped 10.96.0.1 by filter FORWARD rule 1; ?sent 10.96.0.1", unsure: 1,
		},
		{
			name: "an unknown match that does not matter",
			tables: []*Table{
				filter(fwd(Accept, []Op{unknown("magic"), verdict(Accept)}, []Op{unknown("more"), verdict(Next)}, []Op{
					verdict(Accept),
				})),
			},
			to: vip, want: "sent 10.96.0.1",
		},
		{
			name: "an unknown match in front of chance does not matter either",
			tables: []*Table{
				nat(pre([]Op{unknown("magic"), &jump{name: "LOGGED", kind: Jump}}, []Op{chance(0.5), dnat("10.1.1.1")},
					[]Op{dnat("10.1.1.2")}), svc("LOGGED", []Op{verdict(Next)})),
			},
			to: vip, want: "sent 10.1.1.1 0.5; sent 10.1.1.2 0.5",
		},
		{
			name: "two unknowns, one of which matters", tables: []*Table{
				filter(fwd(Drop, []Op{unknown("a"), verdict(Accept)}, []Op{unknown("b"), verdict(Drop)})),
			},
			to: vip, want: "?dropped 10.96.0.1 by filter FORWARD policy; ?sent 10.96.0.1", unsure: 1,
		},
		{
			name: "an unknown target", tables: []*Table{
				filter(fwd(Accept, []Op{op(func(*Context) Effect { return Effect{Kind: Opaque, Why: "what is it"} })})),
			},
			to: vip, want: "?not known 10.96.0.1 by filter FORWARD rule 1; ?sent 10.96.0.1", unsure: 1,
		},
		{
			name: "a jump to nowhere", tables: []*Table{filter(fwd(Accept, []Op{&jump{name: "GONE", kind: Jump}}))},
			to: vip, want: "?not known 10.96.0.1 by filter FORWARD rule 1; ?sent 10.96.0.1", unsure: 1,
		},
		{
			name: "a chain that could not be read", tables: []*Table{
				filter(&Chain{Name: "FORWARD", Unread: "no", Base: &Base{Hook: Forward, Policy: Accept}}),
			},
			to: vip, want: "?not known 10.96.0.1 by filter FORWARD policy; ?sent 10.96.0.1", unsure: 1,
		},
		{
			name: "two backends that agree", tables: []*Table{
				nat(pre([]Op{dnat("10.1.1.1")})), legacy(nat(pre([]Op{dnat("10.1.1.1")}))),
			},
			to: vip, want: "sent 10.1.1.1",
		},
		{
			name: "two backends that do not", tables: []*Table{
				nat(pre([]Op{dnat("10.1.1.1")})), legacy(nat(pre([]Op{dnat("10.1.1.2")}))),
			},
			to: vip, want: "?sent 10.1.1.1; ?sent 10.1.1.2", unsure: 1,
		},
		{
			name: "two backends, one of which only looks", tables: []*Table{
				nat(pre([]Op{dnat("10.1.1.1")})), legacy(nat(pre([]Op{verdict(Accept)}))),
			},
			to: vip, want: "sent 10.1.1.1",
		},
		{
			name: "three chains at one priority, of which one drops and another rejects",
			tables: []*Table{
				filter(fwd(Accept, []Op{verdict(Drop)})), legacy(filter(fwd(Accept, []Op{verdict(Reject)}))),
				{
					Family: IPv4, Backend: BackendNative, Name: "n", Chains: []*Chain{
						base("f", Forward, 0, TypeFilter, Accept, []Op{verdict(Accept)}),
					},
				},
			},
			to: vip, want: "?dropped 10.96.0.1 by filter FORWARD rule 1; ?rejected 10.96.0.1 by filter FORWARD rule 1",
			unsure: 1,
		},
		{
			name: "five chains at one priority",
			tables: []*Table{
				filter(fwd(Accept, []Op{verdict(Drop)})), legacy(filter(fwd(Accept, []Op{verdict(Reject)}))),
				{
					Family: IPv4, Backend: BackendNative, Name: "n", Chains: []*Chain{
						base("f", Forward, 0, TypeFilter, Accept, []Op{verdict(Accept)}),
						base("g", Forward, 0, TypeFilter, Accept, []Op{verdict(Accept)}),
						base("h", Forward, 0, TypeFilter, Accept, []Op{verdict(Accept)}),
					},
				},
			},
			to: vip, want: "?dropped 10.96.0.1 by filter FORWARD rule 1; ?not known 10.96.0.1", unsure: 1,
		},
		{
			name: "a loop ends", tables: []*Table{
				filter(fwd(Accept, []Op{&jump{name: "A", kind: Jump}}), svc("A", []Op{&jump{name: "A", kind: Jump}})),
			},
			to: vip, want: "?not known 10.96.0.1 by filter A rule 1; ?sent 10.96.0.1", unsure: 1,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rs := &Ruleset{Tables: tt.tables}
			rs.Link()
			from := tt.from
			if from != Output {
				from = Prerouting
			}
			res := NewWalker(rs, testHost(t), nil).Walk(send(from, tt.to), Options{Steps: true})
			if got := show(res); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if len(res.Uncertain) != tt.unsure {
				t.Errorf("%d uncertain things, want %d: %+v", len(res.Uncertain), tt.unsure, res.Uncertain)
			}
		})
	}
}

// The index must never hide a rule: a long chain gives the same answer with and without it. The NAT of OUTPUT looks up
// a new route at once: where there is none, the chains behind it do not see the packet.
func TestTranslationWithoutARouteEndsAtOnce(t *testing.T) {
	n, errs := host.Parse(host.Files{
		Addr: []byte(
			`[{"ifname":"eth0","addr_info":[{"family":"inet","local":"10.0.0.1","prefixlen":24,"scope":"global"}]}]`),
		Route4: []byte(
			`[{"dst":"default","gateway":"10.0.0.254","dev":"eth0"},{"type":"unreachable","dst":"10.66.0.0/24","dev":"lo"}]`),
	})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	rs := &Ruleset{Tables: []*Table{
		nat(base("OUTPUT", Output, -100, TypeNAT, Accept, []Op{dnat("10.66.0.5")})),
		filter(base("OUTPUT", Output, 0, TypeFilter, Accept, []Op{verdict(Reject)})),
	}}
	rs.Link()
	if got := show(NewWalker(rs, n, nil).Walk(send(Output, "10.96.0.1"), Options{})); got != "no route 10.66.0.5" {
		t.Error(got)
	}
}

// A packet that is translated to a loopback address in PREROUTING is not delivered, unless the node takes such packets
// from outside.
func TestLoopbackFromOutsideIsNotDelivered(t *testing.T) {
	rs := &Ruleset{Tables: []*Table{nat(base("PREROUTING", Prerouting, -100, TypeNAT, Accept, []Op{dnat("127.0.0.1")}))}}
	rs.Link()
	for sysctl, want := range map[string]string{
		"net.ipv4.conf.all.route_localnet = 0\nnet.ipv4.conf.cni0.route_localnet = 0\n": "no route 127.0.0.1",
		"net.ipv4.conf.all.route_localnet = 0\nnet.ipv4.conf.cni0.route_localnet = 1\n": "delivered 127.0.0.1",
		"net.ipv4.conf.all.route_localnet = 0\n": "?delivered 127.0.0.1; ?not known " +
			"127.0.0.1",
	} {
		n, errs := host.Parse(host.Files{
			Addr: []byte(
				`[{"ifname":"eth0","addr_info":[{"family":"inet","local":"10.0.0.1","prefixlen":24,"scope":"global"}]}]`),
			Sysctl: []byte(sysctl),
		})
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		if got := show(NewWalker(rs, n, nil).Walk(send(Prerouting, "10.96.0.1"), Options{})); got != want {
			t.Errorf("%s: got %s, want %s", sysctl, got, want)
		}
	}
}

func TestIndexHidesNothing(t *testing.T) {
	long := func(indexed bool) Result {
		c := base("PREROUTING", Prerouting, -100, TypeNAT, Accept)
		for i := range 200 {
			a := netip.AddrFrom4([4]byte{10, 96, 0, byte(i)})
			r := &Rule{Num: i + 1, Ops: []Op{dst(a.String()), chance(0.5), dnat("10.1.1.1")}}
			if indexed {
				r.Key.Dst = a
			}
			c.Rules = append(c.Rules, r)
			if i%3 == 0 {
				c.Rules = append(c.Rules, &Rule{Num: 1000 + i, Ops: []Op{mark(1 << (i % 30))}})
			}
		}
		rs := &Ruleset{Tables: []*Table{nat(c)}}
		rs.Link()
		return NewWalker(rs, testHost(t), nil).Walk(send(Prerouting, "10.96.0.77"), Options{})
	}
	if a, b := show(long(true)), show(long(false)); a != b || !strings.Contains(a, "10.1.1.1 0.5") {
		t.Errorf("with index %s\nwithout %s", a, b)
	}
}

// Found by holding the expectation against kube-proxy's code with a dump whose rules were all unknown: every unknown
// rule doubled the branches (n=12 took 16 s).
func TestManyUnknownRulesDoNotMultiply(t *testing.T) {
	const n = 40
	main := &Chain{Name: "S"}
	tb := nat(base("PREROUTING", Prerouting, -100, TypeNAT, Accept, []Op{&jump{name: "S", kind: Jump}}, []Op{
		ifMark(1), dnat("10.1.1.1"),
	}), main)
	for i := range n {
		name := fmt.Sprintf("C%d", i)
		tb.Chains = append(tb.Chains, &Chain{Name: name, Rules: rules([]Op{unknown("y"), &jump{name: "M", kind: Jump}})})
		main.Rules = append(main.Rules, &Rule{Num: i + 1, Text: name, Ops: []Op{unknown("x"), &jump{name: name, kind: Jump}}})
	}
	tb.Chains = append(tb.Chains, &Chain{Name: "M", Rules: rules([]Op{mark(1)})})
	rs := &Ruleset{Tables: []*Table{tb}}
	rs.Link()
	var res Result
	testutil.Promptly(t, func() { res = NewWalker(rs, testHost(t), nil).Walk(send(Prerouting, "10.96.0.1"), Options{}) })
	ends := map[string]bool{}
	for _, o := range res.Outcomes {
		if o.Certain {
			t.Errorf("certain: %+v", o)
		}
		ends[o.Packet.Dst.String()] = true
	}
	if len(ends) != 2 || len(res.Uncertain) == 0 {
		t.Errorf("%v, %d uncertain things", ends, len(res.Uncertain))
	}
}

func TestManyDifferentPossibilitiesEnd(t *testing.T) {
	c := base("PREROUTING", Prerouting, -100, TypeNAT, Accept)
	for i := range 30 { // 2^30 different marks
		c.Rules = append(c.Rules, &Rule{Num: i + 1, Text: fmt.Sprint(i), Ops: []Op{unknown("x"), mark(1 << i)}})
	}
	rs := &Ruleset{Tables: []*Table{nat(c)}}
	rs.Link()
	var res Result
	testutil.Promptly(t, func() { res = NewWalker(rs, testHost(t), nil).Walk(send(Prerouting, "10.96.0.1"), Options{}) })
	for _, o := range res.Outcomes {
		if o.Certain {
			t.Fatalf("certain: %+v", o)
		}
	}
}
