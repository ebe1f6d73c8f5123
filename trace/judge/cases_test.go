// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"strings"
	"testing"
)

// noneTells is a match that nothing in a snapshot tells of.
const noneTells = "-m quota --quota 1000 "

func casesFaults() []fault {
	first := func(table, chain string, rules ...string) func(w *capturedNode) {
		return func(w *capturedNode) {
			for i := range rules {
				w.first(v4, table, chain, rules[len(rules)-1-i])
			}
		}
	}
	return []fault{
		{
			name: "a mark that nothing asks for: both cases are right",
			do:   first("mangle", "PREROUTING", "-d 10.96.77.154/32 "+noneTells+"-j MARK --set-xmark 0x1000/0x1000"),
		},
		{
			name: "ACCEPT of what is accepted anyway",
			do:   first("filter", "FORWARD", "-d 10.244.2.20/32 "+noneTells+"-j ACCEPT"),
		},
		{
			name: "two marks: all four cases are right",
			do: first("mangle", "PREROUTING",
				"-d 10.96.77.154/32 "+noneTells+"-j MARK --set-xmark 0x1000/0x1000",
				"-d 10.96.77.154/32 -m quota --quota 2000 -j MARK --set-xmark 0x2000/0x2000"),
		},
		{
			name: "one case drops and the other rejects: both are wrong",
			do:   first("filter", "FORWARD", "-d 10.244.2.20/32 "+noneTells+"-j DROP", "-d 10.244.2.20/32 -j REJECT"),
			want: []string{ep3 + "pod → Mismatch: Dropped 10.244.2.20:8080; Rejected 10.244.2.20:8080"},
		},
		{
			name: "one case drops and the other does not",
			do:   first("filter", "FORWARD", "-d 10.244.2.20/32 "+noneTells+"-j DROP"),
			want: []string{ep3 + "pod → Unknown"},
		},
		{
			name: "a mark, and a rule that may drop: the cases differ",
			do: func(w *capturedNode) {
				first("mangle", "PREROUTING", "-d 10.96.77.154/32 "+noneTells+"-j MARK --set-xmark 0x1000/0x1000")(w)
				first("filter", "FORWARD", "-d 10.244.2.20/32 -m quota --quota 2000 -j DROP")(w)
			},
			want: []string{ep3 + "pod → Unknown"},
		},
		{
			name: "a rule that may drop what has the mark: the cases differ",
			do: func(w *capturedNode) {
				first("mangle", "PREROUTING", "-d 10.96.77.154/32 "+noneTells+"-j MARK --set-xmark 0x1000/0x1000")(w)
				first("filter", "FORWARD", "-d 10.244.2.20/32 -m mark --mark 0x1000/0x1000 -j DROP")(w)
			},
			want: []string{ep3 + "pod → Unknown"},
		},
		{
			name: "a chain that may end before KUBE-SERVICES, by either of two rules",
			do: first("nat", "PREROUTING", "-d 10.96.77.154/32 "+noneTells+"-j ACCEPT",
				"-d 10.96.77.154/32 -j DNAT --to-destination 192.0.2.9:80"),
			want: []string{ep3 + "pod → Mismatch: Shadowed"},
		},
		{
			name: "more than can be tried",
			do: func(w *capturedNode) {
				for i := range 8 {
					bit := "0x" + strings.Repeat("0", i/4) + string("1248"[i%4]) + strings.Repeat("0", 3+i/4)
					w.first(v4, "mangle", "PREROUTING",
						"-d 10.96.77.154/32 -m quota --quota "+string(rune('1'+i))+" -j MARK --set-xmark "+bit+"/"+bit)
				}
			},
			want: []string{ep3 + "pod → Unknown"},
		},
	}
}

// TestBothCasesOfAnUnknownMatchAreTried: where they agree, the verdict stands.
func TestBothCasesOfAnUnknownMatchAreTried(t *testing.T) { putIn(t, "iptables", casesFaults(), 8) }

// TestTheRuleThatDecidesIsNamed: an Unknown path says which rule could not be evaluated.
func TestTheRuleThatDecidesIsNamed(t *testing.T) {
	w := openCaptured(t, "iptables")
	w.first(v4, "filter", "FORWARD", "-d 10.244.2.20/32 "+noneTells+"-j DROP")
	for _, p := range w.run().Paths {
		if p.Service.Name != "ep3" || p.Origin.Kind != "pod" {
			continue
		}
		u := p.Actual.Uncertain
		if len(u) != 1 || !strings.Contains(u[0].Match, "--quota 1000 -j DROP") || u[0].Where.Rule != 1 {
			t.Errorf("uncertain: %+v", u)
		}
	}
}
