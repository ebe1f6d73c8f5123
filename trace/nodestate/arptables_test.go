// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"net/netip"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// Rules of arptables-legacy are walked: what they ask of that is known decides, and of the rest nothing is claimed.
// They are read as the helper writes them, and as arptables-legacy -nL prints them.
func TestArptables(t *testing.T) {
	h, errs := host.Parse(host.Files{})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	const in, out = "arptables filter INPUT ", "arptables filter OUTPUT "
	for text, want := range map[string]string{
		in + "-i eth0 --opcode 2 -j DROP":                         "dropped",
		in + "-j DROP -i eth0 -o * --opcode 2 , pcnt=0 -- bcnt=0": "dropped",
		in + "-i eth+ -s 10.79.0.0/24 -j DROP":                    "dropped",
		in + "! -i cni0 -s 10.79.0.12 -j DROP":                    "dropped",
		in + "-i cni0 -j DROP":                                    "delivered",
		in + "--opcode 1 -j DROP":                                 "delivered",
		in + "-s 10.79.0.13 -j DROP":                              "delivered",
		in + "! -s 10.79.0.0/24 -j DROP":                          "delivered",
		in + "-i eth0 -j ACCEPT\n" + in + "-j DROP":               "delivered",
		in + "-d 10.79.0.11 -j DROP":                              "dropped?, delivered?", // it is not known
		in + "… -j DROP":                                          "dropped?, delivered?",
		in + "-s 10.79.0.12 -j …":                                 "delivered?, not known?",
		in + "-s 10.79.0.12 -j mangle":                            "delivered?, not known?",
		in + "-i cni0 -j …":                                       "delivered",
		out + "-j DROP":                                           "delivered",
		"arptables filter FORWARD -j DROP":                        "delivered",
		in + "not-read -j not-read":                               "delivered?, not known?",
	} {
		tables, err := parsePrograms([]byte(text + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		rs := &netfilter.Ruleset{Tables: tables}
		rs.Link()
		res := netfilter.NewWalker(rs, h, nil).Resolve(&netfilter.Resolution{
			Dev: "eth0", Neighbour: netip.MustParseAddr("10.79.0.12"), Src: netip.MustParseAddr("10.79.0.12"), Answer: true,
		})
		got := map[string]bool{}
		for i := range res.Outcomes {
			o := &res.Outcomes[i]
			end := o.End.String()
			if !o.Certain {
				end += "?"
			}
			got[end] = true
		}
		ends := ""
		for _, end := range []string{"dropped", "dropped?", "delivered", "delivered?", "not known", "not known?"} {
			if got[end] {
				if ends != "" {
					ends += ", "
				}
				ends += end
			}
		}
		if ends != want {
			t.Errorf("%s: %s, want %s", text, ends, want)
		}
	}
	for _, bad := range []string{
		"arptables filter MINE -j DROP\n", "arptables mangle INPUT -j DROP\n", "arptables filter INPUT\n",
	} {
		if tables, err := parsePrograms([]byte(bad)); err == nil || len(tables) > 0 {
			t.Errorf("%q: %v, %v", bad, tables, err)
		}
	}
}
