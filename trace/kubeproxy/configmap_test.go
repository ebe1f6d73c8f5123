// SPDX-License-Identifier: Apache-2.0

package kubeproxy_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

func configMap(namespace, name, key, mode string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data: map[string]string{
			key: "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: " + mode + "\n",
		},
	}
}

func mounting(names ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy-x"}}
	for _, name := range names {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
			VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: name},
			}},
		})
	}
	return p
}

// TestConfigMapThatThePodMounts: a cluster with a DaemonSet for each mode has a ConfigMap for each, and each node is
// judged by the one that its kube-proxy is started with.
func TestConfigMapThatThePodMounts(t *testing.T) {
	kubeadm := configMap("kube-system", "kube-proxy", "config.conf", "iptables")
	ipvs := configMap("kube-system", "kube-proxy-ipvs", "config.conf", "ipvs")
	other := configMap("tools", "kube-proxy-ipvs", "config.conf", "nftables")
	kubeconfig := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy"},
		Data:       map[string]string{"kubeconfig": "apiVersion: v1\nkind: Config\n"},
	}
	eks := configMap("kube-system", "kube-proxy-config", "config", "iptables")
	unlike := configMap("kube-system", "kube-proxy-ipvs", "config.conf", "ipvs\nclusterCIDR: x")
	for name, c := range map[string]struct {
		pod   *corev1.Pod
		all   []*corev1.ConfigMap
		want  string // the source
		about string
		err   string
	}{
		"none was read": {pod: mounting("kube-proxy")},
		"the usual one": {
			mounting("kube-proxy"),
			[]*corev1.ConfigMap{kubeadm},
			"kube-system/kube-proxy", "", "",
		},
		"the pod is not known": {
			nil,
			[]*corev1.ConfigMap{kubeadm},
			"kube-system/kube-proxy", "", "",
		},
		"its volumes are not known": {
			mounting(),
			[]*corev1.ConfigMap{kubeadm},
			"kube-system/kube-proxy", "", "",
		},
		"the one that is mounted": {
			mounting("kube-proxy-ipvs"),
			[]*corev1.ConfigMap{kubeadm, ipvs, other},
			"kube-system/kube-proxy-ipvs", "", "",
		},
		"beside one with the kubeconfig": {
			mounting("kube-proxy", "kube-proxy-config"),
			[]*corev1.ConfigMap{kubeconfig, eks},
			"kube-system/kube-proxy-config", "", "",
		},
		"of several, without the pod": {
			nil,
			[]*corev1.ConfigMap{kubeadm, ipvs},
			"", "ConfigMap kube-system/kube-proxy, kube-system/kube-proxy-ipvs", "is not known",
		},
		"several are mounted": {
			mounting("kube-proxy", "kube-proxy-ipvs"),
			[]*corev1.ConfigMap{kubeadm, ipvs},
			"", "ConfigMap kube-system/kube-proxy, kube-system/kube-proxy-ipvs", "mounts all of them",
		},
		"the mounted one was not collected": {
			mounting("kube-proxy-ipvs"),
			[]*corev1.ConfigMap{kubeadm},
			"", "ConfigMap kube-system/kube-proxy-ipvs", "was not collected",
		},
		"the mounted one cannot be parsed": {
			mounting("kube-proxy-ipvs"),
			[]*corev1.ConfigMap{kubeadm, unlike},
			"", "ConfigMap kube-system/kube-proxy-ipvs", "clusterCIDR",
		},
		"another cannot be parsed": {
			mounting("kube-proxy"),
			[]*corev1.ConfigMap{kubeadm, unlike},
			"kube-system/kube-proxy", "", "",
		},
		"the usual one holds something else": {
			nil,
			[]*corev1.ConfigMap{kubeconfig},
			"", "ConfigMap kube-system/kube-proxy", "its keys are kubeconfig",
		},
	} {
		got, about, err := kubeproxy.ConfigOf(c.pod, kubeproxy.StoredConfigs(c.all))
		source := ""
		if got != nil {
			source = strings.TrimPrefix(got.Source, kubeproxy.ConfigMapPrefix)
		}
		if source != c.want || about != c.about || (err == nil) != (c.err == "") ||
			err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %q, about %q: %v; want %q, about %q: %q", name, source, about, err, c.want, c.about, c.err)
		}
	}
}
