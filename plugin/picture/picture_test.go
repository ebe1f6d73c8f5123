// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
)

func TestNumbers(t *testing.T) {
	for _, tt := range []struct {
		in   []int
		want string
	}{
		{nil, ""},
		{[]int{3}, "3"},
		{[]int{2, 3}, "2,3"},
		{[]int{1, 2, 3}, "1-3"},
		{[]int{1, 3, 4, 5, 9}, "1,3-5,9"},
		{[]int{1, 3, 5, 7, 9}, "1,3,5,7,…"},
	} {
		if got := numbers(tt.in); got != tt.want {
			t.Errorf("numbers(%v) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

// examples are pictures with little and with much in them.
func examples() []Picture {
	chain := Chain{Table: "nat", Name: "KUBE-SERVICES", Rules: []int{3}}
	wrong := Chain{Table: "ip6 kube-proxy", Name: "service-" + strings.Repeat("n", 90) + "/tcp/p80", State: Wrong}
	lane := func(from string, chains ...Chain) Lane {
		stages := []Stage{{Hook: "PREROUTING", Chains: chains}, {Hook: "FORWARD", More: 3}}
		return Lane{From: []string{from}, Stages: stages}
	}
	many := Picture{Node: "worker-1", Frontend: "ClusterIP 10.96.0.1:80", Verdict: "mismatch"}
	many.Lanes = []Lane{
		lane("pod 10.244.1.9 (shop/client)", chain, wrong), lane("node 10.0.0.1", chain), {From: []string{"external"}},
	}
	for i := range 24 {
		many.Ends = append(many.Ends, End{
			Lines: []string{
				fmt.Sprintf("[2001:db8:1234:5678:9abc:def0:1234:%04d]:65535", i), strings.Repeat("a-long-name-", 9),
			},
			Status: "MISSING", State: State(i % 5), Share: "none, 4.2% expected", Missed: true,
		})
	}
	many.Ends = append(many.Ends, End{Lines: []string{"… and 200 more, all ok"}, Counts: true})
	one := Picture{
		Node: "worker-1", Service: "shop/web", Frontend: "NodePort *:30080", Verdict: "match",
		Lanes: []Lane{
			lane("anywhere", chain),
		}, Ends: []End{{Lines: []string{"10.244.1.4:8080"}, Status: "ok", Share: "100%"}},
	}
	return []Picture{one, many}
}

// Boxes are inside of the drawing, and text is inside of its box.
func TestSVGText(t *testing.T) {
	for _, p := range examples() {
		for _, s := range []*SVG{p.Wide("a"), p.Tall("b")} {
			if len(s.Boxes) < 3 {
				t.Fatalf("%s has %d boxes", s.Title, len(s.Boxes))
			}
			for _, b := range s.Boxes {
				if b.X < 0 || b.Y < 0 || b.X+b.W > s.W || b.Y+b.H > s.H {
					t.Errorf("%s: %q is outside of %d×%d", s.Class, b.Full, s.W, s.H)
				}
				for _, line := range b.Texts {
					if plaintext.Width(line.Text)*charTenths/10 > b.W-2*padding+1 || line.Y > b.Y+b.H {
						t.Errorf("%s: %q runs out of its box", s.Class, line.Text)
					}
				}
			}
		}
	}
}

// Every lane and every end is in the flowchart, and only what is missed has a dashed arrow.
func TestFlowchart(t *testing.T) {
	for _, p := range examples() {
		var mermaid bytes.Buffer
		Mermaid(&mermaid, []Drawing{&p}, "… and 2 more paths")
		missed := 0
		for i := range p.Ends {
			if p.Ends[i].Missed {
				missed++
			}
		}
		out := mermaid.String()
		for _, l := range p.Lanes {
			if !strings.Contains(out, l.From[0]) {
				t.Errorf("%q is not in the picture", l.From[0])
			}
		}
		for i := range p.Ends {
			if !strings.Contains(out, p.Ends[i].Lines[0]) {
				t.Errorf("%q is not in the picture", p.Ends[i].Lines[0])
			}
		}
		if !strings.Contains(out, "2 more paths") {
			t.Error("what was left out is not counted")
		}
		if got := strings.Count(out, "-.->"); got != missed {
			t.Errorf("%d dashed arrows, want %d", got, missed)
		}
	}
}

// A long text is broken where it is drawn, not where its box is named: there a piece of it would be a line of its own,
// which somebody else could have written.
func TestAPieceOfATextIsNoLineOfItsOwn(t *testing.T) {
	long := "web on " + strings.Repeat("worker ", 20) + "FORGED"
	p := Picture{
		Node: "worker-1", Frontend: "ClusterIP 10.96.0.1:80",
		Lanes: []Lane{{From: []string{"anywhere"}}}, Ends: []End{{Lines: []string{"10.244.1.4:8080", long}}},
	}
	for _, s := range []*SVG{p.Wide("a"), p.Tall("b")} {
		b := s.Boxes[len(s.Boxes)-1]
		if want := "10.244.1.4:8080\n" + long; b.Full != want || len(b.Texts) < 4 {
			t.Errorf("%s: %q with %d lines, want %q", s.Class, b.Full, len(b.Texts), want)
		}
	}
}
