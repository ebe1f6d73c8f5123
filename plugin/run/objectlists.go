// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// objectLists lists the objects for many nodes at once: each needs a list that was begun after its request, and all
// that wait for the same list share it. A list that has what the last one had is the last one: its index need not be
// made again.
type objectLists struct {
	mu      sync.Mutex
	next    *objectList // not begun yet
	running bool
	last    *snapshot.Cluster // the last that was returned

	watched *cluster.Watched // between lists; nil where nothing is watched
	// ended has the Watcher of a watch that has ended, or did not begin: it goes on from the next list.
	ended  cluster.Watcher
	closed bool
}

type objectList struct {
	done    chan struct{}
	objects *snapshot.Cluster
	err     error
}

// get returns the objects of a list that begins after the call.
func (l *objectLists) get(ctx context.Context, s *Session) (*snapshot.Cluster, error) {
	l.mu.Lock()
	if l.next == nil {
		l.next = &objectList{done: make(chan struct{})}
	}
	mine := l.next
	if !l.running {
		l.running = true
		go l.run(ctx, s)
	}
	l.mu.Unlock()
	<-mine.done
	return mine.objects, mine.err
}

func (l *objectLists) run(ctx context.Context, s *Session) {
	for {
		l.mu.Lock()
		now := l.next
		l.next = nil
		if l.running = now != nil; !l.running {
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		now.err = s.ask(ctx, func(ctx context.Context) (err error) {
			now.objects, err = s.source.Proxied(ctx, s.Objects)
			return err
		})
		if now.err == nil {
			l.watchAgain(ctx, now.objects)
			now.objects = l.sameAsLast(now.objects)
		}
		close(now.done)
	}
}

// sameAsLast returns the last objects where these are the same, and is told these as the last otherwise.
func (l *objectLists) sameAsLast(objects *snapshot.Cluster) *snapshot.Cluster {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil || !unchanged(l.last, objects) {
		l.last = objects
	}
	return l.last
}

// now returns the objects by a watch, which is told of a change when kube-proxy is; where there is no watch, those of a
// list.
func (l *objectLists) now(ctx context.Context, s *Session) (*snapshot.Cluster, error) {
	l.mu.Lock()
	watched := l.watched
	l.mu.Unlock()
	if watched == nil {
		return l.get(ctx, s)
	}
	var objects *snapshot.Cluster
	err := s.ask(ctx, func(ctx context.Context) (err error) {
		objects, err = watched.Objects(ctx)
		return err
	})
	if err != nil {
		klog.V(2).InfoS("The objects are listed again", "why", err)
		watched.Stop()
		l.mu.Lock()
		if l.watched == watched {
			l.watched, l.ended = nil, watched.Watcher()
		}
		l.mu.Unlock()
		return l.get(ctx, s)
	}
	return l.sameAsLast(objects), nil
}

// close ends a watch.
func (l *objectLists) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.watched != nil {
		l.watched.Stop()
	}
}

// watch begins to watch the objects, from those of a list and until close is called. Where that is not possible they go
// on being listed.
func (l *objectLists) watch(ctx context.Context, by cluster.Watcher, from *snapshot.Cluster) {
	go func() {
		w, err := by.Watch(ctx, from)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.watched = w; w != nil && l.closed {
			w.Stop()
		}
		if err != nil {
			klog.V(2).InfoS("The objects are listed for each node, not watched", "why", err)
		}
		if err != nil && !apierrors.IsForbidden(err) && !errors.Is(err, cluster.ErrNotListed) {
			l.ended = by
		}
	}()
}

// watchAgain has a watch that has ended go on from a list.
func (l *objectLists) watchAgain(ctx context.Context, from *snapshot.Cluster) {
	l.mu.Lock()
	by := l.ended
	l.ended = nil
	l.mu.Unlock()
	if by != nil {
		l.watch(ctx, by, from)
	}
}
