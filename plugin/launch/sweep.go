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
	// Leftovers are the pods that have ended and are past their deadline: their run is dead.
	Leftovers Which = iota
	// All are also those that run, be it for somebody else, and those that were to stay.
	All
)

// Sweep removes pods that runs have left behind in the helper namespace, and returns them. Pods that something else
// owns are never touched, nor are those of this run. nodes are those whose pods are removed; nil: all.
func (l *Launcher) Sweep(ctx context.Context, which Which, nodes []string) (removed []*corev1.Pod, err error) {
	list, err := l.pods.List(ctx, metav1.ListOptions{LabelSelector: selector("")})
	if err != nil {
		return nil, fmt.Errorf("cannot look for helper pods in namespace %s: %w", l.o.Namespace, Forbidden(err))
	}
	var errs []error
	for i := range list.Items {
		p := &list.Items[i]
		elsewhere := nodes != nil && !slices.Contains(nodes, p.Spec.NodeName)
		if p.Labels[labelRun] == l.o.Run || len(p.OwnerReferences) > 0 || p.DeletionTimestamp != nil || elsewhere {
			continue
		}
		if which == Leftovers && (p.Labels[labelKeep] != "" || !isLeftover(p, time.Now())) {
			continue
		}
		if err := deletePod(ctx, l.pods, p, false); err != nil {
			errs = append(errs, fmt.Errorf("could not delete the helper pod %s/%s: %w", p.Namespace, p.Name, Forbidden(err)))
			continue
		}
		removed = append(removed, p)
	}
	return removed, errors.Join(errs...)
}

// isLeftover says that a pod has ended and no run can still be waiting for it.
func isLeftover(p *corev1.Pod, now time.Time) bool {
	if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
		return false
	}
	deadline := p.Spec.ActiveDeadlineSeconds
	return deadline != nil && now.Sub(p.CreationTimestamp.Time) > time.Duration(*deadline)*time.Second
}

// sweepOnce removes leftovers beside the run, which neither waits nor fails for it.
func (l *Launcher) sweepOnce() {
	l.sweep.Do(func() {
		l.side.Go(func() {
			ctx, cancel := context.WithTimeout(quiet(context.Background()), l.o.Timeout)
			defer cancel()
			removed, err := l.Sweep(ctx, Leftovers, nil)
			klog.V(2).InfoS("Removed helper pods of dead runs", "count", len(removed), "err", err)
		})
	})
}
