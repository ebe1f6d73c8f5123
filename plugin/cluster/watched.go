// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Watcher is a Source whose Services and EndpointSlices can be watched.
type Watcher interface {
	// Watch goes on from objects that Objects or Proxied returned, until the context ends or Stop is called. Errors are
	// those of the API server, which may not grant it, and ErrNotListed.
	Watch(ctx context.Context, from *snapshot.Cluster) (*Watched, error)
}

// ErrNotListed is the error of a watch that has nothing to go on from.
var ErrNotListed = errors.New("the objects are of no list of the API server")

// errEnded is why there are no further events where the API server has ended a watch, as it does after an hour or so.
var errEnded = errors.New("the watch ended")

// Watched has Services and EndpointSlices as they are by the events of a watch, in the order of a list. It costs the
// API server next to nothing, where a list of a large cluster's takes a second of its processor.
type Watched struct {
	api  *API
	stop context.CancelFunc

	mu        sync.Mutex
	from      *snapshot.Cluster
	services  ordered[*corev1.Service]
	endpoints ordered[*discoveryv1.EndpointSlice]
	err       error // why it is out of date
}

// Watch watches the Services and EndpointSlices.
func (a *API) Watch(ctx context.Context, from *snapshot.Cluster) (*Watched, error) {
	if from.Listed.Services == "" || from.Listed.EndpointSlices == "" {
		return nil, ErrNotListed
	}
	ctx, stop := context.WithCancel(ctx)
	services, err := a.client.CoreV1().Services(a.namespace).Watch(ctx,
		metav1.ListOptions{ResourceVersion: from.Listed.Services})
	if err != nil {
		stop()
		return nil, denied(err)
	}
	endpoints, err := a.client.DiscoveryV1().EndpointSlices(a.namespace).Watch(ctx,
		metav1.ListOptions{ResourceVersion: from.Listed.EndpointSlices})
	if err != nil {
		services.Stop()
		stop()
		return nil, denied(err)
	}
	w := &Watched{
		api: a, stop: stop, from: from, services: inOrder(from.Services), endpoints: inOrder(from.EndpointSlices),
	}
	go w.follow(ctx, services, w.services.take)
	go w.follow(ctx, endpoints, w.endpoints.take)
	return w, nil
}

// Stop ends the watch.
func (w *Watched) Stop() { w.stop() }

// Watcher is whose objects are watched.
func (w *Watched) Watcher() Watcher { return w.api }

// Ended tells whether the watch has ended: the objects have to be listed anew.
func (w *Watched) Ended() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err != nil
}

// Objects returns the objects that the watch began with, with Services and EndpointSlices as the API server has told of
// them: the watch may be behind a list by a moment, or for longer where something holds its events up. The error says
// why this is not known.
func (w *Watched) Objects(ctx context.Context) (*snapshot.Cluster, error) {
	// Over a connection that is dead no event comes; over HTTP/2 the watches have the same one as these questions.
	one := metav1.ListOptions{Limit: 1}
	if err := together(
		func() error {
			_, err := w.api.client.CoreV1().Services(w.api.namespace).List(ctx, one)
			return err
		},
		func() error {
			_, err := w.api.client.DiscoveryV1().EndpointSlices(w.api.namespace).List(ctx, one)
			return err
		},
	); err != nil {
		return nil, denied(err)
	}
	w.mu.Lock()
	c, err := *w.from, w.err
	c.Services, c.EndpointSlices = w.services.share(), w.endpoints.share()
	w.mu.Unlock()
	if err != nil {
		return nil, err
	}
	// They go on from nothing that was listed together with the objects.
	c.Listed = snapshot.Listed{}
	if err := w.api.mirrored(ctx, &c); err != nil {
		return nil, err
	}
	return &c, nil
}

// follow takes the events of a kind until there are no more.
func (w *Watched) follow(ctx context.Context, events watch.Interface, take func(watch.Event) error) {
	defer w.stop() // without one kind the other is of no use
	context.AfterFunc(ctx, events.Stop)
	for e := range events.ResultChan() {
		w.mu.Lock()
		w.err = cmp.Or(w.err, take(e))
		ended := w.err != nil
		w.mu.Unlock()
		if ended {
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = cmp.Or(w.err, errEnded)
}

// ordered are the objects of a kind, in the order of a list: by the API server's keys.
type ordered[T metav1.Object] struct {
	items  []T
	shared bool // with whoever asked: it must not be written to
}

func inOrder[T metav1.Object](items []T) ordered[T] {
	if !slices.IsSortedFunc(items, byKey) {
		items = slices.SortedFunc(slices.Values(items), byKey)
	}
	return ordered[T]{items, true}
}

func byKey[T metav1.Object](a, b T) int { return cmp.Compare(key(a), key(b)) }

func key(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

func (o *ordered[T]) share() []T {
	o.shared = true
	return o.items
}

// take applies an event. The error is what an event of the type Error says, or that of a limit.
func (o *ordered[T]) take(e watch.Event) error {
	switch e.Type {
	case watch.Added, watch.Modified, watch.Deleted:
	case watch.Error:
		return apierrors.FromObject(e.Object)
	case watch.Bookmark:
		return nil
	default:
		return fmt.Errorf("the API server tells of an event %q", e.Type)
	}
	item, ok := e.Object.(T)
	if !ok {
		return fmt.Errorf("the API server tells of an object of type %T", e.Object)
	}
	if o.shared {
		o.items, o.shared = slices.Clone(o.items), false
	}
	at, found := slices.BinarySearchFunc(o.items, item, byKey)
	switch {
	case e.Type == watch.Deleted && found:
		o.items = slices.Delete(o.items, at, at+1)
	case e.Type == watch.Deleted:
	case found:
		o.items[at] = item
	case len(o.items) == bounds.Objects:
		return bounds.Errorf("the API server has more than %d objects of type %T: at most %[1]d were expected",
			bounds.Objects, item)
	default:
		o.items = slices.Insert(o.items, at, item)
	}
	return nil
}
