// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// raw gives the node a table raw of iptables.
func (w *capturedNode) raw(rules ...string) {
	w.files[v4] = fmt.Appendf(w.files[v4], "*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n%s\nCOMMIT\n",
		strings.Join(rules, "\n"))
}

// twoPorts gives the node a bridge with two pods' ports, of which one is in hairpin mode.
func (w *capturedNode) twoPorts() {
	port := `{"ifname":"%s","master":"cni0","linkinfo":{"info_kind":"veth","info_slave_kind":"bridge",` +
		`"info_slave_data":{"hairpin":%v}}}`
	w.files["ip-link.json"] = fmt.Appendf(nil, `[{"ifname":"lo"},{"ifname":"eth0"},{"ifname":"cni0"},`+port+","+port+`]`,
		"veth1", true, "veth2", false)
}

func TestAnswersAndLaterPackets(t *testing.T) {
	forward := func(rule string) func(w *capturedNode) {
		return func(w *capturedNode) { w.first(v4, "filter", "FORWARD", rule) }
	}
	raw := func(rules ...string) func(w *capturedNode) {
		return func(w *capturedNode) { w.raw(rules...) }
	}
	// Of ep3's path from a pod; "" for Match.
	for _, tt := range []struct {
		name string
		do   func(w *capturedNode)
		want string
	}{
		{"answers are dropped by their direction", forward("-m conntrack --ctdir REPLY -j DROP"), AnswerDropped},
		{"answers are dropped by their source", forward("-s 10.244.1.19/32 -j DROP"), AnswerDropped},
		{"answers are dropped by their flags", forward("-p tcp -m tcp --tcp-flags ALL SYN,ACK -j DROP"), AnswerDropped},
		{
			"answers are refused",
			forward("-p tcp -m conntrack --ctdir REPLY -j REJECT --reject-with tcp-reset"), AnswerDropped,
		},
		{
			"new connections pass, and nothing else does",
			forward("-m conntrack ! --ctstate NEW -s 10.244.0.0/16 -j DROP"), AnswerDropped,
		},
		{"answers of what is translated are dropped before they are translated back", func(w *capturedNode) {
			w.first(v4, "mangle", "PREROUTING", "-m conntrack --ctstate DNAT -j DROP") // seed 46 of the connections at random
		}, AnswerDropped},
		{"later packets are dropped", forward("-m conntrack --ctstate ESTABLISHED --ctdir ORIGINAL -j DROP"), ConnectionCut},
		{"later packets are dropped by their flags", forward("-p tcp -m tcp --tcp-flags SYN,ACK ACK -j DROP"), ConnectionCut},
		// kube-proxy's own rule drops the state INVALID.
		{"a zone for one direction", raw("-A PREROUTING -s 10.244.1.19/32 -j CT --zone 5"), AnswerDropped},
		{"answers are not tracked", raw("-A PREROUTING -s 10.244.1.19/32 -j NOTRACK"), AnswerLost},
		{
			"what is long is dropped", forward("-m conntrack --ctstate ESTABLISHED -m length --length 1000:2000 -j DROP"),
			AnswerNotEvaluated,
		},
		{
			"all but the endpoint's SYN,ACK is dropped",
			forward("-p tcp -m conntrack --ctdir REPLY -m tcp ! --tcp-flags SYN SYN -j DROP"), ConnectionCut,
		},
		{
			"packets from the endpoint's port are dropped, which may be a client's, too",
			forward("-p tcp -m tcp --sport 8080 ! --tcp-flags SYN SYN -j DROP"), ConnectionCut,
		},
		{
			"what is long and comes from the endpoint is dropped",
			forward("-m conntrack --ctdir REPLY -m length --length 100:65535 -j DROP"), AnswerNotEvaluated,
		},
		{"what ends connections is dropped", forward("-p tcp -m tcp --tcp-flags FIN FIN -j DROP"), AnswerNotEvaluated},
		{"the answer marks the connection, and what has the mark is dropped", func(w *capturedNode) {
			w.first(v4, "mangle", "PREROUTING", "-m conntrack --ctdir REPLY -j CONNMARK --set-xmark 0x2/0xffffffff")
			w.first(v4, "filter", "FORWARD", "-m conntrack --ctdir ORIGINAL -m connmark --mark 0x2 -j DROP")
		}, ConnectionCut},
		{"requests fill a set that answers are in", func(w *capturedNode) {
			w.files["ipset-save.txt"] = []byte("create seen hash:ip family inet hashsize 1024 maxelem 65536\n")
			w.first(v4, "filter", "FORWARD", "-m conntrack --ctdir ORIGINAL -j SET --add-set seen dst")
			w.first(v4, "filter", "FORWARD", "-m set --match-set seen src -j DROP")
		}, AnswerNotEvaluated},
		{"requests fill a set that the client's next connection is in", func(w *capturedNode) {
			w.files["ipset-save.txt"] = []byte("create seen hash:ip family inet hashsize 1024 maxelem 65536\n")
			w.first(v4, "filter", "FORWARD", "-p tcp -m tcp --tcp-flags SYN,ACK SYN -j SET --add-set seen src")
			w.first(v4, "filter", "FORWARD", "-p tcp -m tcp --tcp-flags SYN,ACK SYN -m set --match-set seen src -j DROP")
		}, AnswerNotEvaluated},
		// Nothing fails here.
		{"the answer marks the connection, and nothing asks for it", func(w *capturedNode) {
			w.first(v4, "mangle", "PREROUTING", "-m conntrack --ctdir REPLY -j CONNMARK --set-xmark 0x2/0xffffffff")
		}, ""},
		{"a mark of the connection changes with each packet", func(w *capturedNode) {
			w.first(v4, "mangle", "PREROUTING", "-j CONNMARK --set-xmark 0x2/0x0")
		}, ""},
		{"a zone for both directions", raw("-A PREROUTING -j CT --zone 5", "-A OUTPUT -j CT --zone 5"), ""},
		{"a zone of the original direction", raw("-A PREROUTING -d 10.96.0.0/16 -j CT --zone-orig 5"), ""},
		{"INVALID is dropped", forward("-m conntrack --ctstate INVALID -j DROP"), ""},
		{"established ones pass first", func(w *capturedNode) {
			w.first(v4, "filter", "FORWARD", "-s 10.244.2.20/32 -j DROP")
			w.first(v4, "filter", "FORWARD", "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
		}, ""},
		{"the frontend is not a source of answers in FORWARD", forward("-s 10.96.77.154/32 -j DROP"), ""},
		{"the client's port", forward("-p tcp -m tcp --dport 8080 -m conntrack --ctdir REPLY -j LOG"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			tt.do(w)
			r := w.run()
			seen := false
			for i := range r.Paths {
				p := &r.Paths[i]
				if p.Frontend.Address != ep3At.Addr().String() || p.Origin.Kind != "pod" {
					continue
				}
				seen = true
				codes := codesOfAll(p.Findings)
				if tt.want == "" && (p.Verdict != report.Match || len(codes) > 0) ||
					tt.want != "" && !slices.Equal(codes, []string{tt.want}) {
					t.Errorf("%s %v, want %q: %+v", p.Verdict, codes, tt.want, p.Findings)
				}
			}
			if !seen {
				t.Error("the path is not there")
			}
		})
	}
}

func codesOfAll(fs []report.Finding) (out []string) {
	for i := range fs {
		if !slices.Contains(out, fs[i].Code) {
			out = append(out, fs[i].Code)
		}
	}
	return out
}

// TestAnswersToAPortThatIsNotKnown: a rule for a range of ports may be for the one that a process of the node gets,
// which is the destination of the answer. Such a range was compared with the number 0, and never held.
func TestAnswersToAPortThatIsNotKnown(t *testing.T) {
	for _, tt := range []struct {
		name, rule string
		want       report.Verdict
	}{
		{"a range of ephemeral ports", "-p tcp -m tcp --dport 32768:60999 -j DROP", report.Unknown},
		{"all ports", "-p tcp -m tcp --dport 0:65535 -j DROP", report.Mismatch},
		{"all ports but one", "-p tcp -m tcp ! --dport 22 -j DROP", report.Mismatch},
		{"a port that no socket gets by itself", "-p tcp -m tcp --dport 111 -j DROP", report.Match},
		{"another protocol", "-p udp -m udp --dport 32768:60999 -j DROP", report.Match},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, base(""))
			w.first(v4, "filter", "INPUT", tt.rule)
			found := false
			for _, p := range w.run().Paths {
				if p.Service.Name == "ep3" && p.Origin.Kind == string(expect.FromNode) &&
					!strings.Contains(p.Frontend.Address, ":") {
					found = true
					if p.Verdict != tt.want {
						t.Errorf("%s, want %s: %+v", p.Verdict, tt.want, p.Findings)
					}
				}
			}
			if !found {
				t.Error("there is no such path")
			}
		})
	}
}

// TestLaterPacketsFromAnotherSource: IPVS translates the destination of what is not tracked, too, and nothing
// masquerades it: the endpoint does not know the connection. Only the destination of later packets was compared with
// the first's.
func TestLaterPacketsFromAnotherSource(t *testing.T) {
	w := openCaptured(t, base("ipvs"))
	w.files["ip-rule.json"] = []byte(`[{"priority":0,"src":"all","table":"local"},` +
		`{"priority":32766,"src":"all","table":"main"},{"priority":32767,"src":"all","table":"default"}]`)
	w.files["ip-route.json"] = []byte(`[{"dst":"default","gateway":"10.77.0.1","dev":"eth0","flags":[]},` +
		`{"dst":"10.77.0.0/24","dev":"eth0","scope":"link","prefsrc":"10.77.0.11","flags":[]},` +
		`{"type":"local","dst":"10.77.0.11","dev":"eth0","table":"local","scope":"host","prefsrc":"10.77.0.11","flags":[]}]`)
	w.raw("-A PREROUTING -p tcp -m tcp --tcp-flags SYN,ACK ACK -j NOTRACK")
	cut, passed := 0, 0
	for _, p := range w.run().Paths {
		if p.Origin.Kind != string(expect.FromExternal) || p.Frontend.Kind != "NodePort" ||
			p.Frontend.Protocol != "TCP" || p.Expected.Action != "DNAT" || strings.Contains(p.Frontend.Address, ":") {
			continue
		}
		switch masqueraded := p.Expected.Masquerade == "Always"; {
		case masqueraded && slices.Contains(codesOfAll(p.Findings), ConnectionCut) && p.Verdict == report.Mismatch:
			cut++
		case masqueraded:
			t.Errorf("%+v: %s %+v", p.Frontend, p.Verdict, p.Findings)
		case slices.Contains(codesOfAll(p.Findings), ConnectionCut):
			t.Errorf("%+v is not masqueraded: %+v", p.Frontend, p.Findings)
		default:
			passed++
		}
	}
	if cut == 0 || passed == 0 {
		t.Errorf("%d paths are cut, %d not", cut, passed)
	}
}

// TestAddressesThatAreNotKnownAreNotPrinted: without routes the address that a source is translated to is not known,
// and was printed as "invalid IP".
func TestAddressesThatAreNotKnownAreNotPrinted(t *testing.T) {
	for _, fixture := range []string{"", "ipvs", "nftables"} {
		w := openCaptured(t, base(fixture))
		delete(w.files, "ip-route.json")
		delete(w.files, "ip6-route.json")
		w.raw("-A PREROUTING -p tcp -m tcp --tcp-flags SYN,ACK ACK -j NOTRACK")
		for _, p := range w.run().Paths {
			if text := fmt.Sprintf("%+v", p.Findings); strings.Contains(text, "invalid ") {
				t.Errorf("%s: %s", fixture, text)
			}
		}
	}
}

// TestTheOrderOfRealServersDoesNotShow: in ipvs mode the same answers were lost of endpoints in another order for each
// frontend, and one finding read as several.
func TestTheOrderOfRealServersDoesNotShow(t *testing.T) {
	subjects := func(reversed bool) []string {
		w := openCaptured(t, "ipvs")
		w.sysctl("net/ipv4/vs/conntrack", "0")
		if reversed {
			var out, reals []string
			for line := range strings.Lines(string(w.files["ipvsadm.txt"])) {
				if strings.HasPrefix(line, "-a ") {
					reals = append([]string{line}, reals...)
					continue
				}
				out, reals = append(append(out, reals...), line), nil
			}
			w.files["ipvsadm.txt"] = []byte(strings.Join(append(out, reals...), ""))
		}
		found := map[string]bool{}
		r := w.run()
		for i := range r.Paths {
			for _, f := range r.Paths[i].Findings {
				if f.Code == AnswerDropped && strings.Contains(f.Subject, ",") {
					found[f.Subject] = true
				}
			}
		}
		return slices.Sorted(maps.Keys(found))
	}
	before, after := subjects(false), subjects(true)
	if len(before) == 0 || !slices.Equal(before, after) {
		t.Errorf("%q, and with real servers in the other order %q", before, after)
	}
}

// TestLaterPacketsOfTheNode: those of the node's own connections are routed to the frontend first, and to the endpoint
// once they are translated.
func TestLaterPacketsOfTheNode(t *testing.T) {
	for _, tt := range []struct{ name, table, chain, rule, want string }{
		{
			"dropped in OUTPUT", "filter", "OUTPUT",
			"-m conntrack --ctstate ESTABLISHED --ctdir ORIGINAL -j DROP", ConnectionCut,
		},
		{"dropped behind OUTPUT", "mangle", "POSTROUTING", "-m conntrack --ctstate ESTABLISHED -j DROP", ConnectionCut},
		{"dropped by flags", "filter", "OUTPUT", "-o eth0 -p tcp -m tcp --tcp-flags SYN,ACK ACK -j DROP", ConnectionCut},
		{"another interface", "filter", "OUTPUT", "-o eth7 -p tcp -m tcp --tcp-flags SYN,ACK ACK -j DROP", ""},
		{"answers alone", "filter", "OUTPUT", "-m conntrack --ctstate ESTABLISHED --ctdir REPLY -j DROP", ""},
		{"a mark without a route", "mangle", "OUTPUT", "-m conntrack --ctstate ESTABLISHED -j MARK --set-mark 0x7", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			w.first(v4, tt.table, tt.chain, tt.rule)
			seen := 0
			for _, p := range w.run().Paths {
				if p.Frontend.Address != ep3At.Addr().String() || p.Origin.Kind != string(expect.FromNode) {
					continue
				}
				seen++
				if got := strings.Join(codesOfAll(p.Findings), " "); got != tt.want {
					t.Errorf("%s %q, want %q: %+v", p.Verdict, got, tt.want, p.Findings)
				}
			}
			if seen == 0 {
				t.Error("the path is not there")
			}
		})
	}
}

// TestAnswersThatLeaveElsewhere: a route for what comes in by the endpoint's interface alone led answers away from the
// pod that waits for them, and the short check of answers did not compare where they leave.
func TestAnswersThatLeaveElsewhere(t *testing.T) {
	for _, tt := range []struct{ name, table, want string }{
		{"back to the pod", "254", ""},
		{"to the uplink", "100", AnswerLost},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			w.files["ip-route.json"] = []byte(`[{"dst":"default","gateway":"10.77.0.1","dev":"eth0","flags":[]},` +
				`{"dst":"10.77.0.0/24","dev":"eth0","scope":"link","prefsrc":"10.77.0.11","flags":[]},` +
				`{"dst":"10.244.1.0/24","dev":"cni0","scope":"link","prefsrc":"10.244.1.1","flags":[]},` +
				`{"dst":"10.244.1.0/24","dev":"eth0","table":"100","scope":"link","flags":[]},` +
				`{"type":"local","dst":"10.244.1.1","dev":"cni0","table":"local","scope":"host","prefsrc":"10.244.1.1","flags":[]},` +
				`{"type":"local","dst":"10.77.0.11","dev":"eth0","table":"local","scope":"host","prefsrc":"10.77.0.11","flags":[]}]`)
			w.files["ip-rule.json"] = []byte(`[{"priority":0,"src":"all","table":"local"},` +
				`{"priority":100,"src":"all","dst":"10.244.1.0","dstlen":24,"iif":"eth0","table":"` + tt.table + `"},` +
				`{"priority":32766,"src":"all","table":"main"},{"priority":32767,"src":"all","table":"default"}]`)
			lost, seen := 0, 0
			for _, p := range w.run().Paths {
				if p.Origin.Kind != string(expect.FromPod) || p.Expected.Action != "DNAT" ||
					strings.Contains(p.Frontend.Address, ":") {
					continue
				}
				seen++
				codes := codesOfAll(p.Findings)
				if slices.Contains(codes, AnswerLost) || slices.Contains(codes, AnswerNotEvaluated) {
					lost++
				}
			}
			if seen == 0 || (lost > 0) != (tt.want != "") {
				t.Errorf("%d of %d paths", lost, seen)
			}
		})
	}
}

// TestAnswersWithoutARoute: their remedy was that of connection tracking's zones.
func TestAnswersWithoutARoute(t *testing.T) {
	w := openCaptured(t, "iptables")
	w.files["ip-route.json"] = []byte(`[{"dst":"10.244.1.0/24","dev":"cni0","scope":"link","prefsrc":"10.244.1.1","flags":[]},` +
		`{"dst":"10.77.0.0/24","dev":"eth0","scope":"link","prefsrc":"10.77.0.11","flags":[]},` +
		`{"dst":"10.244.2.0/24","gateway":"10.77.0.12","dev":"eth0","flags":[]}]`)
	seen := 0
	for _, p := range w.run().Paths {
		for _, f := range p.Findings {
			if f.Code != AnswerLost || p.Origin.Kind != string(expect.FromExternal) {
				continue
			}
			seen++
			if !strings.Contains(f.Remedy, "give node1 a route to "+p.Origin.Address) ||
				!slices.ContainsFunc(f.Commands, func(c report.Command) bool {
					return strings.HasPrefix(c.Line, "ip route get "+p.Origin.Address) && c.Node == "node1"
				}) {
				t.Errorf("%s %+v", f.Remedy, f.Commands)
			}
		}
	}
	if seen == 0 {
		t.Error("no answer is lost: the test proves nothing")
	}
}
