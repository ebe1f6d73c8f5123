// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
)

// change is a pod as it is now, or why nothing more will be heard of it.
type change struct {
	pod  *corev1.Pod
	gone bool // deleted
	err  error
}

// follow tells of a pod's changes until it is gone or ctx ends. A watch that breaks, as when the API server restarts,
// is begun anew.
func (l *Launcher) follow(ctx context.Context, pod *corev1.Pod) <-chan change {
	updates := make(chan change)
	tell := func(u change) bool {
		select {
		case updates <- u:
			return !u.gone && u.err == nil
		case <-ctx.Done():
			return false
		}
	}
	l.side.Go(func() {
		pause := 100 * time.Millisecond
		version := pod.ResourceVersion
		for {
			begun := time.Now()
			again, err := l.watch(ctx, pod, version, tell)
			if !again {
				return
			}
			klog.V(2).InfoS("The watch of the helper pod ended", "pod", klog.KObj(pod), "err", err)
			if time.Since(begun) > time.Second {
				pause = 100 * time.Millisecond
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
			pause = min(2*pause, 2*time.Second)
			now, err := l.pods.Get(ctx, pod.Name, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				tell(change{gone: true})
				return
			case err != nil && !transient(err):
				tell(change{err: Forbidden(err)})
				return
			case err == nil:
				if now.UID != pod.UID {
					tell(change{gone: true})
					return
				}
				if !tell(change{pod: now}) {
					return
				}
				version = now.ResourceVersion
			}
		}
	})
	return updates
}

// watch runs one watch to its end, and says whether another should follow.
func (l *Launcher) watch(
	ctx context.Context, pod *corev1.Pod, version string, tell func(change) bool,
) (again bool, err error) {
	w, err := l.pods.Watch(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector("metadata.name", pod.Name).String(),
		ResourceVersion: version,
	})
	if err != nil {
		if transient(err) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return ctx.Err() == nil, err
		}
		tell(change{err: Forbidden(err)})
		return false, err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, nil
		case e, ok := <-w.ResultChan():
			if !ok {
				return true, nil
			}
			switch e.Type {
			case watch.Added, watch.Modified, watch.Deleted:
				now, ok := e.Object.(*corev1.Pod)
				if !ok || now.UID != pod.UID {
					continue
				}
				if !tell(change{pod: now, gone: e.Type == watch.Deleted}) {
					return false, nil
				}
			case watch.Error:
				return true, apierrors.FromObject(e.Object)
			case watch.Bookmark:
			}
		}
	}
}
