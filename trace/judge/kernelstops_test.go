// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// byLo has the node route the pods of the other node to itself.
func (w *capturedNode) byLo() {
	w.edit("ip-route.json", oneLine(`"gateway":"10.77.0.12","dev":"eth0"`, `"dev":"lo"`))
}

// What the kernel of the node does to packets behind the rules: the faults were made in a network namespace, and all
// connections failed; beside them what is nearly the same, where none failed.
func TestWhatTheKernelStopsBehindTheRules(t *testing.T) {
	const tcp = "net/netfilter/nf_conntrack_tcp_timeout_"
	for _, c := range []struct {
		name string
		do   func(w *capturedNode)
		want string // the code; "" for none of them
	}{
		{"as captured", func(*capturedNode) {}, ""},
		{"a route by lo", (*capturedNode).byLo, LeadsNowhere},
		{"forgotten before the answer", func(w *capturedNode) { w.set(tcp+"syn_sent", "0") }, ConnectionForgotten},
		{"forgotten once established", func(w *capturedNode) { w.set(tcp+"established", "0") }, ConnectionForgotten},
		{"forgotten when a packet is not acknowledged", func(w *capturedNode) {
			w.set(tcp+"unacknowledged", "0")
		}, ConnectionForgotten},
		{"forgotten while there is no window", func(w *capturedNode) { w.set(tcp+"max_retrans", "0") }, ConnectionForgotten},
		{"forgotten at the answer, of several endpoints", func(w *capturedNode) {
			w.set(tcp+"syn_recv", "0")
		}, ConnectionForgotten},
		{"forgotten at the end", func(w *capturedNode) { w.set(tcp+"time_wait", "0"); w.set(tcp+"close", "0") }, ""},
		{"forgotten soon", func(w *capturedNode) { w.set(tcp+"established", "60") }, ""},
		{"datagrams are forgotten", func(w *capturedNode) { w.set("net/netfilter/nf_conntrack_udp_timeout", "0") }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := openCaptured(t, "real-2node-iptables")
			c.do(w)
			r := w.run()
			if r.Error != "" {
				t.Fatal(r.Error)
			}
			found := map[string]report.Verdict{}
			for i := range r.Paths {
				if r.Paths[i].Frontend.Protocol != "TCP" {
					continue
				}
				for _, f := range r.Paths[i].Findings {
					switch f.Code {
					case LeadsNowhere, ConnectionForgotten:
						found[f.Code] = r.Paths[i].Verdict
					}
				}
			}
			if c.want == "" && len(found) > 0 || c.want != "" && (len(found) != 1 || found[c.want] != report.Mismatch) {
				t.Errorf("found %v, want %q", found, c.want)
			}
		})
	}
}

// A blackhole does not refuse: the client hangs. What it is told by other routes depends on where it is.
func TestHowConnectionsFailForWantOfARoute(t *testing.T) {
	pod := expect.Origin{Kind: expect.FromPod}
	own := expect.Origin{Kind: expect.FromNode}
	for _, c := range []struct {
		typ, text string
		from      *From
	}{
		{"blackhole", "dropped by a route; connections hang", &From{Kind: pod.Kind}},
		{"unreachable", `refused by a route; connections fail with "No route to host", or hang`, &From{Kind: pod.Kind}},
		{"prohibit", `refused by a route; connections fail with "No route to host", or hang`, &From{Kind: pod.Kind}},
		{"blackhole", "dropped by a route; connections hang", &From{Kind: own.Kind}},
		{"unreachable", "dropped by a route; connections hang", &From{Kind: own.Kind}},
	} {
		w := openCaptured(t, "real-2node-iptables")
		w.files["ip-route.json"] = []byte(strings.Replace(string(w.files["ip-route.json"]), "[",
			`[{"type":"`+c.typ+`","dst":"10.244.2.0/25","dev":"lo"},`, 1))
		r := Files(w.cluster, snapshot.NewNode("node1", w.files), Request{Matching: true, From: c.from})
		told := 0
		for i := range r.Paths {
			p := &r.Paths[i]
			for _, f := range p.Findings {
				if f.Code != RefusingRoute || p.Frontend.Protocol != "TCP" || !netip.MustParseAddr(p.Frontend.Address).Is4() {
					continue
				}
				actual, how, _ := strings.Cut(c.text, "; ")
				told++
				if f.Actual != actual || !strings.Contains(f.Message, "; "+how) {
					t.Errorf("%s from %s: %s: %s", c.typ, c.from.Kind, f.Actual, f.Message)
				}
			}
		}
		if told == 0 {
			t.Errorf("%s from %s: nothing is said", c.typ, c.from.Kind)
		}
	}
}

// These were MATCH, and in a network namespace connections from pods failed.
func TestFaultsThatWereMatch(t *testing.T) {
	for _, c := range []struct {
		name    string
		do      func(w *capturedNode)
		code    string
		verdict report.Verdict
	}{
		{"an endpoint at a broadcast address", func(w *capturedNode) {
			w.files["ip-route.json"] = []byte(strings.Replace(string(w.files["ip-route.json"]), "[",
				`[{"type":"broadcast","dst":"10.244.2.3","dev":"eth0","scope":"link"},`, 1))
		}, EndpointAddressTaken, report.Mismatch},
		{"what comes in by the uplink is not forwarded", func(w *capturedNode) {
			w.set("net/ipv4/conf/eth0/forwarding", "0")
		}, AnswerNotEvaluated, report.Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := openCaptured(t, "real-2node-iptables")
			count := func() (n int) {
				r := w.run()
				for i := range r.Paths {
					p := &r.Paths[i]
					for _, f := range p.Findings {
						if f.Code == c.code && p.Verdict == c.verdict && p.Origin.Kind == string(expect.FromPod) {
							n++
						}
					}
				}
				return n
			}
			if n := count(); n != 0 {
				t.Fatalf("%d paths as captured", n)
			}
			c.do(w)
			if count() == 0 {
				t.Error("no path")
			}
		})
	}
}
