// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// kubeProxyPod returns the pod of kube-proxy on a node.
func kubeProxyPod(ctx context.Context, node string) (*corev1.Pod, error) {
	list, err := kubeProxyPods(ctx, node)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if p := &list[i]; p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
			return p, nil
		}
	}
	return nil, fmt.Errorf("kube-proxy does not run on %s", node)
}

func kubeProxyPods(ctx context.Context, node string) ([]corev1.Pod, error) {
	list, err := client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{
		LabelSelector: "k8s-app=kube-proxy", FieldSelector: "spec.nodeName=" + node,
	})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// restartKubeProxy does what the findings' remedies say.
func restartKubeProxy(t *testing.T, node string) {
	t.Helper()
	p, err := kubeProxyPod(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(t, "kube-proxy runs again", func() (bool, error) {
		now, err := kubeProxyPod(t.Context(), node)
		return err == nil && now.Name != p.Name, err
	})
}

// keptOff is the label of nodes that kube-proxy is kept off by the tests.
const keptOff = "svcproxy-e2e/no-kube-proxy"

func stopKubeProxy(t *testing.T, node string) {
	t.Helper()
	labelNode(t, node, "true")
	wait(t, "kube-proxy is gone from "+node, func() (bool, error) {
		list, err := kubeProxyPods(t.Context(), node)
		return err == nil && len(list) == 0, err
	})
}

func startKubeProxy(t *testing.T, node string) {
	t.Helper()
	labelNode(t, node, nil)
	wait(t, "kube-proxy runs on "+node, func() (bool, error) {
		_, err := kubeProxyPod(t.Context(), node)
		return err == nil, err
	})
}

// labelNode sets the label; nil removes it.
func labelNode(t *testing.T, node string, value any) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{keptOff: value}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// obeyLabel has kube-proxy's DaemonSets keep off nodes with the label, or takes that back.
func obeyLabel(ctx context.Context, obey bool) error {
	sets := client.AppsV1().DaemonSets(metav1.NamespaceSystem)
	list, err := sets.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	found := false
	for i := range list.Items {
		ds := &list.Items[i]
		if ds.Spec.Template.Labels["k8s-app"] != "kube-proxy" {
			continue
		}
		found = true
		if !setAffinity(&ds.Spec.Template.Spec, obey) {
			continue
		}
		if _, err := sets.Update(ctx, ds, metav1.UpdateOptions{}); err != nil {
			return err
		}
		if err := eventually(ctx, "DaemonSet "+ds.Name+" is rolled out", func() (bool, error) {
			now, err := sets.Get(ctx, ds.Name, metav1.GetOptions{})
			return err == nil && rolledOut(now), err
		}); err != nil {
			return err
		}
	}
	if !found {
		return errors.New("kube-proxy is not run by a DaemonSet in kube-system: the tests cannot stop it")
	}
	return nil
}

func rolledOut(ds *appsv1.DaemonSet) bool {
	s := &ds.Status
	return s.ObservedGeneration == ds.Generation && s.UpdatedNumberScheduled == s.DesiredNumberScheduled &&
		s.NumberReady == s.DesiredNumberScheduled
}

// setAffinity tells whether something had to be changed.
func setAffinity(spec *corev1.PodSpec, obey bool) (changed bool) {
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := &spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if *required == nil {
		*required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	isOurs := func(r corev1.NodeSelectorRequirement) bool { return r.Key == keptOff }
	terms := (*required).NodeSelectorTerms
	for i := range terms {
		if slices.ContainsFunc(terms[i].MatchExpressions, isOurs) == obey {
			continue
		}
		changed = true
		if obey {
			terms[i].MatchExpressions = append(terms[i].MatchExpressions,
				corev1.NodeSelectorRequirement{Key: keptOff, Operator: corev1.NodeSelectorOpDoesNotExist})
		} else {
			terms[i].MatchExpressions = slices.DeleteFunc(terms[i].MatchExpressions, isOurs)
		}
	}
	// A term without anything matches no node, where no term at all matches every one.
	if !obey && len(terms) == 1 && len(terms[0].MatchExpressions)+len(terms[0].MatchFields) == 0 {
		*required = nil
	}
	return changed
}

// modeOf returns what mode kube-proxy runs in on a node.
func modeOf(t *testing.T, node string) string {
	t.Helper()
	if strings.Contains(onNode(t, node, nil, "/usr/sbin/nft", "list", "tables"), "kube-proxy") {
		return "nftables"
	}
	return "iptables"
}
