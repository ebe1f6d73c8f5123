// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

const configHead = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

// TestAFileThatIsNotApplied: a file that was edited without a restart is one warning of the node, and no mismatch; what
// the running process says goes before the rules; and a file is believed where the rules tell nothing.
func TestAFileThatIsNotApplied(t *testing.T) {
	const cidrs = "clusterCIDR: 10.244.0.0/16,fd00:10:244::/56\n"
	for _, tt := range []struct {
		name, base, file string
		configMap        bool
		running          string // configz.json
		flags            string
		differs          string // the setting; "" for none
		mismatches       bool
	}{
		{name: "as the rules", file: cidrs},
		{
			name: "NodeCIDR, where the rules have another range", file: "detectLocalMode: NodeCIDR\n",
			differs: "detectLocalMode",
		},
		{name: "another clusterCIDR", file: "clusterCIDR: 10.0.0.0/8,fd00:10:244::/56\n", differs: "detectLocalMode"},
		{
			name: "another clusterCIDR in the ConfigMap", file: "clusterCIDR: 10.0.0.0/8\n", configMap: true,
			differs: "detectLocalMode",
		},
		{name: "a family that has no rules does not differ", base: "real-2node-iptables", file: cidrs},
		{name: "masqueradeAll", file: cidrs + "iptables: {masqueradeAll: true}\n", differs: "masqueradeAll"},
		{name: "another bit", file: cidrs + "iptables: {masqueradeBit: 3}\n", differs: "masqueradeBit"},
		{name: "localhostNodePorts", file: cidrs + "iptables: {localhostNodePorts: false}\n", differs: "localhostNodePorts"},
		{name: "nodePortAddresses", file: cidrs + "nodePortAddresses: [192.168.0.0/16]\n", differs: "nodePortAddresses"},
		{
			name: "nodePortAddresses that select the same", base: "nftables",
			file: cidrs + "mode: nftables\nnodePortAddresses: [10.77.0.0/16, 'fd00:77::/64']\n",
		},
		{
			name: "nodePortAddresses that select others", base: "nftables",
			file: cidrs + "mode: nftables\nnodePortAddresses: [10.0.0.0/30]\n", differs: "nodePortAddresses",
		},
		{name: "the scheduler", base: "ipvs", file: cidrs + "mode: ipvs\nipvs: {scheduler: lc}\n", differs: "scheduler"},
		{name: "the running process", running: `{"kubeproxy.config.k8s.io":{"kind":"KubeProxyConfiguration",` +
			`"apiVersion":"kubeproxy.config.k8s.io/v1alpha1","clusterCIDR":"10.99.0.0/16"}}`, mismatches: true},
		{name: "the command line", flags: "kube-proxy\n--cluster-cidr=10.99.0.0/16\n", mismatches: true},
		{name: "the command line of the rules", flags: "kube-proxy\n--cluster-cidr=10.244.0.0/16,fd00:10:244::/56\n"},
		{
			name: "a command line goes before the ConfigMap", file: "clusterCIDR: 10.0.0.0/8\n", configMap: true,
			flags: "kube-proxy\n--cluster-cidr=10.244.0.0/16,fd00:10:244::/56\n",
		},
		{
			name: "with --config the flags count for nothing", file: cidrs,
			flags: "kube-proxy\n--config=/var/lib/kube-proxy/config.conf\n--cluster-cidr=10.99.0.0/16\n",
		},
		{
			name:  "k3s tells what it names",
			flags: "k3s\n--cluster-cidr=10.244.0.0/16,fd00:10:244::/56\n--masquerade-all=false\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, base(tt.base))
			silences[0].hush(w)
			w.files[snapshot.MetricsFile] = []byte(`kubernetes_build_info{git_version="v1.36.3"} 1` + "\n")
			switch {
			case tt.configMap:
				w.cluster.ConfigMaps = []*corev1.ConfigMap{{
					ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy"},
					Data:       map[string]string{"config.conf": configHead + tt.file},
				}}
			case tt.file != "":
				w.files[snapshot.ProxyConfigFile] = []byte(configHead + tt.file)
			}
			if tt.running != "" {
				w.files[snapshot.ConfigzFile] = []byte(tt.running)
			}
			if tt.flags != "" {
				w.files[snapshot.FlagsFile] = []byte(tt.flags)
			}
			r := w.run()
			var differing []string
			for _, f := range r.Findings {
				if f.Code == ConfigNotApplied {
					differing = append(differing, f.Subject)
				}
			}
			if want := strings.Fields(tt.differs); !slices.Equal(differing, want) {
				t.Errorf("%v differ, want %q", differing, tt.differs)
			}
			if (r.Summary.Mismatched > 0) != tt.mismatches || r.Summary.Unknown > 0 {
				t.Errorf("%+v %s", r.Summary, r.Error)
			}
			if want := report.Match; tt.differs == "" && !tt.mismatches && r.Verdict != want {
				t.Errorf("the node is %s: %+v", r.Verdict, r.Findings)
			}
			if !t.Failed() {
				return
			}
			for _, v := range r.Mode.Values {
				t.Logf("%+v", v)
			}
		})
	}
}

// TestFewServices: two Services tell little, and a rule of one is a fault as long as the other shows the configuration;
// without either it may be one.
func TestFewServices(t *testing.T) {
	const rule = `! -s 10.244.0.0/16 `
	for _, tt := range []struct {
		name                string
		do                  func(w *capturedNode)
		mismatched, unknown int
		value               string
	}{
		{"as captured", func(*capturedNode) {}, 0, 0, "ClusterCIDR 10.244.0.0/16"},
		{
			"one without the rule of pods", func(w *capturedNode) { w.drop(v4, "-A KUBE-SVC-", rule, "default/kubernetes") },
			1, 0, "ClusterCIDR 10.244.0.0/16",
		},
		{"both without it", func(w *capturedNode) { w.drop(v4, "-A KUBE-SVC-", rule) }, 0, 2, ""},
		{"both mark all", func(w *capturedNode) { w.everywhere(v4, rule, "") }, 0, 4, ""},
		{"a range that no pod of the node is of", func(w *capturedNode) {
			w.everywhere(v4, rule, "! -s 192.0.2.0/24 ")
		}, 0, 4, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, "real-2node-iptables")
			silences[1].hush(w)
			tt.do(w)
			r := w.run()
			if r.Summary.Mismatched != tt.mismatched || r.Summary.Unknown != tt.unknown {
				t.Errorf("%+v, want %d and %d", r.Summary, tt.mismatched, tt.unknown)
			}
			for _, v := range r.Mode.Values {
				if v.Name == string(kubeproxy.DetectLocal) && v.Value != tt.value {
					t.Errorf("%+v, want %q", v, tt.value)
				}
			}
			for _, p := range r.Paths {
				if t.Failed() {
					t.Logf("%s %s: %+v", pathKey(&p), p.Verdict, p.Findings)
				}
			}
		})
	}
}
