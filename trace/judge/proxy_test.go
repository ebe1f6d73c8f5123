// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// modeOf looks at the node alone.
func (w *capturedNode) modeOf() report.NodeReport {
	return Files(w.cluster, snapshot.NewNode("node1", w.files), Request{NodeAlone: true})
}

// health makes kube-proxy's /healthz answer at a time after its last sync; stuck says that IPv4 waits.
func (w *capturedNode) health(after time.Duration, stuck bool) {
	const synced = "2026-11-20T19:41:04.19Z"
	at, err := time.Parse(time.RFC3339, synced)
	if err != nil {
		w.t.Fatal(err)
	}
	now := at.Add(after).Format(time.RFC3339Nano)
	updated, healthy := now, "true"
	if stuck {
		updated, healthy = synced, "false"
	}
	w.files["healthz.json"] = []byte(
		`{"lastUpdated":"` + updated + `","currentTime":"` + now + `","nodeEligible":true,"healthy":` + healthy +
			`,"status":{"IPv4":{"lastUpdated":"` + synced + `","healthy":` + healthy + `},"IPv6":{"lastUpdated":"` + synced +
			`","healthy":true}}}`,
	)
}

// queue lets kube-proxy see a change of IPv4 one second after its last sync.
func (w *capturedNode) queue() {
	w.replace(
		"metrics.txt",
		"1.7952036640206673e+09",
		"1.7952036651e+09",
		`last_queued_timestamp_seconds{ip_family="IPv4"}`,
	)
}

// stop takes away all that a running kube-proxy answers.
func (w *capturedNode) stop(processes ...snapshot.Process) {
	reasons := map[string]string{}
	for _, f := range nodestate.StatusFiles {
		delete(w.files, f)
		reasons[f] = "connection refused"
	}
	w.files[snapshot.UnreadFile] = snapshot.EncodeUnread(reasons)
	w.files[snapshot.ProcessesFile] = snapshot.EncodeProcesses(processes)
}

// flush takes kube-proxy's rules away.
func (w *capturedNode) flush() {
	for _, f := range []string{v4, v6} {
		w.files[f] = []byte(
			"*nat\n:PREROUTING ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\nCOMMIT\n",
		)
	}
	delete(w.files, snapshot.NFTFile)
}

func (w *capturedNode) link(name string) {
	w.files["ip-link.json"] = []byte(`[{"ifindex":1,"ifname":"lo"},{"ifindex":7,"ifname":"` + name + `"}]`)
}

// TestKubeProxysOwnWord is about what is wrong with kube-proxy itself: found as it is, and nothing else.
func TestKubeProxysOwnWord(t *testing.T) {
	proxy := snapshot.Process{PID: 812, Name: "kube-proxy"}
	for _, tt := range []struct {
		name    string
		damage  func(*capturedNode)
		codes   []string // of warnings and errors, and of what replaces a judgement
		says    string   // in a message, an expectation, a piece of evidence
		health  string
		verdict report.Verdict
	}{
		{"as captured", func(*capturedNode) {}, nil, "", healthy, report.Match},
		{"processes known", func(w *capturedNode) {
			w.files[snapshot.ProcessesFile] = snapshot.EncodeProcesses([]snapshot.Process{proxy})
		}, nil, "", healthy, report.Match},
		{
			"a change that is only just seen",
			func(w *capturedNode) { w.queue(); w.health(2*time.Second, false) },
			nil,
			"",
			healthy,
			report.Match,
		},
		{
			"a change that waits",
			func(w *capturedNode) { w.queue(); w.health(time.Minute, false) },
			[]string{NotSyncing},
			"IPv4: last written at 2026-11-20T19:41:04Z",
			healthy,
			report.Warning,
		},
		{
			"nobody knows what time it is",
			func(w *capturedNode) { w.queue(); delete(w.files, "healthz.json"); delete(w.files, "livez.json") },
			nil,
			"",
			"",
			report.Match,
		},
		{
			"it says that it is not healthy",
			func(w *capturedNode) { w.queue(); w.health(5*time.Minute, true) },
			[]string{KubeProxyUnhealthy, NotSyncing},
			"not healthy",
			unhealthy,
			report.Warning,
		},
		{"a restore that fails", func(w *capturedNode) {
			w.queue()
			w.health(5*time.Minute, true)
			w.files["metrics.txt"] = append(
				w.files["metrics.txt"],
				"kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family=\"IPv4\"} 17\n"...,
			)
		}, []string{KubeProxyUnhealthy, RestoreFailing}, "17 failed", unhealthy, report.Warning},
		{"restores that failed, and no longer do", func(w *capturedNode) {
			w.files["metrics.txt"] = append(
				w.files["metrics.txt"],
				"kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family=\"IPv4\"} 17\n"...,
			)
		}, nil, "", healthy, report.Match},
		{"unhealthy before 1.29", func(w *capturedNode) {
			w.files["healthz.json"] = []byte(
				`{"lastUpdated":"2026-11-20T19:31:04Z","currentTime":"2026-11-20T19:41:04Z","nodeEligible":true}`,
			)
		}, []string{KubeProxyUnhealthy}, "19:31:04", unhealthy, report.Warning},
		{"restores of the other family that failed", func(w *capturedNode) {
			w.queue()
			w.health(5*time.Minute, true)
			w.files["metrics.txt"] = append(
				w.files["metrics.txt"],
				"kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family=\"IPv6\"} 17\n"...,
			)
		}, []string{KubeProxyUnhealthy, NotSyncing}, "does not write them", unhealthy, report.Warning},
		{
			"a node that drains, 1.28 to 1.32",
			func(w *capturedNode) { w.drain(oldHealth, false) },
			nil,
			"",
			draining,
			report.Match,
		},
		{
			"a node that drains, since 1.33",
			func(w *capturedNode) { w.drain(newHealth, false) },
			nil,
			"",
			draining,
			report.Match,
		},
		{"a node that drains, of which only /healthz is known", func(w *capturedNode) {
			w.drain(oldHealth, false)
			delete(w.files, "livez.json")
		}, nil, "", draining, report.Match},
		{"a node that drains, and changes wait, 1.28 to 1.32", func(w *capturedNode) { w.drain(oldHealth, true) }, []string{
			KubeProxyUnhealthy,
		}, "livez.json: last updated 2026-11-20T19:31:04Z", unhealthy, report.Warning},
		{"a node that drains, and changes wait, since 1.33", func(w *capturedNode) { w.drain(newHealth, true) }, []string{
			KubeProxyUnhealthy, NotSyncing,
		}, "/healthz: not healthy", unhealthy, report.Warning},
		{"healthy, 1.28 to 1.32", func(w *capturedNode) {
			w.files["healthz.json"] = []byte(`{"lastUpdated": "2026-11-20 19:41:04.1 +0000 UTC m=+9.1","currentTime": ` +
				`"2026-11-20 19:41:04.1 +0000 UTC m=+9.1", "nodeEligible": true}`)
		}, nil, "", healthy, report.Match},
		{"stopped", func(w *capturedNode) { w.stop() }, []string{KubeProxyDown}, "connection refused", down, report.Warning},
		{
			"it hangs", func(w *capturedNode) { w.stop(proxy) }, []string{
				KubeProxyUnhealthy,
			}, "process 812", unhealthy, report.Warning,
		},
		{
			"stopped, and nobody looked for processes",
			func(w *capturedNode) { w.stop(); delete(w.files, snapshot.ProcessesFile) },
			nil,
			"",
			"",
			report.Match,
		},
		{
			"it is a part of k3s",
			func(w *capturedNode) { w.stop(snapshot.Process{PID: 9, Name: "k3s-agent"}) },
			nil,
			"",
			"",
			report.Match,
		},
		{
			"it fell back",
			func(w *capturedNode) { w.edit("configz.json", oneLine(`"mode":"iptables"`, `"mode":"ipvs"`)) },
			[]string{ModeMismatch},
			"ipvs (configz.json)",
			healthy,
			report.Warning,
		},
		{
			"stopped beside Cilium, rules left",
			func(w *capturedNode) { w.stop(snapshot.Process{PID: 9, Name: "cilium-agent"}) },
			[]string{KubeProxyDown},
			"",
			down,
			report.Warning,
		},
		{"Cilium in its place", func(w *capturedNode) {
			w.stop(snapshot.Process{PID: 9, Name: "cilium-agent"})
			w.flush()
			w.link("cilium_host")
		}, []string{Replaced}, "interface cilium_host", down, report.Unknown},
		{"Cilium beside a kube-proxy whose rules were flushed", func(w *capturedNode) {
			w.files[snapshot.ProcessesFile] = snapshot.EncodeProcesses([]snapshot.Process{{PID: 9, Name: "cilium-agent"}, proxy})
			w.flush()
		}, []string{NotProgrammed, NotProgrammed}, "", healthy, report.Mismatch},
		{"Cilium beside a kube-proxy that should run", func(w *capturedNode) {
			w.stop(snapshot.Process{PID: 9, Name: "cilium-agent"})
			w.flush()
			w.cluster.Pods = append(slices.Clip(w.cluster.Pods), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "kube-system",
					Name:      "kube-proxy-x",
					Labels:    map[string]string{"k8s-app": "kube-proxy"},
				},
				Spec: corev1.PodSpec{NodeName: "node1", HostNetwork: true},
			})
		}, []string{NotProgrammed, NotProgrammed, KubeProxyDown}, "", down, report.Mismatch},
		{
			"Calico's eBPF",
			func(w *capturedNode) { w.stop(); w.flush(); w.link("bpfin.cali") },
			[]string{Replaced},
			"bpfin.cali",
			down,
			report.Unknown,
		},
		{"chains that Antrea left long ago", func(w *capturedNode) {
			w.stop()
			w.flush()
			w.files[v4] = []byte(strings.Replace(string(w.files[v4]), "COMMIT", ":ANTREA-POSTROUTING - [0:0]\nCOMMIT", 1))
		}, []string{NotProgrammed, NotProgrammed, KubeProxyDown}, "", down, report.Mismatch},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			tt.damage(w)
			r := w.modeOf()
			var codes []string
			said := tt.says == ""
			for _, f := range r.Findings {
				if f.Severity != report.Info || r.Error != "" {
					codes = append(codes, f.Code)
				}
				said = said || strings.Contains(f.Message+f.Expected+f.Actual+fmt.Sprint(f.Evidence), tt.says)
			}
			if !slices.Equal(codes, tt.codes) || !said || r.Verdict != tt.verdict || r.Mode == nil ||
				r.Mode.Health != tt.health {
				t.Errorf("%v %s %+v, said %v: %+v", codes, r.Verdict, r.Mode, said, r.Findings)
			}
			if (r.Error != "") != slices.Contains(tt.codes, Replaced) {
				t.Errorf("error %q", r.Error)
			}
		})
	}
}

func oneLine(from, to string) func(string) []string {
	return func(l string) []string { return []string{strings.Replace(l, from, to, 1)} }
}

// TestConfigMapOfAnotherMode is information: many clusters start kube-proxy with something else.
func TestConfigMapOfAnotherMode(t *testing.T) {
	w := openCaptured(t, "iptables")
	w.cluster.ConfigMaps = append(w.cluster.ConfigMaps, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy"},
		Data: map[string]string{
			"config.conf": "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n",
		},
	})
	r := w.modeOf()
	i := slices.IndexFunc(r.Findings, func(f report.Finding) bool { return f.Code == ModeMismatch })
	if i < 0 || r.Findings[i].Severity != report.Info ||
		!strings.Contains(r.Findings[i].Expected, "nftables (ConfigMap") ||
		r.Verdict != report.Match {
		t.Errorf("%s %+v", r.Verdict, r.Findings)
	}
}

// TestModeMismatchOfAnotherConfigMap: a node whose kube-proxy mounts a ConfigMap of its own is not compared with
// kubeadm's.
func TestModeMismatchOfAnotherConfigMap(t *testing.T) {
	for name, mounts := range map[string]string{
		"its own": "kube-proxy-iptables", "one that was not collected": "kube-proxy-x",
	} {
		w := openCaptured(t, "iptables")
		for name, mode := range map[string]string{"kube-proxy": "nftables", "kube-proxy-iptables": "iptables"} {
			w.cluster.ConfigMaps = append(w.cluster.ConfigMaps, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name},
				Data: map[string]string{
					"config.conf": configHead + "mode: " + mode + "\n",
				},
			})
		}
		w.cluster.Pods = append(w.cluster.Pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "kube-system", Name: "kube-proxy-zzzzz", Labels: map[string]string{"k8s-app": "kube-proxy"},
				CreationTimestamp: metav1.Now(),
			},
			Spec: corev1.PodSpec{
				NodeName: "node1", HostNetwork: true,
				Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: mounts},
				}}}},
			},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		})
		r := w.modeOf()
		if slices.ContainsFunc(r.Findings, func(f report.Finding) bool { return f.Code == ModeMismatch }) ||
			r.Verdict != report.Match {
			t.Errorf("%s: %s %+v", name, r.Verdict, r.Findings)
		}
	}
}

// TestDownAnswersOnce: what KubeProxyDown says is not said again of each file.
func TestDownAnswersOnce(t *testing.T) {
	w := openCaptured(t, "iptables")
	w.stop()
	for _, f := range w.modeOf().Findings {
		if f.Code == NotCollected && f.Subject != "kube-proxy's configuration" {
			t.Errorf("%+v", f)
		}
	}
}

// oldHealth and newHealth are kube-proxy's answers up to 1.32 and since 1.33, by the time of lastUpdated and whether it
// is healthy.
func oldHealth(updated string, _ bool) string {
	return `"lastUpdated": "` + updated + ` +0000 UTC m=+9.1","currentTime": "2026-11-20 19:41:04.1 +0000 UTC m=+609.1"`
}

func newHealth(updated string, well bool) string {
	return fmt.Sprintf(`"lastUpdated":%q,"currentTime":"2026-11-20T19:41:04.1Z","healthy":%v,"status":{"IPv4":{"healthy":%v}}`,
		strings.Replace(updated, " ", "T", 1)+"Z", well, well)
}

// drain makes the node one that is being deleted; late says that changes wait.
func (w *capturedNode) drain(answer func(updated string, well bool) string, late bool) {
	const written, now = "2026-11-20 19:31:04.1", "2026-11-20 19:41:04.1"
	w.files["healthz.json"] = []byte(`{` + answer(written, !late) + `,"nodeEligible":false}`)
	w.files["livez.json"] = []byte(`{` + answer(now, true) + `}`)
	if late {
		w.files["livez.json"] = []byte(`{` + answer(written, false) + `}`)
	}
}

// TestDrainingIsSaid: a node that drains is not unhealthy, and it is said that load balancers send nothing new.
func TestDrainingIsSaid(t *testing.T) {
	for _, late := range []bool{false, true} {
		for _, answer := range []func(string, bool) string{oldHealth, newHealth} {
			w := openCaptured(t, "iptables")
			w.drain(answer, late)
			r := w.modeOf()
			i := slices.IndexFunc(r.Findings, func(f report.Finding) bool { return f.Code == NodeLeaving })
			if i < 0 || !strings.Contains(r.Findings[i].Message, "load balancers send no new connections") ||
				r.Findings[i].Severity != report.Info {
				t.Errorf("late %v: %+v", late, r.Findings)
			}
		}
	}
}

// TestFailuresByFamily: failed writes and waiting changes are shown of each family.
func TestFailuresByFamily(t *testing.T) {
	w := openCaptured(t, "iptables")
	w.files["metrics.txt"] = append(
		w.files["metrics.txt"],
		"kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family=\"IPv6\"} 17\n"...,
	)
	w.queue()
	m := w.modeOf().Mode
	if len(m.Families) != 2 || m.SyncFailures == nil || *m.SyncFailures != 17 {
		t.Fatalf("%+v", m)
	}
	for i, want := range []int{0, 17} {
		f := m.Families[i]
		if f.Family != []string{"IPv4", "IPv6"}[i] || f.SyncFailures == nil || *f.SyncFailures != want ||
			f.Waits != (want == 0) || f.LastSync == "" {
			t.Errorf("%+v", f)
		}
	}
}
