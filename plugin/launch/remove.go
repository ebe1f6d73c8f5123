// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// removeTimeout bounds the removal of a pod: an API server that restarts is back by then.
const removeTimeout = 20 * time.Second

// remove deletes a run's own pod, or says how to. Its context ends only with removeTimeout.
func (l *Launcher) remove(ctx context.Context, pod *corev1.Pod, force bool) error {
	command := fmt.Sprintf("kubectl delete pod -n %s %s", pod.Namespace, pod.Name)
	if l.o.Keep {
		l.o.Note(pod.Spec.NodeName, fmt.Sprintf("the helper pod %s/%s stays because of --keep; delete it with: %s",
			pod.Namespace, pod.Name, command))
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	if err := deletePod(ctx, l.pods, pod, force); err != nil {
		return fmt.Errorf("could not delete the helper pod %s/%s (%w); delete it with: %s",
			pod.Namespace, pod.Name, Forbidden(err), command)
	}
	return nil
}

// deletePod deletes this very pod, and tries again while the API server does not answer. The pod's own grace period is
// an upper bound that costs nothing, as the helper ends by itself; force is for a pod whose kubelet has never heard of
// it and will not confirm that it is gone.
func deletePod(ctx context.Context, pods typedcorev1.PodInterface, pod *corev1.Pod, force bool) error {
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}
	if force {
		options.GracePeriodSeconds = new(int64(0))
	}
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := pods.Delete(ctx, pod.Name, options)
		switch {
		case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err): // gone, or another one of that name
			return nil
		case !transient(err) || ctx.Err() != nil:
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}
