// SPDX-License-Identifier: Apache-2.0

package random

import (
	"math/rand/v2"
	"net/netip"
	"syscall"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// one is a rule set of one table of both families: a base chain, and others that it calls.
func one(base string, rules []string, others ...*chain) *ruleSet {
	chains := []*chain{{name: "base", base: base, rules: rules}}
	return &ruleSet{tables: []*table{
		{backend: netfilter.BackendNative, family: "inet", name: "n0", chains: append(chains, others...)},
	}}
}

// Rule sets of which the walk, or this test, once said something else than the kernel.
func TestRuleSetsThatDiffered(t *testing.T) {
	if !testutil.Isolate(t, syscall.CLONE_NEWNET, tools...) {
		return
	}
	w, err := newKernelNode(t)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if err := w.load(&ruleSet{}); err != nil {
		t.Skipf("the rules that watch the packets are not taken: %v", err)
	}
	const output = "type route hook output priority 60; policy accept;"
	const prerouting = "type filter hook prerouting priority 0; policy accept;"
	four := packet{
		proto: netfilter.UDP, src: netip.MustParseAddrPort("10.77.0.12:33001"),
		dst: netip.MustParseAddrPort("192.0.2.7:8080"),
	}
	six := packet{
		proto: netfilter.TCP, src: netip.MustParseAddrPort("[fd00:77::21]:33001"),
		dst: netip.MustParseAddrPort("[fd00:244:1::1]:8080"), in: "eth0",
	}
	for _, c := range []struct {
		name   string
		rules  *ruleSet
		packet packet
		tests  int // of shares
	}{
		{
			"a rule that chance decides at each of two calls of its chain",
			one(output, []string{"ct mark set 0x1 jump r0", "jump r0"},
				&chain{name: "r0", depth: 1, rules: []string{"numgen random mod 2 offset 3 == 3 jump r1"}},
				&chain{name: "r1", depth: 2}),
			four, 0,
		},
		{
			"chance, and what is not known but the same for all packets",
			one(output, []string{"numgen random mod 2 == 0 meta mark set 0x1", "meta length > 1000 meta mark set 0x2"}),
			four, 0,
		},
		{
			"chance between a certain outcome and what is not known but the same for all packets",
			one(output, []string{"numgen random mod 2 == 0 drop", "meta length > 1000 meta mark set 0x2"}),
			four, 1,
		},
		{
			"a condition on the family before the protocol of the connection",
			one(prerouting, []string{"meta protocol ip ct protocol tcp jump r0"}, &chain{name: "r0", depth: 1}), six, 0,
		},
		{
			"a condition on the family before the protocol of the connection's original direction",
			one(prerouting, []string{"meta protocol ip ct original protocol tcp drop"}), six, 0,
		},
	} {
		if err := w.load(c.rules); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		g := &generator{Rand: rand.New(rand.NewPCG(1, 0)), vocabulary: everything()}
		f := figures{why: map[string]int{}}
		if d := w.repeat(t, g, c.rules, c.packet, &f); d != nil {
			t.Errorf("%s: %v: %s\n%s\nkernel: %v", c.name, d.packet, d.judged.what, d.rules, &d.answer)
		}
		if f.cases != repeats {
			t.Errorf("%s: %d packets of %d were sent", c.name, f.cases, repeats)
		}
		if f.tests < c.tests {
			t.Errorf("%s: %d shares were tested, want %d", c.name, f.tests, c.tests)
		}
	}
}

// What connection tracking does not see of the answers decides what it says of later packets: the walk took a datagram
// for ESTABLISHED whose answer was tracked in another zone, and an ACK for one of the connection.
func TestConnectionsWhoseAnswersAreTrackedElsewhere(t *testing.T) {
	testutil.Long(t)
	if !testutil.Isolate(t, syscall.CLONE_NEWNET, tools...) {
		return
	}
	x := newExchanger(t)
	const answers = "type filter hook prerouting priority -310; policy accept;"
	var f exchanges
	for _, elsewhere := range []string{
		"ip saddr 10.244.2.9 ct zone set 5", "ip saddr 10.244.2.9 ct reply zone set 5", "ip saddr 10.244.2.9 notrack",
		"tcp flags & (syn|ack) == syn|ack ct zone set 5", "tcp flags & (syn|ack) == syn|ack notrack",
		"udp sport 443 meta length < 100 notrack",
	} {
		for _, hook := range []string{"output", "postrouting"} {
			for _, drop := range []string{
				"ct state established", "ct state invalid", "ct status seen-reply", "ct status != seen-reply, dnat",
				"ct status assured", "ct direction original ct state established", "ct mark 0x5",
			} {
				rs := &ruleSet{tables: []*table{{
					backend: netfilter.BackendNative, family: "inet", name: "n0", chains: []*chain{
						{name: "answers", base: answers, rules: []string{elsewhere}},
						{
							name: "marks", base: "type filter hook output priority -150; policy accept;",
							rules: []string{"ct mark set 0x5"},
						},
						{
							name: "later", base: "type filter hook " + hook + " priority 10; policy accept;",
							rules: []string{drop + " drop"},
						},
					},
				}}}
				if err := x.load(rs); err != nil {
					t.Fatalf("%v\n%s", err, rs)
				}
				for _, proto := range []uint8{netfilter.TCP, netfilter.UDP} {
					p := packet{
						proto: proto, src: netip.MustParseAddrPort("10.77.0.11:33002"),
						dst: netip.MustParseAddrPort("10.244.2.9:443"),
					}
					what, err := x.check(p, &f)
					if err != nil {
						t.Fatalf("%v: %v\n%s", p, err, rs)
					}
					if what != "" {
						t.Errorf("%v: %s\n%s", p, what, rs)
					}
				}
			}
		}
	}
	t.Logf("%+v", f)
	if f.cases == 0 || f.followed == 0 || f.cut == 0 {
		t.Errorf("nothing is compared: %+v", f)
	}
}
