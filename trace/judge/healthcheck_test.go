// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// node are the files as they are now.
func (w *capturedNode) node() *snapshot.Node { return snapshot.NewNode("node1", w.files) }

// Ports at which load balancers ask for the health of a Service are judged by who listens and by a packet from outside.
func TestHealthCheckNodePorts(t *testing.T) {
	const local = "shop/lb-etp-local"
	for _, tt := range []struct {
		name, base string
		do         func(w *capturedNode)
		want       []string // code and subject, and the severity where it is not a warning
	}{
		{name: "as captured", base: "iptables"},
		{name: "as captured, nftables", base: "nftables"},
		{name: "as captured, ipvs", base: "ipvs"},
		{
			name: "nothing listens", base: "iptables",
			do:   func(w *capturedNode) { w.drop("listen.txt", ":31000") },
			want: []string{"HealthCheckNotServed " + local + " 31000"},
		},
		{
			name: "another process listens", base: "iptables",
			do:   func(w *capturedNode) { w.replace("listen.txt", `"kube-proxy"`, `"nginx"`, ":31000") },
			want: []string{"HealthCheckNotServed " + local + " 31000"},
		},
		{
			name: "kube-proxy listens at loopback alone", base: "iptables",
			do:   func(w *capturedNode) { w.replace("listen.txt", "0.0.0.0:31000", "127.0.0.1:31000", ":31000") },
			want: []string{"HealthCheckNotServed " + local + " 31000"},
		},
		{
			name: "kube-proxy listens at the node's address", base: "iptables",
			do: func(w *capturedNode) { w.replace("listen.txt", "0.0.0.0:31000", "10.77.0.11:31000", ":31000") },
		},
		{
			name: "whose socket it is was not collected", base: "iptables",
			do: func(w *capturedNode) { w.edit("listen.txt", oneLine("users:", "nobody:")) },
		},
		{
			name: "sockets were not collected", base: "iptables",
			do: func(w *capturedNode) { delete(w.files, "listen.txt") },
		},
		{
			name: "INPUT drops, where kube-proxy accepts before", base: "iptables",
			do: func(w *capturedNode) { w.policy(v4, "filter", "INPUT") },
		},
		{
			name: "INPUT drops, in front of kube-proxy", base: "iptables",
			do:   func(w *capturedNode) { w.first(v4, "filter", "INPUT", "-p tcp -m tcp --dport 31000 -j DROP") },
			want: []string{"HealthCheckBlocked " + local + " 10.77.0.11:31000"},
		},
		{
			name: "OUTPUT drops kube-proxy's answers", base: "iptables",
			do:   func(w *capturedNode) { w.first(v4, "filter", "OUTPUT", "-p tcp -m tcp --sport 31000 -j DROP") },
			want: []string{"HealthCheckBlocked " + local + " 10.77.0.11:31000"},
		},
		{
			name: "a rule translates the port to a pod", base: "iptables",
			do: func(w *capturedNode) {
				w.first(v4, "nat", "PREROUTING", "-p tcp -m tcp --dport 31000 -j DNAT --to-destination 10.244.1.47:8080")
			},
			want: []string{"HealthCheckBlocked " + local + " 10.77.0.11:31000"},
		},
		{
			name: "INPUT rejects, but not everybody", base: "iptables",
			do: func(w *capturedNode) {
				w.first(v4, "filter", "INPUT", "-p tcp -m tcp --dport 31000 -j REJECT")
				w.first(v4, "filter", "INPUT", "-s 10.9.0.0/16 -p tcp -m tcp --dport 31000 -j ACCEPT")
			},
			want: []string{"HealthCheckBlocked " + local + " 10.77.0.11:31000 (info)"},
		},
		{
			name: "INPUT drops by a rate", base: "iptables",
			do: func(w *capturedNode) {
				w.first(v4, "filter", "INPUT", "-p tcp -m tcp --dport 31000 -m limit --limit 1/sec -j DROP")
			},
		},
		{
			name: "kube-proxy listens for no Service", base: "iptables",
			do: func(w *capturedNode) {
				w.edit("listen.txt", func(l string) []string {
					if strings.Contains(l, ":31000") {
						return []string{l, strings.Replace(l, ":31000", ":31077", 1)}
					}
					return []string{l}
				})
			},
			want: []string{"HealthCheckStale 31077"},
		},
		{
			name: "another process listens in the range of NodePorts", base: "iptables",
			do: func(w *capturedNode) {
				w.edit("listen.txt", func(l string) []string {
					if strings.Contains(l, ":31000") {
						return []string{l, strings.NewReplacer(":31000", ":31077", "kube-proxy", "nginx").Replace(l)}
					}
					return []string{l}
				})
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, tt.base)
			if tt.do != nil {
				tt.do(w)
			}
			r := w.run()
			var got []string
			for _, code := range []string{HealthCheckNotServed, HealthCheckBlocked, HealthCheckStale} {
				for _, f := range nodeFindings(&r, code) {
					line := code + " " + f.Subject
					if f.Severity != report.Warn {
						line += " (" + string(f.Severity) + ")"
					}
					got = append(got, line)
				}
			}
			if strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}
