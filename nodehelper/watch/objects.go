// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// The kinds that are watched, as the metrics name them.
const (
	kindServices       = "services"
	kindEndpointSlices = "endpointslices"
	kindNodes          = "nodes"
)

// maxChanges is how many Services' changes are remembered before old ones are forgotten, which is after changeAge.
const (
	maxChanges = 1000
	changeAge  = 2 * maxGrace
)

// objects are the API's Services, EndpointSlices and this Node, as they are told by watches, and other Nodes where they
// were asked for. While the API cannot be reached they stay as they were.
type objects struct {
	client    kubernetes.Interface
	node      string
	informers map[string]cache.SharedIndexInformer
	handlers  []cache.ResourceEventHandlerRegistration
	holding   *holding
	// wake is called after a change that may ask for other rules.
	wake func()
	// failed is called when a request for a kind fails.
	failed func(kind string, err error)
	// answered is called when one succeeds.
	answered func(kind string)
	// reached is told the addresses of the API server.
	reached func(addresses []string)
	now     func() time.Time

	mu      sync.Mutex
	version int                                // of the objects
	changes map[types.NamespacedName]time.Time // the last change of each Service, where there was one
	pending []endpointChange                   // changes of endpoints that nobody has taken yet
	away    map[string]time.Time               // kinds whose last request failed, and since when
	others  []*corev1.Node                     // the other Nodes, as of the last readNodes
	slices  apiwatch.Interface                 // the watch of EndpointSlices; nil: there was none
	again   bool                               // which is to begin anew with all of them
}

// endpointChange is a change of a Service's endpoints.
type endpointChange struct {
	of familyOf
	at time.Time
}

// newObjects makes watches, which start in run.
func newObjects(client kubernetes.Interface, node string) (*objects, error) {
	o := &objects{
		client: client, node: node,
		wake: func() {}, failed: func(string, error) {}, answered: func(string) {}, reached: func([]string) {}, now: time.Now,
		changes: map[types.NamespacedName]time.Time{}, away: map[string]time.Time{}, holding: newHolding(bounds.AgentObjects),
	}
	o.holding.changed = func() {
		o.mu.Lock()
		o.version++
		o.mu.Unlock()
		o.wake()
	}
	o.informers = map[string]cache.SharedIndexInformer{
		kindServices: informer[corev1.Service](o, client, kindServices, client.CoreV1().Services(metav1.NamespaceAll), ""),
		kindEndpointSlices: informer[discoveryv1.EndpointSlice](o, client, kindEndpointSlices,
			client.DiscoveryV1().EndpointSlices(metav1.NamespaceAll), ""),
		kindNodes: informer[corev1.Node](o, client, kindNodes, client.CoreV1().Nodes(),
			fields.OneTermEqualSelector(metav1.ObjectNameField, node).String()),
	}
	for _, i := range o.informers {
		if err := i.SetTransform(func(object any) (any, error) { return o.holding.take(lean(object)), nil }); err != nil {
			return nil, err
		}
		h, err := i.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
			AddFunc:    func(now any, initial bool) { o.changed(nil, now, initial) },
			UpdateFunc: func(before, now any) { o.changed(before, now, false) },
			DeleteFunc: func(before any) { o.changed(before, nil, false) },
		})
		if err != nil {
			return nil, err
		}
		o.handlers = append(o.handlers, h)
	}
	return o, nil
}

// lister lists and watches one kind.
type lister[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error)
}

// informer makes the informer of a kind. Each request that fails is told of, and each that succeeds ends the failure.
func informer[T any, P interface {
	*T
	runtime.Object
}, L runtime.Object](
	o *objects, client kubernetes.Interface, kind string, of lister[L], selector string,
) cache.SharedIndexInformer {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = selector
			list, err := of.List(ctx, options)
			o.asked(ctx, kind, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
			options.FieldSelector = selector
			if kind == kindEndpointSlices && o.beginsAnew() {
				return nil, apierrors.NewResourceExpired("all are to be read again")
			}
			w, err := of.Watch(ctx, options)
			o.asked(ctx, kind, err)
			if kind == kindEndpointSlices {
				o.mu.Lock()
				o.slices = w
				o.mu.Unlock()
			}
			return w, err
		},
	}
	return cache.NewSharedIndexInformer(
		cache.ToListWatcherWithWatchListSemantics(lw, client), P(new(T)), 0, cache.Indexers{})
}

// readAgain has all EndpointSlices read again where there is room for more of them than are held.
func (o *objects) readAgain() {
	if !o.holding.roomier() {
		return
	}
	o.mu.Lock()
	w := o.slices
	o.again = w != nil
	o.mu.Unlock()
	if w != nil {
		w.Stop()
	}
}

// beginsAnew returns whether the next watch is to be refused, for client-go to read all again.
func (o *objects) beginsAnew() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	again := o.again
	o.again = false
	return again
}

// asked notes what became of a request.
func (o *objects) asked(ctx context.Context, kind string, err error) {
	if ctx.Err() != nil {
		return // this process ends
	}
	o.mu.Lock()
	_, was := o.away[kind]
	back := err == nil && was
	switch {
	case back:
		delete(o.away, kind)
	case err != nil && !was:
		o.away[kind] = o.now()
	}
	o.mu.Unlock()
	if err != nil {
		o.failed(kind, err)
		return
	}
	o.answered(kind)
	if back {
		o.wake() // kube-proxy is given less time from now on
	}
}

// run watches until the context ends.
func (o *objects) run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, i := range o.informers {
		wg.Go(func() { i.RunWithContext(ctx) })
	}
	wg.Wait()
}

// synced tells whether all kinds were read once.
func (o *objects) synced() bool {
	return !slices.ContainsFunc(o.handlers, func(h cache.ResourceEventHandlerRegistration) bool { return !h.HasSynced() })
}

// connected tells whether the last request for each kind succeeded: a watch that ends is followed by another request.
func (o *objects) connected() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.away) == 0
}

// awaySince returns the kind whose requests have failed for the longest time, and since when; "" for none.
func (o *objects) awaySince() (kind string, since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for k, at := range o.away {
		if kind == "" || at.Before(since) || at.Equal(since) && k < kind {
			kind, since = k, at
		}
	}
	return kind, since
}

// changed notes a change of an object: before is nil of a new one, now of one that is gone.
func (o *objects) changed(before, now any, initial bool) {
	if gone, ok := before.(cache.DeletedFinalStateUnknown); ok {
		before = gone.Obj
	}
	object := now
	if object == nil {
		object = before
	}
	if was, is := nodeOf(before), nodeOf(now); was != nil && is != nil && sameNode(was, is) {
		return // a heartbeat
	}
	if before != nil && now != nil && same(before, now) {
		return // a list was read again (client-go tells of each object that it has as of one that changed)
	}
	if x, ok := before.(metav1.Object); ok && now == nil {
		o.holding.gone(kindOf(before), x)
	}
	reachAgain := false
	o.mu.Lock()
	at := o.now()
	o.version++
	switch x := object.(type) {
	case *corev1.Service:
		if !sameService(before, now) {
			o.note(types.NamespacedName{Namespace: x.Namespace, Name: x.Name}, at, initial)
		}
	case *heldSlice:
		name := serviceOf(x.EndpointSlice)
		if !sameEndpoints(before, now) {
			o.note(name, at, initial)
			if !initial && judge.ServedSlice(x.EndpointSlice) {
				o.pending = append(o.pending, endpointChange{familyOf{name, corev1.IPFamily(x.AddressType)}, at})
			}
		}
		if name.Namespace == metav1.NamespaceDefault && name.Name == "kubernetes" {
			reachAgain = true
		}
	}
	o.mu.Unlock()
	if reachAgain {
		all, _ := o.endpointSlices()
		o.reached(apiAddresses(all))
	}
	o.wake()
}

// nodeOf returns a Node; nil for anything else.
func nodeOf(object any) *corev1.Node {
	n, _ := object.(*corev1.Node)
	return n
}

// note notes the change of a Service. What was there from the beginning is no change.
func (o *objects) note(name types.NamespacedName, at time.Time, initial bool) {
	if initial {
		return
	}
	if len(o.changes) >= maxChanges {
		maps.DeleteFunc(o.changes, func(_ types.NamespacedName, last time.Time) bool { return at.Sub(last) > changeAge })
	}
	o.changes[name] = at
}

// lastChange returns when the API last changed a Service or its endpoints; zero: not since this process started.
func (o *objects) lastChange(name types.NamespacedName) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changes[name]
}

// take returns the changes of endpoints since the last call.
func (o *objects) take() []endpointChange {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.pending
	o.pending = nil
	return out
}

// sameEndpoints tells whether two versions of a slice have the same endpoints and ports, for the same Service: then no
// rule has to change.
func sameEndpoints(before, now any) bool {
	a, _ := before.(*heldSlice)
	b, _ := now.(*heldSlice)
	if a == nil || b == nil {
		return false
	}
	x, y := a.endpoints.Load(), b.endpoints.Load()
	return x != nil && y != nil && equality.Semantic.DeepEqual(*x, *y) &&
		equality.Semantic.DeepEqual(a.Ports, b.Ports) && equality.Semantic.DeepEqual(a.Labels, b.Labels)
}

// proxyAnnotations are the annotations of a Service that kube-proxy reads (CategorizeEndpoints in
// pkg/proxy/topology.go, up to 1.32).
var proxyAnnotations = []string{corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode}

// sameService tells whether two versions of a Service are the same to a proxy: then no rule has to change. Controllers
// write annotations and conditions as often as they like.
func sameService(before, now any) bool {
	a, _ := before.(*corev1.Service)
	b, _ := now.(*corev1.Service)
	return a != nil && b != nil && equality.Semantic.DeepEqual(a.Spec, b.Spec) &&
		equality.Semantic.DeepEqual(a.Status.LoadBalancer, b.Status.LoadBalancer) &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		!slices.ContainsFunc(proxyAnnotations, func(key string) bool {
			was, had := a.Annotations[key]
			is, has := b.Annotations[key]
			return was != is || had != has
		})
}

// same returns whether two versions of an object have nothing else that differs.
func same(before, now any) bool {
	switch x := before.(type) {
	case *corev1.Service:
		y, ok := now.(*corev1.Service)
		return ok && equality.Semantic.DeepEqual(unversioned(x), unversioned(y))
	case *heldSlice:
		y, ok := now.(*heldSlice)
		if x == y {
			return true
		}
		return ok && sameEndpoints(x, y) &&
			equality.Semantic.DeepEqual(unversioned(x.EndpointSlice), unversioned(y.EndpointSlice))
	}
	return equality.Semantic.DeepEqual(before, now)
}

// unversioned is an object without its version.
func unversioned[T any, P interface {
	*T
	metav1.Object
}](object P) P {
	out := P(new(T))
	*out = *object
	out.SetResourceVersion("")
	return out
}

// kindOf returns the kind of an object of the informers.
func kindOf(object any) string {
	switch object.(type) {
	case *corev1.Service:
		return kindServices
	case *heldSlice:
		return kindEndpointSlices
	}
	return kindNodes
}

// sameNode tells whether two versions of a Node are the same to a proxy, and to those that judge it, who go by the
// kernel's version.
func sameNode(a, b *corev1.Node) bool {
	return equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(a.Status.Addresses, b.Status.Addresses) &&
		equality.Semantic.DeepEqual(a.Status.NodeInfo, b.Status.NodeInfo)
}

// lean removes from an object what judging needs none of, before it is kept.
func lean(object any) any {
	switch x := object.(type) {
	case *corev1.Service:
		own := *x // client-go has some objects transformed twice, while others read them
		own.ManagedFields, own.Annotations = nil, maps.Clone(x.Annotations)
		delete(own.Annotations, corev1.LastAppliedConfigAnnotation)
		return &own
	case *discoveryv1.EndpointSlice:
		x.ManagedFields = nil
		leanEndpoints(x)
	case *corev1.Node:
		own := *x
		own.ManagedFields = nil
		own.Status = corev1.NodeStatus{Addresses: x.Status.Addresses, NodeInfo: x.Status.NodeInfo}
		return &own
	}
	return object
}

// leanEndpoints has the endpoints of a slice share what is equal in most of them: of 100,000 endpoints that is most of
// their memory.
func leanEndpoints(s *discoveryv1.EndpointSlice) {
	texts := map[string]*string{}
	share := func(p *string) *string {
		if p == nil {
			return nil
		}
		if texts[*p] == nil {
			own := unique.Make(*p).Value() // by all slices
			texts[*p] = &own
		}
		return texts[*p]
	}
	flags := [2]bool{false, true}
	shareFlag := func(p *bool) *bool {
		switch {
		case p == nil:
			return nil
		case *p:
			return &flags[1]
		}
		return &flags[0]
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		e.NodeName, e.Zone, e.Hostname, e.DeprecatedTopology = share(e.NodeName), share(e.Zone), nil, nil
		c := &e.Conditions
		c.Ready, c.Serving, c.Terminating = shareFlag(c.Ready), shareFlag(c.Serving), shareFlag(c.Terminating)
		if t := e.TargetRef; t != nil {
			e.TargetRef = &corev1.ObjectReference{Kind: t.Kind, Namespace: *share(&t.Namespace), Name: t.Name}
		}
	}
}

// cluster returns the objects, in the order of their names, and their version.
func (o *objects) cluster() (*snapshot.Cluster, int) {
	o.mu.Lock()
	version, others := o.version, o.others // what changes from here on may be among the objects, and makes another version
	o.mu.Unlock()
	all, left := o.endpointSlices()
	return &snapshot.Cluster{
		Services:       listed[*corev1.Service](o.informers[kindServices]),
		EndpointSlices: all,
		Left:           left,
		Nodes:          inOrder(append(listed[*corev1.Node](o.informers[kindNodes]), others...)),
		Missing:        []string{"pods", "configmaps", "endpoints"},
	}, version
}

// endpointSlices returns the EndpointSlices, and the Services of which some have endpoints that are not held, and why.
func (o *objects) endpointSlices() (all []*discoveryv1.EndpointSlice, left map[types.NamespacedName]string) {
	held := listed[*heldSlice](o.informers[kindEndpointSlices])
	all, left = make([]*discoveryv1.EndpointSlice, len(held)), map[types.NamespacedName]string{}
	for i, h := range held {
		s := *h.EndpointSlice
		if endpoints := h.endpoints.Load(); endpoints != nil {
			s.Endpoints = *endpoints
		} else {
			left[serviceOf(&s)] = errNotHeld.Error()
		}
		all[i] = &s
	}
	return all, left
}
