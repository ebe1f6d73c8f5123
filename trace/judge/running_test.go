// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// aProxyPod is a pod of kube-proxy's on node1.
func aProxyPod(change func(p *corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: "kube-proxy-x7k2p", UID: "f3a1c2d4-0000-4000-8000-000000000001",
			Labels:          map[string]string{"k8s-app": "kube-proxy"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "kube-proxy"}},
		},
		Spec:   corev1.PodSpec{NodeName: "node1", HostNetwork: true, Containers: []corev1.Container{{Name: "kube-proxy"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if change != nil {
		change(p)
	}
	return p
}

// static makes of a pod the API's mirror of one that the kubelet has from a manifest.
func static(p *corev1.Pod) {
	p.Name, p.Labels = "kube-proxy-node1", map[string]string{"component": "kube-proxy", "tier": "node"}
	p.Annotations = map[string]string{"kubernetes.io/config.source": "file", "kubernetes.io/config.mirror": "d41d8"}
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: "node1"}}
}

// The remedy where kube-proxy has to write its rules again is one command that does so for the way in which kube-proxy
// runs on the node; where that is not known, it is what tells.
func TestRestartFitsHowKubeProxyRuns(t *testing.T) {
	const inPod = "0::/kubepods.slice/kubepods-burstable.slice/" +
		"kubepods-burstable-podf3a1c2d4_0000_4000_8000_000000000001.slice/cri-containerd-9f.scope"
	for _, tt := range []struct {
		name      string
		pods      []*corev1.Pod
		processes string
		want      []string // commands, "LINE @NODE"
		says      string   // in the remedy; "" for no more than the restart
	}{
		{
			name: "a DaemonSet's pod", pods: []*corev1.Pod{aProxyPod(nil)}, processes: "812 " + inPod + " kube-proxy\n",
			want: []string{"kubectl -n kube-system delete pod/kube-proxy-x7k2p"},
		},
		{
			name: "a DaemonSet's pod, processes without control groups", pods: []*corev1.Pod{aProxyPod(nil)},
			processes: "812 kube-proxy\n", want: []string{"kubectl -n kube-system delete pod/kube-proxy-x7k2p"},
		},
		{
			name: "a DaemonSet's pod, no processes", pods: []*corev1.Pod{aProxyPod(nil)},
			want: []string{"kubectl -n kube-system delete pod/kube-proxy-x7k2p"},
		},
		{
			name: "a pod that is being replaced", processes: "812 " + inPod + " kube-proxy\n",
			pods: []*corev1.Pod{
				aProxyPod(func(p *corev1.Pod) { p.Name = "kube-proxy-new" }),
				aProxyPod(func(p *corev1.Pod) { p.Name, p.DeletionTimestamp = "kube-proxy-old", &metav1.Time{} }),
				aProxyPod(func(p *corev1.Pod) { p.Name, p.Status.Phase = "kube-proxy-failed", corev1.PodFailed }),
			},
			want: []string{"kubectl -n kube-system delete pod/kube-proxy-new"},
		},
		{
			name: "another namespace and label (AKS, OpenShift)", processes: "812 " + inPod + " kube-proxy\n",
			pods: []*corev1.Pod{aProxyPod(func(p *corev1.Pod) {
				p.Namespace, p.Labels = "proxies", map[string]string{"component": "kube-proxy"}
				p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
			})},
			want: []string{"kubectl -n proxies delete pod/kube-proxy-x7k2p"},
		},
		{
			name: "a pod known by its container", processes: "812 " + inPod + " kube-proxy\n",
			pods: []*corev1.Pod{aProxyPod(func(p *corev1.Pod) { p.Labels = nil })},
			want: []string{"kubectl -n kube-system delete pod/kube-proxy-x7k2p"},
		},
		{
			name: "a static pod (GKE, RKE2)", pods: []*corev1.Pod{aProxyPod(static)},
			processes: "812 " + inPod + " kube-proxy\n",
			want:      []string{"pkill -x kube-proxy @node1"}, says: "kube-system/kube-proxy-node1 is a static one",
		},
		{
			name: "a static pod, no processes, no annotations (a snapshot of old)",
			pods: []*corev1.Pod{aProxyPod(func(p *corev1.Pod) { static(p); p.Annotations = nil })},
			want: []string{"pkill -x kube-proxy @node1"}, says: "is a static one",
		},
		{
			name: "a pod without a controller", processes: "812 " + inPod + " kube-proxy\n",
			pods: []*corev1.Pod{aProxyPod(func(p *corev1.Pod) { p.OwnerReferences = nil })},
			want: []string{"pkill -x kube-proxy @node1"}, says: "would not come back",
		},
		{
			name: "a pod that may not be read", processes: "812 " + inPod + " kube-proxy\n",
			want: []string{"pkill -x kube-proxy @node1"}, says: "in a pod that was not read",
		},
		{
			name: "cgroupfs, seen from another cgroup namespace", pods: []*corev1.Pod{aProxyPod(nil)},
			processes: "812 0::/../../burstable/podf3a1c2d4-0000-4000-8000-000000000001/9f kube-proxy\n",
			want:      []string{"kubectl -n kube-system delete pod/kube-proxy-x7k2p"},
		},
		{
			name: "a unit of systemd", processes: "812 0::/system.slice/kube-proxy.service kube-proxy\n",
			want: []string{"systemctl restart -- kube-proxy.service @node1"},
		},
		{
			name: "a unit of another name, version 1", processes: "812 12:pids:/system.slice/snap.kube-proxy.daemon.service," +
				"1:name=systemd:/system.slice/snap.kube-proxy.daemon.service kube-proxy\n",
			want: []string{"systemctl restart -- snap.kube-proxy.daemon.service @node1"},
		},
		{
			name:      "a unit, and the pod of another installation that does not run",
			pods:      []*corev1.Pod{aProxyPod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending })},
			processes: "812 0::/../../../system.slice/kube-proxy.service kube-proxy\n",
			want:      []string{"systemctl restart -- kube-proxy.service @node1"},
		},
		{
			name: "a k3s server", processes: "700 0::/system.slice/k3s.service k3s-server\n",
			want: []string{"systemctl restart -- k3s.service @node1"}, says: "a part of k3s",
		},
		{
			name: "a k3s agent without control groups", processes: "700 k3s-agent\n",
			want: []string{"systemctl restart -- k3s-agent.service @node1"}, says: "a part of k3s",
		},
		{
			name: "k3s, of which kind is not known", processes: "700 k3s\n",
			want: []string{"systemctl restart 'k3s*' @node1"}, says: "a part of k3s",
		},
		{
			name: "MicroK8s", processes: "700 0::/system.slice/snap.microk8s.daemon-kubelite.service kubelite\n",
			want: []string{"systemctl restart -- snap.microk8s.daemon-kubelite.service @node1"}, says: "a part of MicroK8s",
		},
		{
			name: "none, and its pod does not start", processes: "1 systemd\n",
			pods: []*corev1.Pod{aProxyPod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending })},
			want: []string{"kubectl -n kube-system describe pod/kube-proxy-x7k2p"}, says: "no kube-proxy runs on node1",
		},
		{
			name: "none", processes: "1 systemd\n",
			want: []string{"kubectl get pods -A -o wide --field-selector spec.nodeName=node1"},
			says: "no kube-proxy runs on node1",
		},
		{
			name: "not known", want: []string{
				"kubectl get pods -A -o wide --field-selector spec.nodeName=node1",
				"ps -e -o pid=,cgroup:512=,comm= | grep -E ' (kube-proxy|k3s.*|kubelite)$' @node1",
			}, says: "how it runs there is not known",
		},
		{
			name: "a container of docker's", processes: "812 0::/system.slice/docker-9f.scope kube-proxy\n", want: []string{
				"kubectl get pods -A -o wide --field-selector spec.nodeName=node1",
				"ps -e -o pid=,cgroup:512=,comm= | grep -E ' (kube-proxy|k3s.*|kubelite)$' @node1",
			}, says: "how it runs there is not known",
		},
		{
			name: "a unit with a hostile name", processes: "812 0::/system.slice/x$(reboot).service kube-proxy\n",
			want: []string{
				"kubectl get pods -A -o wide --field-selector spec.nodeName=node1",
				"ps -e -o pid=,cgroup:512=,comm= | grep -E ' (kube-proxy|k3s.*|kubelite)$' @node1",
			}, says: "how it runs there is not known",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			w.cluster.Pods = append(w.cluster.Pods, tt.pods...)
			if tt.processes != "" {
				w.files[snapshot.ProcessesFile] = []byte(tt.processes)
			}
			if strings.HasPrefix(tt.processes, "1 systemd") {
				for _, f := range []string{"proxyMode.txt", "metrics.txt", "configz.json", "healthz.json", "livez.json"} {
					delete(w.files, f)
				}
			}
			w.drop(v4, "-A KUBE-SEP", "DNAT", "default/kubernetes")
			found := 0
			for _, p := range w.run().Paths {
				for _, f := range p.Findings {
					if f.Code != ServiceNotProgrammed {
						continue
					}
					found++
					text := strings.TrimPrefix(f.Remedy, "restart kube-proxy on node1: it rewrites all its rules")
					if !strings.Contains(text, tt.says) || tt.says == "" && text != "" || text == f.Remedy {
						t.Errorf("%q does not say %q", f.Remedy, tt.says)
					}
					compareCommands(t, f.Commands, tt.want)
				}
			}
			if found != 2 {
				t.Errorf("%d findings", found)
			}
		})
	}
}

func compareCommands(t *testing.T, commands []report.Command, want []string) {
	t.Helper()
	var got []string
	for _, c := range commands {
		line := c.Line
		if c.Node != "" {
			line += " @" + c.Node
		}
		got = append(got, line)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q, want %q", got, want)
	}
}

// A kube-proxy that starts removes the rules of another mode. What would have it remove those of all modes at once is
// not printed.
func TestLeftoversAreRemovedByARestart(t *testing.T) {
	for processes, want := range map[string][]string{
		"812 0::/kubepods.slice/9f kube-proxy\n":               {"kubectl -n kube-system delete pod/kube-proxy-x7k2p"},
		"812 0::/system.slice/kube-proxy.service kube-proxy\n": {"systemctl restart -- kube-proxy.service @node1"},
		"812 0::/system.slice/k3s.service k3s-server\n":        {"systemctl restart -- k3s.service @node1"},
	} {
		w := openCaptured(t, "nftables")
		w.cluster.Pods = append(w.cluster.Pods, aProxyPod(nil))
		w.files[snapshot.ProcessesFile] = []byte(processes)
		w.files[v4] = openCaptured(t, "iptables").files[v4]
		found := false
		for _, f := range w.run().Findings {
			if f.Code == ModeLeftover {
				found = true
				compareCommands(t, f.Commands, want)
			}
		}
		if !found {
			t.Errorf("%s: no ModeLeftover", processes)
		}
	}
}
