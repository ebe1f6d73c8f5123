// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// TestLocalhostNodePorts is the alpha feature of 1.37: NodePorts at loopback addresses are served by kube-proxy itself
// in nftables mode.
func TestLocalhostNodePorts(t *testing.T) {
	const listening = "tcp LISTEN 0 4096 127.0.0.1:30080 0.0.0.0:* users:((\"kube-proxy\",pid=812,fd=12))\n"
	for _, tt := range []struct {
		name    string
		listen  string
		verdict report.Verdict
		code    string
	}{
		{"it listens", listening, report.Match, ""},
		{
			"nothing does",
			"tcp LISTEN 0 4096 127.0.0.1:22 0.0.0.0:* users:((\"sshd\",pid=1,fd=3))\n",
			report.Mismatch,
			ProxyNotListening,
		},
		{"someone else does", strings.Replace(listening, "kube-proxy", "nginx", 1), report.Mismatch, Shadowed},
		{"nobody looked", "", report.Unknown, NotCollected},
		{"nobody knows who", "tcp LISTEN 0 4096 127.0.0.1:30080 0.0.0.0:*\n", report.Unknown, NotCollected},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, "nftables")
			w.localhostNodePorts()
			w.files["listen.txt"] = []byte(tt.listen)
			if tt.listen == "" {
				delete(w.files, "listen.txt")
			}
			np := w.nodePort(30080)
			r := Files(w.cluster, snapshot.NewNode("node1", w.files), Request{
				Services: []types.NamespacedName{np}, Matching: true,
				Select: func(f expect.Frontend) bool { return f.Address.IsLoopback() && f.Address.Is4() && f.Port == 30080 },
			})
			if r.Error != "" || len(r.Paths) != 1 {
				t.Fatalf("%s: %+v", r.Error, r.Paths)
			}
			p := &r.Paths[0]
			if p.Expected.Action != string(expect.Proxy) || len(p.Expected.Endpoints) == 0 || p.Verdict != tt.verdict {
				t.Errorf("%s %+v %+v", p.Verdict, p.Expected, p.Findings)
			}
			if tt.code != "" && (len(p.Findings) != 1 || p.Findings[0].Code != tt.code) {
				t.Errorf("%+v", p.Findings)
			}
			if tt.verdict == report.Match && p.Actual.Outcomes[0].Listener != "process kube-proxy (812)" {
				t.Errorf("%+v", p.Actual.Outcomes)
			}
		})
	}
}

// localhostNodePorts turns on the feature in a node in nftables mode.
func (w *capturedNode) localhostNodePorts() {
	w.edit("configz.json", func(l string) []string {
		l = strings.Replace(l, `"nodePortAddresses":["primary"]`, `"nodePortAddresses":["127.0.0.0/8","10.77.0.0/16"]`, 1)
		return []string{
			strings.Replace(l, `"mode":`, `"featureGates":{"KubeProxyNFTablesLocalhostNodePorts":true},"mode":`, 1),
		}
	})
	w.edit("metrics.txt", func(l string) []string { return []string{strings.ReplaceAll(l, "v1.36.3", "v1.37.1")} })
}

// nodePort returns the Service that has a NodePort.
func (w *capturedNode) nodePort(port int32) types.NamespacedName {
	for _, s := range w.cluster.Services {
		for i := range s.Spec.Ports {
			if s.Spec.Ports[i].NodePort == port {
				return expect.NameOf(s)
			}
		}
	}
	w.t.Fatalf("no Service has NodePort %d", port)
	return types.NamespacedName{}
}

// TestUserspaceMode is a kube-proxy before 1.26: a rule brings the packet to kube-proxy, which chooses the endpoint.
func TestUserspaceMode(t *testing.T) {
	for _, tt := range []struct {
		name, listen string
		verdict      report.Verdict
		says         string
	}{
		{
			"it listens",
			"tcp LISTEN 0 4096 *:43321 *:* users:((\"kube-proxy\",pid=812,fd=12))\n",
			report.Unknown,
			"process kube-proxy (812) listens there",
		},
		{"nothing does", "tcp LISTEN 0 4096 *:22 *:* users:((\"sshd\",pid=1,fd=3))\n", report.Mismatch, "nothing does"},
		{"nobody looked", "", report.Unknown, "not collected"},
	} {
		w := openCaptured(t, "iptables")
		svc := w.cluster.Services[slices.IndexFunc(
			w.cluster.Services, func(s *corev1.Service) bool { return s.Name == "ep3" },
		)]
		for _, f := range []string{v4, v6} {
			w.files[f] = []byte("*nat\n:PREROUTING ACCEPT\n:OUTPUT ACCEPT\n:KUBE-PORTALS-CONTAINER -\n:KUBE-PORTALS-HOST -\n" +
				"-A PREROUTING -j KUBE-PORTALS-CONTAINER\n-A OUTPUT -j KUBE-PORTALS-HOST\nCOMMIT\n*filter\nCOMMIT\n")
		}
		w.files[v4] = []byte(strings.Replace(string(w.files[v4]), "COMMIT",
			"-A KUBE-PORTALS-CONTAINER -d "+svc.Spec.ClusterIP+"/32 -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 43321\n"+
				"-A KUBE-PORTALS-HOST -d "+svc.Spec.ClusterIP+"/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination "+
				"10.77.0.11:43321\nCOMMIT", 1))
		w.files["proxyMode.txt"] = []byte("userspace")
		w.edit("configz.json", oneLine(`"mode":"iptables"`, `"mode":"userspace"`))
		w.files["listen.txt"] = []byte(tt.listen)
		if tt.listen == "" {
			delete(w.files, "listen.txt")
		}
		r := Files(
			w.cluster,
			snapshot.NewNode("node1", w.files),
			Request{Services: []types.NamespacedName{expect.NameOf(svc)}, Matching: true},
		)
		if r.Error != "" || r.Mode.Actual != "userspace" ||
			slices.ContainsFunc(r.Findings, func(f report.Finding) bool { return f.Severity != report.Info }) {
			t.Fatalf("%s: %s %+v %+v", tt.name, r.Error, r.Mode, r.Findings)
		}
		judged := 0
		for i := range r.Paths {
			p := &r.Paths[i]
			if p.Frontend.Kind != "ClusterIP" || p.Frontend.Address != svc.Spec.ClusterIP {
				continue
			}
			judged++
			if p.Verdict != tt.verdict || len(p.Findings) != 1 || !strings.Contains(p.Findings[0].Message, tt.says) {
				t.Errorf("%s from %s: %s %+v", tt.name, p.Origin.Kind, p.Verdict, p.Findings)
			}
		}
		if judged != 2 {
			t.Errorf("%s: %d paths", tt.name, judged)
		}
	}
}
