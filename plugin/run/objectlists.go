// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// objectLists reads the objects for many nodes at once: each needs what was asked for after its request, and all that
// wait for the same answer share it. An answer that has what the last one had is the last one: its index need not be
// made again.
type objectLists struct {
	mu      sync.Mutex
	next    *objectList // not begun yet
	running bool
	last    *snapshot.Cluster // the last answer

	watched *cluster.Watched // nil where nothing is watched
	used    bool             // an answer was that of a watch
	doubt   bool             // a watch has ended, and may have been behind before
	closed  bool
}

type objectList struct {
	done    chan struct{}
	list    bool // somebody needs a list
	objects *snapshot.Cluster
	err     error
}

// get returns the objects of a list that begins after the call.
func (l *objectLists) get(ctx context.Context, s *Session) (*snapshot.Cluster, error) {
	return l.ask(ctx, s, true)
}

// now returns the objects by a watch; where there is none, those of a list.
func (l *objectLists) now(ctx context.Context, s *Session) (*snapshot.Cluster, error) {
	return l.ask(ctx, s, false)
}

func (l *objectLists) ask(ctx context.Context, s *Session, list bool) (*snapshot.Cluster, error) {
	l.mu.Lock()
	if l.next == nil {
		l.next = &objectList{done: make(chan struct{})}
	}
	mine := l.next
	mine.list = mine.list || list
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
		now, watched := l.next, l.watched
		l.next = nil
		if l.running = now != nil; !l.running {
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		told := false
		if watched != nil && !now.list {
			now.objects, now.err = watchedObjects(ctx, s, watched)
			told = now.err == nil
		}
		if !told {
			now.err = s.ask(ctx, func(ctx context.Context) (err error) {
				now.objects, err = s.source.Proxied(ctx, s.Objects)
				return err
			})
		}
		if now.err == nil {
			if !told && watched != nil && watched.Ended() {
				l.goOn(ctx, watched, now.objects)
			}
			now.objects = l.answered(now.objects, told)
		}
		close(now.done)
	}
}

func watchedObjects(ctx context.Context, s *Session, by *cluster.Watched) (objects *snapshot.Cluster, err error) {
	err = s.ask(ctx, func(ctx context.Context) (err error) {
		objects, err = by.Objects(ctx)
		return err
	})
	if err != nil {
		klog.V(2).InfoS("The objects are listed again", "why", err)
	}
	return objects, err
}

// answered returns the last objects where these are the same, and remembers these as the last otherwise.
func (l *objectLists) answered(objects *snapshot.Cluster, told bool) *snapshot.Cluster {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used = l.used || told
	if l.last == nil || !unchanged(l.last, objects) {
		l.last = objects
	}
	return l.last
}

// watch has the objects watched until close is called, from those of a list. Where that is not possible they are
// listed.
func (l *objectLists) watch(ctx context.Context, by cluster.Watcher, from *snapshot.Cluster) {
	go func() {
		w, err := by.Watch(ctx, from)
		if err != nil {
			klog.V(2).InfoS("The objects are listed for each node, not watched", "why", err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.watched = w; w != nil && l.closed {
			w.Stop()
			l.watched = nil
		}
	}()
}

// goOn has a watch that has ended go on from a list. It may have ended because its connection was dead for a while: if
// nothing has changed since it was asked last, its answers were right.
func (l *objectLists) goOn(ctx context.Context, ended *cluster.Watched, from *snapshot.Cluster) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.watched != ended {
		return
	}
	l.doubt = l.doubt || l.used && !unchanged(l.last, from)
	l.watched = nil
	l.watch(ctx, ended.Watcher(), from)
}

// close ends the watch: from then on all is listed.
func (l *objectLists) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed = true; l.watched != nil {
		l.watched.Stop()
		l.watched = nil
	}
}

// Times of behind.
const (
	behindLooks = 3
	behindPause = time.Second
)

// behind tells whether the watch is behind, so that what was judged by it has to be judged again: an object is in one
// version by each of several lists, and in another one by the watch, all the while. The error is that of a list.
func (l *objectLists) behind(ctx context.Context, s *Session) (bool, error) {
	l.mu.Lock()
	watched, used, doubt := l.watched, l.used, l.doubt
	l.mu.Unlock()
	if !used || doubt || watched == nil {
		return doubt, nil
	}
	var differ map[proxied][2]string
	for range behindLooks {
		listed, err := l.get(ctx, s)
		if err != nil {
			return false, err
		}
		told, err := watchedObjects(ctx, s, watched)
		if err != nil {
			return true, nil //nolint:nilerr // it is logged, and nobody can tell any more
		}
		differ = stillDifferent(differ, versions(listed), versions(told))
		if len(differ) == 0 {
			return false, nil
		}
		if err := wait(ctx, behindPause); err != nil {
			return false, err
		}
	}
	return true, nil
}

// stillDifferent returns the objects that a list and a watch have in different versions, and in the same ones as the
// time before, unless this is the first (before is nil); a version is "" where there is no such object.
func stillDifferent(before map[proxied][2]string, listed, told map[proxied]string) map[proxied][2]string {
	out := map[proxied][2]string{}
	note := func(o proxied) {
		if now := [2]string{listed[o], told[o]}; now[0] != now[1] && (before == nil || before[o] == now) {
			out[o] = now
		}
	}
	for o := range listed {
		note(o)
	}
	for o := range told {
		note(o)
	}
	return out
}
