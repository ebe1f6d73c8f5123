// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConfigMapPrefix begins the source of a configuration that is from a ConfigMap; its namespace and name follow.
const ConfigMapPrefix = "ConfigMap "

// StoredConfig is what a ConfigMap holds of kube-proxy's configuration.
type StoredConfig struct {
	Namespace, Name string
	Config          Config
	Err             error // why it holds none that can be used
}

// Source is what the configuration's Source is.
func (s *StoredConfig) Source() string { return ConfigMapPrefix + s.Namespace + "/" + s.Name }

// errNoConfig is of a ConfigMap that holds something else: EKS keeps the kubeconfig in one of its own.
var errNoConfig = errors.New("no key holds a " + configKind)

// StoredConfigs reads ConfigMaps.
func StoredConfigs(all []*corev1.ConfigMap) []StoredConfig {
	out := make([]StoredConfig, 0, len(all))
	for _, cm := range all {
		s := StoredConfig{Namespace: cm.Namespace, Name: cm.Name}
		if s.Config, s.Err = ParseConfigMap(cm); s.Err == nil {
			s.Config.Source = s.Source()
		}
		out = append(out, s)
	}
	return out
}

// RunsIn reports whether a pod is kube-proxy's. kubeadm, EKS and k0s label it k8s-app, GKE, AKS and RKE2 component;
// else its container's name tells. Anyone may give a pod of their own such a name: it has to have the node's network,
// and to be in kube-system, where none but administrators make pods, or to have the right to write the node's rules.
func RunsIn(p *corev1.Pod) bool {
	named := slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == Process })
	return p.Spec.HostNetwork && (named || p.Labels["k8s-app"] == Process || p.Labels["component"] == Process) &&
		(p.Namespace == metav1.NamespaceSystem || slices.ContainsFunc(p.Spec.Containers, writesRules))
}

// writesRules reports whether a container may write the rules of its network namespace: it has CAP_NET_ADMIN.
func writesRules(c corev1.Container) bool {
	s := c.SecurityContext
	return s != nil && (s.Privileged != nil && *s.Privileged || s.Capabilities != nil &&
		slices.ContainsFunc(s.Capabilities.Add, func(x corev1.Capability) bool {
			return x == "NET_ADMIN" || x == "CAP_NET_ADMIN" || x == "ALL"
		}))
}

// MountedConfigMaps are the names of the ConfigMaps that a pod mounts, in its own namespace, sorted.
func MountedConfigMaps(p *corev1.Pod) []string {
	names := map[string]bool{}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.ConfigMap != nil {
			names[v.ConfigMap.Name] = true
		}
		if v.Projected == nil {
			continue
		}
		for j := range v.Projected.Sources {
			// Every pod's token is projected beside the certificates of the API server.
			if m := v.Projected.Sources[j].ConfigMap; m != nil && m.Name != "kube-root-ca.crt" {
				names[m.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// ConfigOf chooses the configuration of the kube-proxy that runs in a pod: that of the ConfigMap which the pod mounts.
// Where there is no pod, or what it mounts is not known, it is the one ConfigMap with a configuration that was read, or
// kube-system/kube-proxy where that is the only one which can be meant. It is nil where there is none, and where it
// cannot be told which one counts; the error says why, and is of the ConfigMap named about.
func ConfigOf(pod *corev1.Pod, stored []StoredConfig) (c *Config, about string, err error) {
	if len(stored) == 0 {
		return nil, "", nil
	}
	namespace, names := metav1.NamespaceSystem, []string(nil)
	if pod != nil {
		if names = MountedConfigMaps(pod); len(names) > 0 {
			namespace = pod.Namespace
		}
	}
	var meant, usable []*StoredConfig
	for i := range stored {
		s := &stored[i]
		if names == nil && (s.Err == nil || s.Name == Process) || slices.Contains(names, s.Name) {
			if s.Namespace != namespace {
				continue
			}
			if meant = append(meant, s); s.Err == nil {
				usable = append(usable, s)
			}
		}
	}
	for _, s := range meant {
		if s.Err != nil && (!errors.Is(s.Err, errNoConfig) || len(usable) == 0) {
			return nil, s.Source(), s.Err
		}
	}
	switch {
	case len(usable) == 1:
		return &usable[0].Config, "", nil
	case len(usable) > 1:
		sources := make([]string, len(usable))
		for i, s := range usable {
			sources[i] = s.Namespace + "/" + s.Name
		}
		if names != nil {
			return nil, ConfigMapPrefix + strings.Join(sources, ", "), fmt.Errorf(
				"pod %s/%s mounts all of them, and which one kube-proxy is started with is not known", pod.Namespace, pod.Name)
		}
		return nil, ConfigMapPrefix + strings.Join(sources, ", "), errors.New(
			"each holds a configuration of kube-proxy, and which one the node's kube-proxy mounts is not known: " +
				"cluster/pods with the pods' volumes would tell")
	case names != nil:
		return nil, ConfigMapPrefix + namespace + "/" + strings.Join(names, ", "+namespace+"/"), fmt.Errorf(
			"pod %s/%s mounts it, and it was not collected", pod.Namespace, pod.Name)
	}
	return nil, "", nil
}
