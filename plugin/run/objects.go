// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// changes names the Services that differ between two readings, or whose EndpointSlices do; of all if names is nil.
func changes(before, after *snapshot.Cluster, names []types.NamespacedName) []types.NamespacedName {
	if before == after {
		return nil
	}
	was, is := versions(before), versions(after)
	var out []types.NamespacedName
	add := func(name types.NamespacedName) {
		if (names == nil || slices.Contains(names, name)) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	for o, v := range was {
		if is[o] != v {
			add(o.service)
		}
	}
	for o := range is {
		if _, ok := was[o]; !ok {
			add(o.service)
		}
	}
	return out
}

// proxied names an object that decides on a Service.
type proxied struct {
	service types.NamespacedName
	slice   string // "" for the Service itself
}

// versions returns each object's version.
func versions(c *snapshot.Cluster) map[proxied]string {
	out := make(map[proxied]string, len(c.Services)+len(c.EndpointSlices))
	for _, svc := range c.Services {
		name := types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}
		out[proxied{service: name}] = string(svc.UID) + svc.ResourceVersion
	}
	for _, s := range c.EndpointSlices {
		out[proxied{expect.ServiceOf(s), s.Name}] = string(s.UID) + s.ResourceVersion
	}
	return out
}

// unchanged tells whether two readings have the same objects in the same order, each in the same version. What has no
// version may have changed.
func unchanged(before, after *snapshot.Cluster) bool {
	return sameVersions(before.Services, after.Services) && sameVersions(before.EndpointSlices, after.EndpointSlices) &&
		sameVersions(before.Endpoints, after.Endpoints) && slices.Equal(before.Nodes, after.Nodes) &&
		slices.Equal(before.Pods, after.Pods) && slices.Equal(before.ConfigMaps, after.ConfigMaps) &&
		slices.Equal(before.Missing, after.Missing) && maps.Equal(before.Unread, after.Unread)
}

func sameVersions[T metav1.Object](before, after []T) bool {
	return slices.EqualFunc(before, after, func(a, b T) bool {
		return a.GetResourceVersion() != "" && a.GetResourceVersion() == b.GetResourceVersion() &&
			a.GetUID() == b.GetUID() && a.GetName() == b.GetName() && a.GetNamespace() == b.GetNamespace()
	})
}

// objectLists lists the objects for many nodes at once: each needs a list that was begun after its request, and all
// that wait for the same list share it. A list that has what the last one had is the last one: its index need not be
// made again.
type objectLists struct {
	mu      sync.Mutex
	next    *objectList // not begun yet
	running bool
	last    *snapshot.Cluster // the result of the last list
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
			if l.last != nil && unchanged(l.last, now.objects) {
				now.objects = l.last
			}
			l.last = now.objects
		}
		close(now.done)
	}
}
