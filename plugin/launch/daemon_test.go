// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func daemonPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "daemon-1", Namespace: "tools",
			Labels:          map[string]string{labelName: nameHelper, labelComponent: componentDaemon},
			OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "daemon", Controller: new(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: "node1"},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}

func TestDaemonSetIsUsed(t *testing.T) {
	w := newFakeCluster(t, nil, daemonPod())
	w.attach = func(ctx context.Context, pod *corev1.Pod, command []string, s streams) error {
		if pod.Name != "daemon-1" ||
			!slices.Equal(command, []string{"/svcproxy-nodehelper", "serve", "--hello=1m0s", "--deadline=6m0s"}) {
			return errors.New("this is not the pod, or not the command")
		}
		return goodHelper(ctx, pod, command, s)
	}
	s, err := w.l.Open(t.Context(), "node1")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Collect(t.Context(), nil, nil); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if left := w.left(); !slices.Equal(left, []string{"daemon-1"}) {
		t.Errorf("left: %v", left)
	}
	if made := w.did("create", "pods"); len(made) > 0 {
		t.Errorf("%d pods were made", len(made))
	}
}

// A pod that only has the labels of the DaemonSet's pods is not used.
func TestDaemonSetIsNotUsed(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod, *Options){
		"not ready":       func(p *corev1.Pod, _ *Options) { p.Status.Conditions[0].Status = corev1.ConditionFalse },
		"on another node": func(p *corev1.Pod, _ *Options) { p.Spec.NodeName = "node2" },
		"going away": func(p *corev1.Pod, _ *Options) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{}, []string{"x/y"}
		},
		"of no DaemonSet":    func(p *corev1.Pod, _ *Options) { p.OwnerReferences = nil },
		"not a component":    func(p *corev1.Pod, _ *Options) { delete(p.Labels, labelComponent) },
		"in other namespace": func(p *corev1.Pod, _ *Options) { p.Namespace = "elsewhere" },
		"not wanted":         func(_ *corev1.Pod, o *Options) { o.OwnPod = true },
	} {
		t.Run(name, func(t *testing.T) {
			p := daemonPod()
			var wanted Options
			change(p, &wanted)
			w := newFakeCluster(t, func(o *Options) { o.OwnPod = wanted.OwnPod }, p)
			s, err := w.l.Open(t.Context(), "node1")
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if made := w.did("create", "pods"); len(made) != 1 {
				t.Errorf("%d pods were made", len(made))
			}
		})
	}
}

// If the DaemonSet's helper cannot be used, an own one is launched, and a note is written.
func TestDaemonSetFails(t *testing.T) {
	w := newFakeCluster(t, nil, daemonPod())
	w.attach = func(ctx context.Context, pod *corev1.Pod, command []string, s streams) error {
		if command != nil {
			return says("", "exec: /svcproxy-nodehelper: not found",
				errors.New("command terminated with exit code 127"))(ctx, pod, command, s)
		}
		return goodHelper(ctx, pod, command, s)
	}
	s, err := w.l.Open(t.Context(), "node1")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	want := []string{
		"the DaemonSet's pod tools/daemon-1 cannot be used: it did not answer: command terminated with exit code 127; its " +
			"last output: exec: /svcproxy-nodehelper: not found; creating a pod of its own",
	}
	if !slices.Equal(w.noted, want) {
		t.Errorf("noted %q", w.noted)
	}
}

func TestOtherBuildIsNoted(t *testing.T) {
	w := newFakeCluster(t, func(o *Options) { o.Build = "v1.3.0" })
	if _, err := w.l.Open(t.Context(), "node1"); err != nil {
		t.Fatal(err)
	}
	if w.l.isNews("v1.2.3") || !w.l.isNews("v1.1.0") { // of however many nodes
		t.Error("each build has to be told once")
	}
	want := []string{"the helper in tools/svcproxy-abcde is of build v1.2.3, the plugin of v1.3.0"}
	if !slices.Equal(w.noted, want) {
		t.Errorf("noted %q", w.noted)
	}
}
