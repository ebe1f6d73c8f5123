// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"regexp"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// asConfigured is a node as another configuration would have made its rules, or with a fault beside it.
type asConfigured struct {
	name, base string
	do         func(w *capturedNode)
	setting    kubeproxy.Setting
	value      string // "": not known
	// Of the paths from the rules to the report: what nobody says is a mismatch, and what hangs on the value.
	mismatches, unknown int
}

// everywhere replaces text in all rules of a file that match.
func (w *capturedNode) everywhere(file, pattern, repl string) {
	w.t.Helper()
	re := regexp.MustCompile(pattern)
	if !re.Match(w.files[file]) {
		w.t.Fatalf("%s has no %s", file, pattern)
	}
	w.files[file] = re.ReplaceAll(w.files[file], []byte(repl))
}

const (
	pods4 = "10.244.0.0/16"
	pods6 = "fd00:10:244::/56"
)

func configurations() []asConfigured {
	// The rules of pods, in iptables mode.
	pods := func(repl4, repl6 string) func(w *capturedNode) {
		return func(w *capturedNode) {
			w.everywhere(v4, `-s `+pods4+` `, repl4)
			w.everywhere(v6, `-s `+pods6+` `, repl6)
		}
	}
	noPods := func(file, cidr string) func(w *capturedNode) {
		return func(w *capturedNode) { w.everywhere(file, `(?m)^\[[0-9:]*\] -A KUBE-\S+ (! )?-s `+cidr+` .*\n`, "") }
	}
	both := func(fs ...func(w *capturedNode)) func(w *capturedNode) {
		return func(w *capturedNode) {
			for _, f := range fs {
				f(w)
			}
		}
	}
	nft := func(old, repl string) func(w *capturedNode) {
		return func(w *capturedNode) { w.everywhere(snapshot.NFTFile, regexp.QuoteMeta(old), repl) }
	}
	scheduler := func(name string) func(w *capturedNode) {
		return func(w *capturedNode) { w.everywhere(snapshot.IPVSFile, `-s rr`, "-s "+name) }
	}
	return []asConfigured{
		{
			name: "BridgeInterface", do: pods("-i cni0 ", "-i cni0 "), setting: kubeproxy.DetectLocal,
			value: "BridgeInterface cni0",
		},
		{
			name: "InterfaceNamePrefix", do: pods("-i veth+ ", "-i veth+ "), setting: kubeproxy.DetectLocal,
			value: "InterfaceNamePrefix veth",
		},
		{
			name: "NodeCIDR", do: pods("-s 10.244.1.0/24 ", "-s fd00:10:244:1::/64 "), setting: kubeproxy.DetectLocal,
			value: "ClusterCIDR 10.244.1.0/24,fd00:10:244:1::/64",
		},
		{
			name: "dual stack with one CIDR", do: noPods(v6, pods6), setting: kubeproxy.DetectLocal,
			value: "ClusterCIDR " + pods4,
		},
		{
			name: "no clusterCIDR", do: both(noPods(v4, pods4), noPods(v6, pods6)), setting: kubeproxy.DetectLocal,
			value: "ClusterCIDR none",
		},
		{name: "masqueradeAll", do: func(w *capturedNode) {
			w.everywhere(v4, `! -s `+pods4+` `, "")
			w.everywhere(v6, `! -s `+pods6+` `, "")
		}, setting: kubeproxy.MasqueradeAll, value: "true"},
		{name: "another bit", do: func(w *capturedNode) {
			w.everywhere(v4, `0x4000`, "0x8000")
			w.everywhere(v6, `0x4000`, "0x8000")
		}, setting: kubeproxy.MasqueradeBit, value: "15"},
		{name: "localhostNodePorts off", do: func(w *capturedNode) {
			w.everywhere(v4, `-A KUBE-SERVICES (-m comment .*NOTE.*-j KUBE-NODEPORTS)`, "-A KUBE-SERVICES ! -d 127.0.0.0/8 $1")
		}, setting: kubeproxy.LocalNodePorts, value: "false"},
		{name: "nodePortAddresses: the node's own", do: func(w *capturedNode) {
			w.everywhere(v4, `-A KUBE-SERVICES (-m comment .*NOTE\S* .*)-m addrtype --dst-type LOCAL`,
				"-A KUBE-SERVICES -d 10.77.0.11/32 $1")
			w.everywhere(v6, `-A KUBE-SERVICES ! -d ::1/128 (-m comment .*NOTE\S* .*)-m addrtype --dst-type LOCAL`,
				"-A KUBE-SERVICES -d fd00:77::11/128 $1")
		}, setting: kubeproxy.NodePortRanges, value: "10.77.0.11/32,fd00:77::11/128"},

		{name: "one Service without the rule of pods", do: func(w *capturedNode) {
			w.drop(v4, `-A KUBE-SVC-`, `! -s `, "shop/ep3 ")
		}, setting: kubeproxy.DetectLocal, value: "ClusterCIDR " + pods4 + "," + pods6, mismatches: 1},
		{name: "one Service that masquerades all", do: func(w *capturedNode) {
			w.replace(v4, `! -s `+pods4+` `, "", `-A KUBE-SVC-`, "shop/ep3 ")
		}, setting: kubeproxy.MasqueradeAll, value: "false", mismatches: 1},
		{
			name: "MASQUERADE of KUBE-POSTROUTING gone", do: func(w *capturedNode) {
				w.drop(v4, "-A KUBE-POSTROUTING", "MASQUERADE")
			},
			setting: kubeproxy.DetectLocal, value: "ClusterCIDR " + pods4 + "," + pods6, mismatches: -1,
		},
		{name: "KUBE-MARK-MASQ sets another bit than KUBE-POSTROUTING asks for", do: func(w *capturedNode) {
			w.replace(v4, "0x4000/0x4000", "0x8000/0x8000", "-A KUBE-MARK-MASQ")
		}, setting: kubeproxy.MasqueradeBit, value: "", mismatches: -1},
		{
			name: "the jump of PREROUTING gone", do: func(w *capturedNode) { w.drop(v4, "-A PREROUTING", "KUBE-SERVICES") },
			setting: kubeproxy.DetectLocal, value: "ClusterCIDR " + pods4 + "," + pods6, mismatches: -1,
		},

		{
			name: "BridgeInterface", base: "nftables", do: both(
				nft(`{"payload": {"protocol": "ip", "field": "saddr"}}, "right": {"prefix": {"addr": "10.244.0.0", "len": 16}}`,
					`{"meta": {"key": "iifname"}}, "right": "cni0"`),
				nft(`{"payload": {"protocol": "ip6", "field": "saddr"}}, "right": {"prefix": {"addr": "fd00:10:244::", "len": 56}}`,
					`{"meta": {"key": "iifname"}}, "right": "cni0"`)),
			setting: kubeproxy.DetectLocal, value: "BridgeInterface cni0",
		},
		{
			name: "InterfaceNamePrefix", base: "nftables", do: both(
				nft(`{"payload": {"protocol": "ip", "field": "saddr"}}, "right": {"prefix": {"addr": "10.244.0.0", "len": 16}}`,
					`{"meta": {"key": "iifname"}}, "right": "veth*"`),
				nft(`{"payload": {"protocol": "ip6", "field": "saddr"}}, "right": {"prefix": {"addr": "fd00:10:244::", "len": 56}}`,
					`{"meta": {"key": "iifname"}}, "right": "veth*"`)),
			setting: kubeproxy.DetectLocal, value: "InterfaceNamePrefix veth",
		},
		{name: "the masquerade rule gone", base: "nftables", do: func(w *capturedNode) {
			w.dropRules("services", `"family": "ip"`, "10.244.0.0")
		}, setting: kubeproxy.DetectLocal, value: "ClusterCIDR " + pods4 + "," + pods6, mismatches: -1},
		{name: "another bit", base: "nftables", do: nft("16384", "32768"), setting: kubeproxy.MasqueradeBit, value: "15"},
		{
			name: "nodePortAddresses: primary, which is the default", base: "nftables", setting: kubeproxy.NodePortRanges,
			value: "10.77.0.11/32,fd00:77::11/128",
		},
		{name: "no address serves NodePorts", base: "nftables", do: func(w *capturedNode) {
			w.dropElement("nodeport-ips", "10.77.0.11")
		}, setting: kubeproxy.NodePortRanges, value: "", unknown: -1},

		{name: "lc", base: "ipvs", do: scheduler("lc"), setting: kubeproxy.IPVSScheduler, value: "lc"},
		{name: "sh", base: "ipvs", do: scheduler("sh"), setting: kubeproxy.IPVSScheduler, value: "sh"},
		{name: "one server with another scheduler", base: "ipvs", do: func(w *capturedNode) {
			w.replace(snapshot.IPVSFile, "-s rr", "-s lc", "-A -t 198.51.100.20:80")
		}, setting: kubeproxy.IPVSScheduler, value: "rr", mismatches: 2},
		{name: "half of the servers with another scheduler", base: "ipvs", do: func(w *capturedNode) {
			w.everywhere(snapshot.IPVSFile, `(-A -t 10\.\S+) -s rr`, "$1 -s lc")
		}, setting: kubeproxy.IPVSScheduler, value: "", unknown: -1},
		{name: "masqueradeAll", base: "ipvs", do: func(w *capturedNode) {
			w.everywhere(v4, `! -s `+pods4+` `, "")
			w.everywhere(v6, `! -s `+pods6+` `, "")
		}, setting: kubeproxy.MasqueradeAll, value: "true"},
		{name: "no clusterCIDR", base: "ipvs", do: func(w *capturedNode) {
			w.everywhere(v4, `! -s `+pods4+` (.*KUBE-CLUSTER-IP) dst,dst`, "$1 src,dst")
			w.everywhere(v6, `! -s `+pods6+` (.*KUBE-6-CLUSTER-IP) dst,dst`, "$1 src,dst")
		}, setting: kubeproxy.DetectLocal, value: "ClusterCIDR none"},
		// Where the rules tell the version, what the path would be under another value goes by that version, too.
		{name: "pods by an interface that they do not have", base: "ipvs", do: func(w *capturedNode) {
			w.everywhere(v4, `! -s `+pods4+` `, "! -i cali+ ")
			w.everywhere(v6, `! -s `+pods6+` `, "! -i cali+ ")
		}, setting: kubeproxy.DetectLocal, value: "", unknown: -1},
		{name: "the masquerade rule gone", base: "ipvs", do: func(w *capturedNode) {
			w.drop(v4, "-A KUBE-SERVICES", "KUBE-CLUSTER-IP", "KUBE-MARK-MASQ")
		}, setting: kubeproxy.DetectLocal, value: "ClusterCIDR " + pods6, mismatches: -1},
	}
}

// TestConfigurationsOfRules: of a node whose kube-proxy says nothing, what all rules show is its configuration, and
// what one of them does otherwise, or what no configuration leaves out, is a fault.
func TestConfigurationsOfRules(t *testing.T) {
	for _, tt := range configurations() {
		t.Run(base(tt.base)+"/"+tt.name, func(t *testing.T) {
			w := openCaptured(t, base(tt.base))
			silences[0].hush(w)
			if tt.do != nil {
				tt.do(w)
			}
			r := w.run()
			if r.Error != "" {
				t.Fatal(r.Error)
			}
			for _, v := range r.Mode.Values {
				if v.Name == string(tt.setting) &&
					(v.Value != tt.value || (v.Source == string(kubeproxy.FromRules)) != (tt.value != "")) {
					t.Errorf("%+v, want %q", v, tt.value)
				}
			}
			count := func(what string, got, want int) {
				if want >= 0 && got != want || want < 0 && got == 0 {
					t.Errorf("%d paths are %s, want %d (-1: some)", got, what, want)
				}
			}
			count("Mismatch", r.Summary.Mismatched, tt.mismatches)
			count("Unknown", r.Summary.Unknown, tt.unknown)
			if !t.Failed() {
				return
			}
			for _, v := range r.Mode.Values {
				t.Logf("%+v", v)
			}
			n := 0
			for _, p := range r.Paths {
				if (p.Verdict == report.Mismatch || p.Verdict == report.Unknown) && n < 5 {
					n++
					t.Logf("%s %s: %s", pathKey(&p), p.Verdict, p.Findings[0].Code+" "+p.Findings[0].Message)
				}
			}
		})
	}
}
