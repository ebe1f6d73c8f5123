// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// spread are packets of many kinds.
var spread = func() (out []netfilter.Packet) {
	for _, addrs := range [][2]string{
		{"10.0.0.1", "10.96.0.1"},
		{"192.168.1.1", "10.0.0.2"},
		{"1.2.3.4", "5.6.7.8"},
		{"10.129.0.1", "10.0.0.1"},
		{"224.0.0.251", "192.168.0.5"},
		{"fd00::1", "fd00::2"},
		{"fe80::1", "fd01::1"},
		{"2001:db8::5", "::1"},
	} {
		for _, proto := range []uint8{netfilter.TCP, netfilter.UDP, netfilter.SCTP, netfilter.ICMP, netfilter.ICMPv6} {
			for i, port := range []uint16{22, 53, 80, 5353, 8080} {
				src, dst := netip.MustParseAddr(addrs[0]), netip.MustParseAddr(addrs[1])
				p := netfilter.Packet{
					Family: netfilter.FamilyOf(src), Proto: proto, Src: src, Dst: dst, SrcPort: 1024 * uint16(i), DstPort: port,
					In:  []string{"eth0", "lo", "cali1", "docker0", ""}[i],
					Out: []string{"", "lo", "", "eth0", "cni0"}[i], Mark: []uint32{0, 1, 0x10, 0x4000, 0x1201}[i],
					CTMark: []uint32{0, 0x10, 0x1f, 5, 1}[i],
				}
				p.OrigSrc, p.OrigDst, p.OrigDstPort = p.Src, p.Dst, p.DstPort
				out = append(out, p)
			}
		}
	}
	return out
}()

// effectText is an effect in words that two models of the same rules have in common.
func effectText(e netfilter.Effect) string {
	s := fmt.Sprintf("%d %q %v", e.Kind, e.Why, e.P)
	if e.Chain != nil {
		s += " " + e.Chain.Name
	}
	for _, alt := range e.Alts {
		s += fmt.Sprintf(" (%v: %s, %+v)", alt.P, effectText(alt.Effect), alt.Packet)
	}
	return s
}

// does runs the ops of a rule with a packet, and says what came of it.
func does(r *netfilter.Rule, base *netfilter.Base, n *host.Network, p netfilter.Packet) string {
	c := &netfilter.Context{Packet: &p, Hook: base.Hook, Base: base, Host: n}
	var out strings.Builder
	for _, o := range r.Ops {
		e := o.Run(c)
		out.WriteString(effectText(e) + "; ")
		if e.Kind == netfilter.Break || e.Kind == netfilter.Accept || e.Kind == netfilter.Drop {
			break
		}
	}
	return fmt.Sprintf("%s%+v", out.String(), p)
}

func sameTables(t *testing.T, got, want []*netfilter.Table) {
	t.Helper()
	n := smallHost(t)
	if len(got) != len(want) {
		t.Fatalf("%d tables, nft has %d", len(got), len(want))
	}
	rules, effects := 0, 0
	for i, table := range want {
		sizes := func(t *netfilter.Table) string {
			return fmt.Sprintf("table %s %s with %d chains and %d sets", t.Family, t.Name, len(t.Chains), len(t.Sets))
		}
		if sizes(got[i]) != sizes(table) {
			t.Fatalf("%s, nft has %s", sizes(got[i]), sizes(table))
		}
		for j, s := range table.Sets {
			if g, w := elementsOf(got[i].Sets[j]), elementsOf(s); got[i].Sets[j].Name() != s.Name() || !reflect.DeepEqual(g, w) {
				t.Errorf("the set %s:\n got %s\nnft  %s", s.Name(), g, w)
			}
		}
		for j, c := range table.Chains {
			g := got[i].Chains[j]
			if g.Name != c.Name || !reflect.DeepEqual(g.Base, c.Base) || g.Unread != c.Unread || len(g.Rules) != len(c.Rules) {
				t.Errorf("chain %s %+v with %d rules, nft has %s %+v with %d",
					g.Name, g.Base, len(g.Rules), c.Name, c.Base, len(c.Rules))
				continue
			}
			base := c.Base
			if base == nil {
				base = &netfilter.Base{Hook: netfilter.Prerouting}
			}
			for k, r := range c.Rules {
				rules++
				if sortedElements(g.Rules[k].Text) != sortedElements(r.Text) || g.Rules[k].Key != r.Key || g.Rules[k].NAT != r.NAT {
					t.Errorf("chain %s rule %d:\n got %s\nnft  %s", c.Name, k+1, g.Rules[k].Text, r.Text)
				}
				for _, p := range spread {
					effects++
					a, b := does(g.Rules[k], base, n, p), does(r, base, n, p)
					// nft does not print for which family's packets these are; the kernel says so.
					if strings.Contains(r.Text, "reject with tcp reset") || strings.Contains(r.Text, "ct protocol") {
						b = unprinted.ReplaceAllString(b, "")
					}
					if a != b {
						t.Errorf("chain %s: %s: with %v:\n got %s\nnft  %s", c.Name, r.Text, p, a, b)
						break
					}
				}
			}
		}
	}
	if rules < 100 {
		t.Errorf("only %d rules compared", rules)
	}
	t.Logf("%d rules, and what each does with %d packets", rules, effects/rules)
}

// unprinted is the effect of what nft leaves out of a rule.
var unprinted = regexp.MustCompile(`\d+ "nft does not print of a (reset|connection)[^"]*" 0; `)

func elementsOf(s netfilter.Set) (out []string) {
	for i := range s.(contents).elements {
		e := &s.(contents).elements[i]
		out = append(out, fmt.Sprint(e.first, e.last, e.data, e.effect.Kind, e.target))
	}
	slices.Sort(out)
	return append(out, s.(contents).unread, fmt.Sprint(s.(contents).seconds))
}

// inBraces are the elements of a set that has no name: nft sorts those of some types by what is none of their values.
var inBraces = regexp.MustCompile(`\{ [^{}]* \}`)

func sortedElements(text string) string {
	return inBraces.ReplaceAllStringFunc(text, func(s string) string {
		list := strings.Split(strings.Trim(s, "{ }"), ", ")
		slices.Sort(list)
		return "{ " + strings.Join(list, ", ") + " }"
	})
}

// What the helper writes of the kernel's answers, and what nft prints, are of the same rules, taken one after the other
// on Linux 6.18 with nft 1.0.6.
func TestDumpIsWhatNFTPrints(t *testing.T) {
	for _, name := range []string{"everything", "more"} {
		t.Run(name, func(t *testing.T) {
			want, err := Parse(readFile(t, name+".json"), nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Parse(readFile(t, name+".kernel.json"), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, tables := range [][]*netfilter.Table{got, want} {
				(&netfilter.Ruleset{Tables: tables}).Link()
			}
			sameTables(t, got, want)
		})
	}
}

// What nft 1.0.6 does not print as JSON, or prints so that it means something else.
func TestDumpHasWhatNFTDoesNotPrint(t *testing.T) {
	managed := func(family, table string) bool { return family == "ip" && (table == "nat" || table == "filter") }
	tables, err := Parse(readFile(t, "extra.kernel.json"), managed)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, table := range tables {
		for _, c := range table.Chains {
			got = append(got, table.Name+" "+c.Name+" "+c.Unread)
			for _, r := range c.Rules {
				got = append(got, r.Text)
			}
		}
	}
	want := []string{
		"filter mine ", "tcp dport 81 jump aside", "filter aside ", "counter drop",
		"extra input ", "tcp dport 80 jump __chain6", "add @tomark { ip saddr : 1 }", "ct original ip saddr 1.2.3.4 accept",
		// nft leaves out that the mark is set for TCP only.
		"meta l4proto tcp meta mark set 0x00000001 tcp dport 80 accept", "meta nfproto ipv4 igmp type 22 drop",
		"extra __chain6 ", "tcp sport 5 accept", "counter",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A table that the dump leaves out, and that is in no save file, is not taken for one without rules.
func TestDumpLeavesOutWhatNobodyShows(t *testing.T) {
	tables, err := Parse(readFile(t, "extra.kernel.json"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		if table.Name != "nat" {
			continue
		}
		if c := table.Chains[0]; c.Name != "PREROUTING" || c.Unread != unreadLeft {
			t.Errorf("%+v", c)
		}
		return
	}
	t.Error("the table nat is not there")
}

func BenchmarkParseOfKernel(b *testing.B) {
	data := readFile(b, "more.kernel.json")
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(data, nil); err != nil {
			b.Fatal(err)
		}
	}
}
