// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// entry is a connection as conntrack -L prints it.
func entry(proto, state, client, to, answers string) string {
	numbers := map[string]int{"tcp": 6, "udp": 17, "sctp": 132}
	a, b := strings.LastIndexByte(client, ':'), strings.LastIndexByte(to, ':')
	c := strings.LastIndexByte(answers, ':')
	return fmt.Sprintf(
		"ipv4     2 %s %d 100 %s src=%s dst=%s sport=%s dport=%s src=%s dst=%s sport=%s dport=%s mark=0 use=1\n",
		proto,
		numbers[proto],
		state,
		client[:a],
		to[:b],
		client[a+1:],
		to[b+1:],
		answers[:c],
		client[:a],
		answers[c+1:],
		client[a+1:],
	)
}

// TestStaleConnections is kubernetes/kubernetes#125467 and its like: the rules are right, and the connections of old
// follow their entries.
func TestStaleConnections(t *testing.T) {
	w := openCaptured(t, "iptables")
	at := func(name, port string) (frontend, endpoint string) { // a Service's cluster IP, and an endpoint of it
		r := Files(w.cluster, snapshot.NewNode("node1", w.files), Request{Matching: true, PerPathService: true})
		for _, p := range r.Paths {
			if p.Service.Name == name && p.Frontend.Kind == "ClusterIP" && p.Frontend.PortName == port &&
				len(p.Expected.Endpoints) > 0 {
				e := p.Expected.Endpoints[0]
				return fmt.Sprintf("%s:%d", p.Frontend.Address, p.Frontend.Port), fmt.Sprintf("%s:%d", e.Address, e.Port)
			}
		}
		t.Fatalf("no Service %s with a port %s", name, port)
		return "", ""
	}
	dns, good := at("np-udp", "")
	web, pod := at("ep3", "")
	const client, gone = "10.244.1.5:40000", "10.244.9.9:5353"
	for _, tt := range []struct {
		name, entries string
		says          string // "" for nothing
		remedy        string
	}{
		{"none", "", "", ""},
		{"UDP to an endpoint", entry("udp", "", client, dns, good), "", ""},
		{
			"UDP to a pod that is gone",
			entry("udp", "", client, dns, gone),
			"to " + gone + ", which is not a serving endpoint",
			"conntrack -D -f ipv4 -p udp --orig-dst " + hostPart(dns) + " --orig-port-dst " + portPart(dns) +
				" --reply-src 10.244.9.9 (on node1)",
		},
		{
			"two clients",
			entry("udp", "", client, dns, gone) + entry("udp", "", "10.244.1.6:1", dns, gone),
			"2 UDP connections to " + dns + " lead",
			"",
		},
		{
			"UDP from before the rules",
			entry("udp", "[UNREPLIED]", client, dns, dns),
			"is not translated",
			"--reply-src " + hostPart(dns),
		},
		{"a TCP connection that goes on", entry("tcp", "ESTABLISHED", client, web, pod), "", ""},
		{"a TCP connection of a pod that was deleted", entry("tcp", "ESTABLISHED", client, web, gone), "", ""},
		{
			"TCP from before the rules, which is tried again and again",
			strings.Replace(entry("tcp", "SYN_SENT", client, web, web), " 100 SYN_SENT", " 119 SYN_SENT", 1),
			"is not translated", "-p tcp",
		},
		{"TCP from before the rules, which is over", entry("tcp", "SYN_SENT", client, web, web), "", ""},
		{"someone else's connection", entry("udp", "", client, "10.0.0.9:53", "10.0.0.9:53"), "", ""},
		{"a table that is full", "full", "is full", "nf_conntrack_max on node1"},
		{"a table that is nearly full", "nearly", "almost full", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			switch tt.entries {
			case "full":
				w.replace("sysctl.txt", "nf_conntrack_count=3", "nf_conntrack_count=262144")
			case "nearly":
				w.replace("sysctl.txt", "nf_conntrack_count=3", "nf_conntrack_count=250000")
			default:
				w.files["conntrack.txt"] = []byte(tt.entries)
			}
			var found []report.Finding
			r := w.run()
			for _, f := range r.Findings {
				if f.Severity != report.Info {
					found = append(found, f)
				}
			}
			if tt.says == "" {
				if len(found) > 0 || r.Verdict != report.Match {
					t.Errorf("%s %+v", r.Verdict, found)
				}
				return
			}
			if len(found) != 1 || !strings.Contains(found[0].Message, tt.says) ||
				!strings.Contains(remedyText(&found[0]), tt.remedy) ||
				r.Verdict == report.Match {
				t.Errorf("%s %+v", r.Verdict, found)
			}
		})
	}

	// Only what is asked for.
	w.files["conntrack.txt"] = []byte(entry("udp", "", client, dns, gone))
	for name, want := range map[string]bool{"np-udp": true, "ep3": false} {
		var svc types.NamespacedName
		for _, s := range w.cluster.Services {
			if s.Name == name {
				svc = types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
			}
		}
		r := Files(w.cluster, snapshot.NewNode("node1", w.files), Request{Services: []types.NamespacedName{svc}})
		if got := slices.ContainsFunc(
			r.Findings,
			func(f report.Finding) bool { return f.Code == ConntrackStale },
		); got != want {
			t.Errorf("asked for %s: %+v", name, r.Findings)
		}
	}
	w.files["conntrack.txt"] = []byte("tcp 6 what\n" + entry("udp", "", client, dns, gone))
	if r := w.run(); r.Error != "" || !slices.ContainsFunc(r.Findings, func(f report.Finding) bool {
		return f.Code == FileNotRead && strings.HasPrefix(f.Message, "conntrack.txt was read in part: line 1")
	}) || !slices.ContainsFunc(r.Findings, func(f report.Finding) bool { return f.Code == ConntrackStale }) {
		t.Errorf("%q %+v", r.Error, r.Findings)
	}
}

func hostPart(s string) string { return s[:strings.LastIndexByte(s, ':')] }
func portPart(s string) string { return s[strings.LastIndexByte(s, ':')+1:] }
