// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
)

// asks is an op that finds the client in a list.
type asks struct{ ClientList }

func (asks) Run(*Context) Effect           { return Effect{} }
func (a asks) Remembers() (string, uint32) { return a.Name, a.Seconds }

// masquerades is an op that translates the source to an address.
type masquerades string

func (m masquerades) Run(c *Context) Effect {
	c.Packet.SNAT, c.Packet.Src, c.Packet.SrcPort = true, netip.MustParseAddr(string(m)), 0
	return Effect{Kind: Accept}
}
func (masquerades) Translates() NATKind { return Masquerade }

// What happens to a packet is told as data, and in the words that reports have.
func TestSteps(t *testing.T) {
	change := func(f func(p *Packet)) op {
		return func(c *Context) Effect { f(c.Packet); return Effect{} }
	}
	looked := Lookup{Set: "services", Element: SetElement{Addr: netip.MustParseAddr("10.96.0.1"), Proto: TCP, Port: 80}}
	client, service := netip.MustParseAddrPort("10.244.0.5:4000"), netip.MustParseAddrPort("10.96.0.1:80")
	endpoint := netip.MustParseAddrPort("10.1.1.1:8080")
	to := &Chain{Name: "TO", Rules: rules([]Op{verdict(Return)})}
	tests := []struct {
		name string
		ops  []Op
		want Step // but for Ref and P
		text string
	}{
		{name: "a verdict", ops: []Op{verdict(Accept)}, want: Step{Verdict: Accept}, text: "ACCEPT"},
		{name: "a drop", ops: []Op{verdict(Drop)}, want: Step{Verdict: Drop}, text: "DROP"},
		{name: "a reject", ops: []Op{verdict(Reject)}, want: Step{Verdict: Reject}, text: "REJECT"},
		{name: "a return", ops: []Op{verdict(Return)}, want: Step{Verdict: Return}, text: "RETURN"},
		{
			name: "taken", ops: []Op{op(func(*Context) Effect { return Effect{Kind: Stolen, Why: "by a proxy"} })},
			want: Step{Verdict: Stolen, Why: "by a proxy"}, text: "taken",
		},
		{
			name: "a goto by an element of a map", text: "goto TO",
			ops: []Op{op(func(c *Context) Effect {
				if !c.Steps {
					t.Error("the op is not told that steps are recorded")
				}
				return Effect{Kind: Goto, Chain: to, Lookup: &looked}
			})},
			want: Step{Kind: StepCall, Verdict: Goto, Target: to, Lookup: looked},
		},
		{
			name: "a jump for a client that is remembered", text: "jump TO",
			ops: []Op{
				asks{ClientList{"KUBE-SEP-A", 10800}}, op(func(*Context) Effect { return Effect{Kind: Jump, Chain: to} }),
			},
			want: Step{Kind: StepCall, Verdict: Jump, Target: to, Asked: ClientList{"KUBE-SEP-A", 10800}},
		},
		{
			name: "DNAT", ops: []Op{dnat("10.1.1.1")}, text: "DNAT to 10.1.1.1 port 8080",
			want: Step{Kind: StepTranslate, Verdict: Accept, NAT: Translation{DNAT, Destination, service, endpoint}},
		},
		{
			name: "DNAT to itself", ops: []Op{change(func(p *Packet) { p.DNAT = true })}, text: "continue", want: Step{
				Kind: StepChange,
			},
		},
		{
			name: "IPVS", text: "to 10.1.1.1:8080",
			ops: []Op{op(func(c *Context) Effect {
				p := *c.Packet
				p.Virtual, p.Dst, p.DstPort, p.DNAT = service, endpoint.Addr(), endpoint.Port(), true
				return Effect{Kind: Split, Alts: []Alt{{P: 1, Packet: p, Effect: Effect{Kind: Accept}}}}
			})},
			want: Step{Kind: StepTranslate, Verdict: Accept, NAT: Translation{Scheduled, Destination, service, endpoint}},
		},
		{
			name: "masquerade", ops: []Op{masquerades("10.0.0.1")}, text: "masquerade",
			want: Step{Kind: StepTranslate, Verdict: Accept, NAT: Translation{
				Masquerade, Source, client, netip.MustParseAddrPort("10.0.0.1:0"),
			}},
		},
		{name: "a mark", ops: []Op{mark(0x4000)}, want: Step{Kind: StepMark, Mark: Mark{Value: 0x4000}}, text: "mark 0x4000"},
		{
			name: "a mark of the connection", ops: []Op{change(func(p *Packet) { p.CTMark = 7 })},
			want: Step{Kind: StepMark, Mark: Mark{7, true}}, text: "connmark 0x7",
		},
		{
			name: "notrack", ops: []Op{change(func(p *Packet) { p.Untracked = true })}, want: Step{Kind: StepNotrack},
			text: "notrack",
		},
		{
			name: "a template", ops: []Op{change(func(p *Packet) { p.Template = true })},
			want: Step{Kind: StepTemplate}, text: "template of the connection",
		},
		{
			name: "a client is remembered", ops: []Op{change(func(p *Packet) { p.Recent += "KUBE-SEP-A " })},
			want: Step{Kind: StepRemember, List: "KUBE-SEP-A"}, text: "remember the client",
		},
		{
			name: "a client is forgotten", ops: []Op{change(func(p *Packet) { p.Recent += "!KUBE-SEP-A " })},
			want: Step{Kind: StepForget, List: "KUBE-SEP-A"}, text: "remember the client",
		},
		{
			name: "a set is changed", ops: []Op{change(func(p *Packet) { p.Recent += "set:pods " })},
			want: Step{Kind: StepChangeSet, List: "pods"}, text: "remember the client",
		},
		{
			name: "another change", ops: []Op{change(func(p *Packet) { p.OrigDstPort++ })}, want: Step{Kind: StepChange},
			text: "continue",
		},
		{
			name: "what is not known", ops: []Op{op(func(*Context) Effect { return Effect{Kind: Opaque, Why: "what is it"} })},
			want: Step{Kind: StepOpaque, Why: "what is it"}, text: "not known",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := base("PREROUTING", Prerouting, -100, TypeNAT, Accept, tt.ops)
			rs := &Ruleset{Tables: []*Table{nat(c, to)}}
			rs.Link()
			start := send(Prerouting, "10.96.0.1")
			start.Packet.SrcPort = 4000
			got := NewWalker(rs, testHost(t), nil).Walk(start, Options{Steps: true}).Steps[0]
			tt.want.Ref, tt.want.P = Ref{Prerouting, c, c.Rules[0]}, 1
			if got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
			if got.String() != tt.text {
				t.Errorf("got %q, want %q", got.String(), tt.text)
			}
		})
	}
}

func TestPolicyStep(t *testing.T) {
	c := base("FORWARD", Forward, 0, TypeFilter, Drop)
	rs := &Ruleset{Tables: []*Table{filter(c)}}
	rs.Link()
	steps := NewWalker(rs, testHost(t), nil).Walk(send(Prerouting, "10.96.0.1"), Options{Steps: true}).Steps
	want := Step{Kind: StepPolicy, Verdict: Drop, Ref: Ref{Hook: Forward, Chain: c}, P: 1}
	if len(steps) != 1 || steps[0] != want || steps[0].String() != "policy DROP" {
		t.Errorf("%+v", steps)
	}
}

// Branches on which a rule does the same are one step; details that they do not share are not the step's.
func TestStepsOfSeveralBranches(t *testing.T) {
	post := base("POSTROUTING", Postrouting, 100, TypeNAT, Accept, []Op{op(func(c *Context) Effect {
		c.Packet.SNAT, c.Packet.Src = true, c.Packet.Dst // whatever, as long as it is not the same
		return Effect{Kind: Accept}
	})})
	pre := base("PREROUTING", Prerouting, -100, TypeNAT, Accept, []Op{chance(0.25), dnat("10.1.1.1")}, []Op{
		dnat("10.1.1.2"),
	})
	rs := &Ruleset{Tables: []*Table{nat(pre, post)}}
	rs.Link()
	res := NewWalker(rs, testHost(t), nil).Walk(send(Prerouting, "10.96.0.1"), Options{Steps: true})
	var got []string
	for i := range res.Steps {
		s := &res.Steps[i]
		got = append(got, fmt.Sprintf("%s rule %d %v: %s", s.Ref.Chain.Name, s.Ref.Rule.Num, s.P, s))
	}
	want := []string{
		"PREROUTING rule 1 0.25: DNAT to 10.1.1.1 port 8080", "PREROUTING rule 2 0.75: DNAT to 10.1.1.2 port 8080",
		"POSTROUTING rule 1 1: masquerade",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if nat := res.Steps[2].NAT; nat.To.IsValid() || nat.From.Addr() != netip.MustParseAddr("10.244.0.5") {
		t.Errorf("%+v", nat)
	}
}

func TestRoutes(t *testing.T) {
	rs := &Ruleset{
		Tables: []*Table{nat(base("OUTPUT", Output, -100, TypeNAT, Accept, []Op{chance(0.25), dnat("10.0.0.1")}))},
	}
	rs.Link()
	w := NewWalker(rs, testHost(t), nil)
	res := w.Walk(send(Output, "10.96.0.1"), Options{Steps: true})
	var got []string
	for _, r := range res.Routes {
		got = append(got, fmt.Sprintf("%s %s %s %s %v", r.Before, r.Dst, r.Route.Type, r.Route.Dev, r.P))
	}
	want := []string{
		fmt.Sprintf("OUTPUT 10.96.0.1 %s eth0 1", host.RouteUnicast),
		fmt.Sprintf("POSTROUTING 10.0.0.1 %s lo 0.25", host.RouteLocal),
	}
	if !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if res = w.Walk(send(Prerouting, "10.0.0.1"), Options{Steps: true}); len(res.Routes) != 1 ||
		res.Routes[0].Before != Input {
		t.Errorf("%+v", res.Routes)
	}
	if res = w.Walk(send(Prerouting, "10.0.0.1"), Options{}); len(res.Routes) > 0 || len(res.Steps) > 0 {
		t.Error("steps were not asked for")
	}
}
