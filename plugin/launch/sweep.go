// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// Which says which pods of other runs a sweep removes.
type Which int

// What a sweep takes.
const (
	// Leftovers are the pods that have ended, and that no run waits for any more.
	Leftovers Which = iota
	// All are also those that run, be it for somebody else, and those that were to stay.
	All
)

// Sweep removes pods that runs have left behind in the helper namespace, and returns them. stay is the number of those
// that it leaves as they are in use, or were to stay. Pods that something else owns are never touched, nor are those of
// this run. nodes are those whose pods are removed; nil: all.
func (l *Launcher) Sweep(
	ctx context.Context, which Which, nodes []string,
) (removed []*corev1.Pod, stay int, err error) {
	list, err := l.pods.List(ctx, metav1.ListOptions{LabelSelector: selector("")})
	if err != nil {
		return nil, 0, fmt.Errorf("cannot look for helper pods in namespace %s: %w", l.o.Namespace, Forbidden(err))
	}
	var errs []error
	for i := range list.Items {
		p := &list.Items[i]
		elsewhere := nodes != nil && !slices.Contains(nodes, p.Spec.NodeName)
		if p.Labels[labelRun] == l.o.Run || len(p.OwnerReferences) > 0 || p.DeletionTimestamp != nil || elsewhere {
			continue
		}
		if which == Leftovers && (p.Labels[labelKeep] != "" || !isLeftover(p, time.Now())) {
			stay++
			continue
		}
		if err := deletePod(ctx, l.pods, p, false); err != nil {
			errs = append(errs, fmt.Errorf("could not delete the helper pod %s/%s: %w", p.Namespace, p.Name, Forbidden(err)))
			continue
		}
		removed = append(removed, p)
	}
	return removed, stay, errors.Join(errs...)
}

// unclaimed is how long after its end a pod is left to its own run, which asks why its helper ended (accountTimeout),
// and then removes the pod (removeTimeout).
const unclaimed = 30 * time.Second

// isLeftover says that a pod has ended and no run can still be waiting for it. Nobody waits for a helper that has held
// a programmed path to its end: the plugin is gone, or attached to it and told by the stream.
func isLeftover(p *corev1.Pod, now time.Time) bool {
	switch p.Status.Phase {
	case corev1.PodSucceeded:
		return p.Labels[labelProgram] != "" || now.Sub(endOf(p)) > unclaimed
	case corev1.PodFailed:
		return now.Sub(endOf(p)) > unclaimed
	case corev1.PodPending, corev1.PodRunning, corev1.PodUnknown:
	}
	return false
}

// endOf is when a pod ended: the end of its last container, or its creation where none has run.
func endOf(p *corev1.Pod) time.Time {
	end := p.CreationTimestamp.Time
	for i := range p.Status.ContainerStatuses {
		if t := p.Status.ContainerStatuses[i].State.Terminated; t != nil && t.FinishedAt.After(end) {
			end = t.FinishedAt.Time
		}
	}
	return end
}

// sweepOnce removes leftovers beside the run, which neither waits nor fails for it.
func (l *Launcher) sweepOnce() {
	l.sweep.Do(func() {
		l.side.Go(func() {
			ctx, cancel := context.WithTimeout(quiet(context.Background()), l.o.Timeout)
			defer cancel()
			removed, _, err := l.Sweep(ctx, Leftovers, nil)
			klog.V(2).InfoS("Removed helper pods of dead runs", "count", len(removed), "err", err)
		})
	})
}
