// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// What a process in a pod says is used if the API knows the pod on the node as kube-proxy's; where it was not asked,
// that is said. Of a pod that it does not know nothing is used, nor is it called down.
func TestTheAPIConfirmsKubeProxysPod(t *testing.T) {
	const uid = "f3a1c2d4-0000-4000-8000-000000000001"
	const inPod = "0::/kubepods.slice/kubepods-podf3a1c2d4_0000_4000_8000_000000000001.slice/cri-x.scope"
	const static = "0::/kubepods/burstable/pod0123456789abcdef0123456789abcdef/x"
	for name, tt := range map[string]struct {
		group   string
		pods    []*corev1.Pod
		missing bool
		by      report.Voucher
		why     string // it is not taken
	}{
		"a service of the node": {group: "0::/system.slice/kube-proxy.service", by: report.VouchedByNode},
		"its pod":               {group: inPod, pods: []*corev1.Pod{aProxyPod(nil)}, by: report.VouchedByAPI},
		"its static pod": {
			group: static, by: report.VouchedByAPI,
			pods: []*corev1.Pod{aProxyPod(func(p *corev1.Pod) {
				static := "0123456789abcdef0123456789abcdef"
				p.UID, p.Annotations = "of-the-mirror", map[string]string{snapshot.StaticPodAnnotations[1]: static}
			})},
		},
		"pods of other namespaces were read": {group: inPod, by: report.VouchedByKubelet},
		"pods were not read":                 {group: inPod, missing: true, by: report.VouchedByKubelet},
		"another pod": {
			group: strings.Replace(inPod, "f3a1", "ffff", 1), pods: []*corev1.Pod{aProxyPod(nil)},
			why: "the API has no pod ffffc2d4-0000-4000-8000-000000000001 on this node",
		},
		"a pod of another node": {
			group: inPod, why: "the API has no pod " + uid + " on this node",
			pods: []*corev1.Pod{
				aProxyPod(func(p *corev1.Pod) { p.Spec.NodeName = "node2" }),
				aProxyPod(func(p *corev1.Pod) { p.UID = "x" }),
			},
		},
		"a tenant's pod": {
			group: inPod, why: "its pod evil/kube-proxy-x7k2p is none that runs kube-proxy with the right to write rules",
			pods: []*corev1.Pod{aProxyPod(func(p *corev1.Pod) { p.Namespace = "evil" })},
		},
		"a tenant's pod in a network of its own": {
			group: inPod, why: "its pod evil/kube-proxy-x7k2p is none that runs kube-proxy with the right to write rules",
			pods: []*corev1.Pod{aProxyPod(func(p *corev1.Pod) {
				p.Namespace, p.Spec.HostNetwork = "evil", false
				p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
			})},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			w.files[snapshot.ProcessesFile] = snapshot.EncodeProcesses([]snapshot.Process{
				{PID: 1, Name: "systemd"}, {PID: 812, Name: "kube-proxy", Cgroup: tt.group},
			})
			w.cluster.Pods = append(w.cluster.Pods, tt.pods...)
			if tt.missing {
				w.cluster.Pods, w.cluster.Missing = nil, append(w.cluster.Missing, "pods")
			}
			r := w.modeOf()
			m := r.Mode
			found := ""
			for _, f := range r.Findings {
				switch f.Code {
				case ProcessNotTaken:
					found = f.Message
				case KubeProxyDown:
					t.Errorf("it is called down: %s", f.Message)
				}
			}
			if m.VouchedBy != tt.by || tt.why == "" != (found == "") || !strings.Contains(found, tt.why) {
				t.Errorf("vouched for by %q, want %q; not taken: %q, want %q", m.VouchedBy, tt.by, found, tt.why)
			}
			used := m.Reported != "" || m.KubeProxyVersion != "" || m.ConfigSource == snapshot.ConfigzFile
			if used != (tt.why == "") {
				t.Errorf("what it says is used: %+v", m)
			}
			if m.Actual != "iptables" || r.Verdict != report.Match {
				t.Errorf("mode %s, verdict %s", m.Actual, r.Verdict)
			}
		})
	}
}

// A process that goes by the name kube-proxy and listens at a health-check port is not kube-proxy.
func TestAnImpostorServesNoHealthChecks(t *testing.T) {
	w := openCaptured(t, "iptables")
	listen := string(w.files["listen.txt"])
	before, after, found := strings.Cut(listen, ":31000 ")
	pid, _, ok := strings.Cut(after[strings.Index(after, "pid=")+len("pid="):], ",")
	if !found || !ok {
		t.Fatalf("no one listens at 31000 in %s", listen)
	}
	for list, want := range map[string]bool{
		pid + " kube-proxy\n1 systemd\n": false,
		"812 kube-proxy\n1 systemd\n# " + pid +
			" kube-proxy: not taken for it, it runs as user 1000 without CAP_NET_ADMIN\n": true,
	} {
		w.files["listen.txt"], w.files[snapshot.ProcessesFile] = []byte(before+":31000 "+after), []byte(list)
		r := w.run()
		got := false
		for _, f := range r.Findings {
			got = got || f.Code == HealthCheckNotServed
		}
		if got != want {
			t.Errorf("%q: HealthCheckNotServed is found: %v", list, got)
		}
	}
}
