// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ktesting "k8s.io/client-go/testing"
)

func TestSweep(t *testing.T) {
	now := time.Now()
	pod := func(name string, age time.Duration, phase corev1.PodPhase, change func(*corev1.Pod)) runtime.Object {
		p := Pod(Options{Run: "other", Namespace: "tools"}, "node1")
		p.Name, p.CreationTimestamp, p.Status.Phase = name, metav1.NewTime(now.Add(-age)), phase
		if change != nil {
			change(p)
		}
		return p
	}
	objects := []runtime.Object{
		pod("done-old", time.Hour, corev1.PodSucceeded, nil),
		pod("failed-old", time.Hour, corev1.PodFailed, nil),
		pod("done-new", time.Second, corev1.PodSucceeded, nil),
		pod("done-now", time.Hour, corev1.PodSucceeded, endedAgo(now, time.Second)),
		pod("done-before", time.Hour, corev1.PodSucceeded, endedAgo(now, time.Minute)),
		pod("failed-now", time.Hour, corev1.PodFailed, endedAgo(now, time.Second)),
		pod("program-done", 20*time.Second, corev1.PodSucceeded, programs),
		pod("program-failed", time.Second, corev1.PodFailed, programs),
		pod("program-running", time.Hour, corev1.PodRunning, programs),
		pod("running-old", time.Hour, corev1.PodRunning, nil),
		pod("pending", time.Second, corev1.PodPending, nil),
		pod("kept", time.Hour, corev1.PodSucceeded, func(p *corev1.Pod) { p.Labels[labelKeep] = "true" }),
		pod("ours", time.Hour, corev1.PodSucceeded, func(p *corev1.Pod) { p.Labels[labelRun] = "run1" }),
		pod("owned", time.Hour, corev1.PodSucceeded, func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet"}}
		}),
		pod("someone-elses", time.Hour, corev1.PodSucceeded, func(p *corev1.Pod) { delete(p.Labels, labelManagedBy) }),
		pod("without-run", time.Hour, corev1.PodSucceeded, func(p *corev1.Pod) { delete(p.Labels, labelRun) }),
		pod("elsewhere", time.Hour, corev1.PodSucceeded, func(p *corev1.Pod) { p.Namespace = "default" }),
		pod("no-deadline", time.Hour, corev1.PodSucceeded, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = nil }),
	}
	for name, c := range map[string]struct {
		which Which
		want  []string
		stay  int
	}{
		"leftovers": {Leftovers, []string{"done-before", "done-old", "failed-old", "no-deadline", "program-done"}, 8},
		"all": {All, []string{
			"done-before", "done-new", "done-now", "done-old", "failed-now", "failed-old", "kept", "no-deadline", "pending",
			"program-done", "program-failed", "program-running", "running-old",
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var copies []runtime.Object
			for _, o := range objects {
				copies = append(copies, o.DeepCopyObject())
			}
			w := newFakeCluster(t, nil, copies...)
			before := w.left()
			removed, stay, err := w.l.Sweep(t.Context(), c.which, nil)
			if err != nil || stay != c.stay {
				t.Fatal(stay, err)
			}
			var names []string
			for _, p := range removed {
				names = append(names, p.Name)
			}
			slices.Sort(names)
			if !slices.Equal(names, c.want) {
				t.Errorf("removed %v", names)
			}
			if left := w.left(); len(left) != len(before)-len(c.want) {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// programs makes a pod one that programs paths.
func programs(p *corev1.Pod) { p.Labels[labelProgram] = "true" }

// endedAgo has a pod's container end some time ago.
func endedAgo(now time.Time, ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: containerName, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(now.Add(-ago))},
		}}}
	}
}

func TestSweepFails(t *testing.T) {
	forbidden := func(verb string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "",
			errors.New(`User "jane" cannot `+verb+` resource "pods" in API group "" in the namespace "tools"`))
	}
	p := Pod(Options{Run: "other", Namespace: "tools"}, "node1")
	p.Name = "p"
	w := newFakeCluster(t, nil, p)
	w.react("delete", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
		return true, nil, forbidden("delete")
	})
	removed, _, err := w.l.Sweep(t.Context(), All, nil)
	expect(t, err,
		"could not delete the helper pod tools/p: cannot delete pods in tools as user jane: deploy/rbac.yaml grants it")
	if len(removed) > 0 {
		t.Errorf("%d pods are said to be removed", len(removed))
	}
	w.react("list", "pods", func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, forbidden("list") })
	_, _, err = w.l.Sweep(t.Context(), All, nil)
	expect(t, err,
		"cannot look for helper pods in namespace tools: cannot list pods in tools as user jane: deploy/rbac.yaml grants it")
}
