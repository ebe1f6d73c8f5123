// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const kubeadmConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
bindAddress: 0.0.0.0
clusterCIDR: 10.244.0.0/16,fd00:10:244::/56
detectLocalMode: ""
hostnameOverride: ""
mode: ""
iptables:
  localhostNodePorts: null
  masqueradeAll: false
  masqueradeBit: null
nodePortAddresses: null
`

// TestConfigzOfInternalType is the response of a kube-proxy whose configz holds the internal type, as json.Marshal
// prints that of 1.28 (pkg/proxy/apis/config/types.go).
func TestConfigzOfInternalType(t *testing.T) {
	c, err := ParseConfigz([]byte(`{"kubeproxy.config.k8s.io":{"FeatureGates":{"A":true},"BindAddress":"10.0.0.1",` +
		`"HealthzBindAddress":"0.0.0.0:10256","MetricsBindAddress":"127.0.0.1:10249","ClusterCIDR":"10.244.0.0/16",` +
		`"HostnameOverride":"Node1","ClientConnection":{"Kubeconfig":"","QPS":50},"IPTables":{"MasqueradeBit":15,` +
		`"MasqueradeAll":true,"LocalhostNodePorts":false,"SyncPeriod":"30s","MinSyncPeriod":"1s"},"IPVS":{"SyncPeriod":` +
		`"30s","Scheduler":"lc","ExcludeCIDRs":["10.1.0.0/16"],"StrictARP":true},"OOMScoreAdj":-999,"Mode":"ipvs",` +
		`"PortRange":"","NodePortAddresses":["10.0.0.0/8"],"DetectLocalMode":"BridgeInterface","DetectLocal":` +
		`{"BridgeInterface":"cni0","InterfaceNamePrefix":""},"Logging":{"format":"text"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Mode: "ipvs", DetectLocalMode: DetectBridge, BridgeInterface: "cni0", MasqueradeBit: 15, MasqueradeAll: true,
		HostnameOverride: "node1", FeatureGates: map[string]bool{"A": true}, NodePortAddresses: []string{"10.0.0.0/8"},
		Scheduler: "lc", StrictARP: true, BindAddress: netip.MustParseAddr("10.0.0.1"),
		ExcludeCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v\nwant %+v", c, want)
	}
	if _, err := ParseConfigz([]byte(`{"kubeproxy.config.k8s.io":{"apiVersion":"kubeproxy.config.k8s.io/v1"}}`)); err == nil {
		t.Error("another version passed")
	}
}

func TestParseConfig(t *testing.T) {
	want := DefaultConfig()
	want.Source = "test"
	want.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/56")}
	want.Source = ""
	for name, parse := range map[string]func() (Config, error){
		"file": func() (Config, error) { return ParseConfig([]byte(kubeadmConfig)) },
		"second doc": func() (Config, error) {
			return ParseConfig([]byte("kind: ClusterConfiguration\n---\n" + kubeadmConfig))
		},
		"config map": func() (Config, error) {
			return ParseConfigMap(&corev1.ConfigMap{
				Data: map[string]string{"kubeconfig.conf": "kind: Config", "config.conf": kubeadmConfig},
			})
		},
		"config map with another key": func() (Config, error) {
			return ParseConfigMap(&corev1.ConfigMap{Data: map[string]string{"x": "kind: Config", "my.yaml": kubeadmConfig}})
		},
		"configz of 1.26": func() (Config, error) {
			return ParseConfigz(
				[]byte(
					`{"kubeproxy.config.k8s.io":{"BindAddress":"0.0.0.0","ClusterCIDR":"10.244.0.0/16,fd00:10:244::/56",
						"IPTables":{"MasqueradeBit":14,"LocalhostNodePorts":true}}}`))
		},
		"configz of 1.30": func() (Config, error) {
			return ParseConfigz(
				[]byte(
					`{"kubeproxy.config.k8s.io":{"BindAddress":"0.0.0.0",
						"DetectLocal":{"ClusterCIDRs":["10.244.0.0/16","fd00:10:244::/56"]},"IPTables":{"MasqueradeBit":14}}}`))
		},
	} {
		got, err := parse()
		got.BindAddress = want.BindAddress
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

func TestParseConfigOfEveryField(t *testing.T) {
	c, err := ParseConfig([]byte(`{"apiVersion":"kubeproxy.config.k8s.io/v1alpha1","kind":"KubeProxyConfiguration",
		"mode":"iptables","hostnameOverride":" Node7 ",
		"bindAddress":"192.168.0.7","detectLocalMode":"BridgeInterface","detectLocal":{"bridgeInterface":"cni0"},
		"featureGates":{"AllBeta":false},
		"iptables":{"masqueradeBit":3,"masqueradeAll":true,"localhostNodePorts":false},
		"nodePortAddresses":["primary","10.0.0.0/8"]}`))
	if err != nil || c.Mode != "iptables" || c.HostnameOverride != "node7" || c.BindAddress.String() != "192.168.0.7" ||
		c.DetectLocalMode != "BridgeInterface" ||
		c.BridgeInterface != "cni0" || c.FeatureGates["AllBeta"] || c.MasqueradeBit != 3 || !c.MasqueradeAll ||
		c.LocalhostNodePorts || len(c.NodePortAddresses) != 2 {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestParseConfigErrors(t *testing.T) {
	head := "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
	for _, c := range []struct{ data, want string }{
		{"", "holds no KubeProxyConfiguration"},
		{"a: [", "not a KubeProxyConfiguration"},
		{"kind: Pod", `kind is "Pod"`},
		{"kind: KubeProxyConfiguration\napiVersion: v2", `apiVersion is "v2"`},
		{head + "clusterCIDR: 10.244.0.0", `clusterCIDR has "10.244.0.0"`},
		{head + "detectLocalMode: Magic", `detectLocalMode is "Magic"`},
		{head + "bindAddress: x", `bindAddress "x"`},
		{head + "iptables: {masqueradeBit: 32}", "masqueradeBit is 32"},
		{head + "nodePortAddresses: [eth0]", `nodePortAddresses has "eth0"`},
	} {
		if _, err := ParseConfig([]byte(c.data)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.data, err, c.want)
		}
	}
	if _, err := ParseConfigz([]byte(`{"componentconfig":{}}`)); err == nil ||
		!strings.Contains(err.Error(), "not the /configz") {
		t.Errorf("got %v", err)
	}
	if _, err := ParseConfigMap(&corev1.ConfigMap{Data: map[string]string{"a": "", "b": ""}}); err == nil ||
		!strings.Contains(err.Error(), "its keys are a, b") {
		t.Errorf("got %v", err)
	}
	if _, err := ParseConfigMap(&corev1.ConfigMap{Data: map[string]string{"config.conf": "kind: Pod"}}); err == nil ||
		!strings.Contains(err.Error(), "key config.conf: kind") {
		t.Errorf("got %v", err)
	}
}
