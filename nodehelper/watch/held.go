// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// What is not held of the API's objects.
var (
	errNotHeld = errors.New("the API's objects take more than " + bounds.Bytes(bounds.AgentObjects) +
		", and their EndpointSlices more than the share of their namespace")
	errNothingHeld = errors.New("the API's objects take more than " + bounds.Bytes(bounds.AgentObjects) +
		" even without the endpoints of their EndpointSlices")
)

// The memory of an object is objectMemory and about memoryTimes its size in the API's protobuf messages: strings and
// lists have headers. Of the endpoints of a slice some strings are shared (leanEndpoints): each takes endpointMemory,
// its addresses and zones stringMemory and their lengths, and the name of its pod referenceMemory and its length.
const (
	objectMemory    = 1000
	memoryTimes     = 3
	endpointMemory  = 96
	stringMemory    = 24
	referenceMemory = 128
)

// memoryOf is what endpoints take.
func memoryOf(endpoints []discoveryv1.Endpoint) int {
	out := len(endpoints) * endpointMemory
	for i := range endpoints {
		e := &endpoints[i]
		for _, a := range e.Addresses {
			out += stringMemory + len(a)
		}
		if e.TargetRef != nil {
			out += referenceMemory + len(e.TargetRef.Name)
		}
		if e.Hints != nil {
			out += endpointMemory
			for _, z := range e.Hints.ForZones {
				out += stringMemory + len(z.Name)
			}
			for _, n := range e.Hints.ForNodes {
				out += stringMemory + len(n.Name)
			}
		}
	}
	return out
}

// heldSlice is an EndpointSlice whose endpoints can be let go of, wherever it is: client-go has it in a list of its own
// before it is in the informer's store. It has no Endpoints of its own.
type heldSlice struct {
	*discoveryv1.EndpointSlice

	endpoints atomic.Pointer[[]discoveryv1.Endpoint] // nil: they are not held
}

// holding bounds what the objects of all informers take in memory together, about. Beyond it the endpoints of some
// Services are not held ([bounds.Share]), and these are not judged. Services are held in any case: which addresses and
// ports they have decides about the rules of others.
type holding struct {
	most int
	// changed is called when endpoints are let go of, or are there again.
	changed func()

	mu      sync.Mutex
	objects map[heldKey]heldObject
	total   int
	left    map[types.NamespacedName]bool // Services whose endpoints are not held
	over    time.Time                     // since when nothing more is held; zero: there was room. It does not end
}

type heldKey struct {
	kind string
	name types.NamespacedName
}

// heldObject is what an object takes: memory always, endpoints where they are held.
type heldObject struct {
	uid               types.UID
	memory, endpoints int
	slice             *heldSlice // of EndpointSlices
}

func newHolding(most int) *holding {
	return &holding{
		most: most, changed: func() {}, objects: map[heldKey]heldObject{}, left: map[types.NamespacedName]bool{},
	}
}

// serviceOf is the Service of a slice.
func serviceOf(s *discoveryv1.EndpointSlice) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
}

// take counts an object, and returns what is to be kept of it; a second time the same. The one Node does not count.
func (h *holding) take(object any) any {
	h.mu.Lock()
	before, notify := h.over, false
	switch x := object.(type) {
	case *corev1.Service:
		name := types.NamespacedName{Namespace: x.Namespace, Name: x.Name}
		if !h.add(heldKey{kindServices, name}, heldObject{uid: x.UID, memory: objectMemory + memoryTimes*x.Size()}) {
			object = &corev1.Service{}
		}
		notify = h.bound()
	case *discoveryv1.EndpointSlice:
		var s *heldSlice
		s, notify = h.addSlice(x)
		object = s
		notify = h.bound() || notify
	}
	notify = notify || !before.Equal(h.over)
	h.mu.Unlock()
	if notify {
		h.changed()
	}
	return object
}

// add counts an object, in place of the one that it had before. It returns whether there is room for it: what comes
// after that is one object without a name, however many there are.
func (h *holding) add(key heldKey, o heldObject) bool {
	if !h.over.IsZero() {
		return false
	}
	h.subtract(key)
	h.objects[key] = o
	h.total += o.memory
	if o.isHeld() {
		h.total += o.endpoints
	}
	return true
}

// addSlice is add for a slice. One that has not changed since it was let go of is there again wherever it was.
func (h *holding) addSlice(x *discoveryv1.EndpointSlice) (s *heldSlice, back bool) {
	key := heldKey{kindEndpointSlices, types.NamespacedName{Namespace: x.Namespace, Name: x.Name}}
	endpoints, own := x.Endpoints, *x
	own.Endpoints = nil
	s = &heldSlice{EndpointSlice: &own}
	was, ok := h.objects[key]
	h.subtract(key)
	if ok && was.uid == x.UID && was.slice.ResourceVersion == x.ResourceVersion {
		if had := was.slice.endpoints.Load(); had == nil || equality.Semantic.DeepEqual(*had, endpoints) {
			s = was.slice
		}
	}
	if !h.left[serviceOf(x)] && s.endpoints.Load() == nil {
		s.endpoints.Store(&endpoints)
		back = s.EndpointSlice != &own
	}
	o := heldObject{
		uid: x.UID, memory: objectMemory + memoryTimes*own.Size(), endpoints: memoryOf(endpoints), slice: s,
	}
	if !h.add(key, o) {
		return &heldSlice{EndpointSlice: &discoveryv1.EndpointSlice{}}, false
	}
	return s, back
}

func (o *heldObject) isHeld() bool { return o.slice != nil && o.slice.endpoints.Load() != nil }

// subtract takes off what an object has counted.
func (h *holding) subtract(key heldKey) {
	if o, ok := h.objects[key]; ok {
		h.total -= o.memory
		if o.isHeld() {
			h.total -= o.endpoints
		}
		delete(h.objects, key)
	}
}

// gone notes that an object was deleted, which may have been made anew since.
func (h *holding) gone(kind string, object metav1.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := heldKey{kind, types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}}
	if h.objects[key].uid == object.GetUID() {
		h.subtract(key)
	}
}

// bound lets go of endpoints where all takes too much: of an eighth more than it has to, as finding out which takes
// time.
func (h *holding) bound() (changed bool) {
	if h.total <= h.most || !h.over.IsZero() {
		return false
	}
	left, ok := h.share(h.most - h.most/8)
	if !ok {
		h.over = time.Now()
	}
	for _, name := range left {
		h.left[name] = true
	}
	for _, o := range h.objects {
		if o.isHeld() && h.left[serviceOf(o.slice.EndpointSlice)] {
			o.slice.endpoints.Store(nil)
			h.total -= o.endpoints
			changed = true
		}
	}
	return changed
}

// share returns of which Services the endpoints are not held if all is to take no more than most, and whether that is
// possible.
func (h *holding) share(most int) (left []types.NamespacedName, ok bool) {
	needs := map[types.NamespacedName]int{}
	for _, o := range h.objects {
		most -= o.memory
		if o.slice != nil {
			needs[serviceOf(o.slice.EndpointSlice)] += o.endpoints
		}
	}
	return bounds.Share(max(most, 0), needs), most >= 0
}

// roomier returns whether there is room again for Services whose endpoints are not held: they have to be read again.
// A quarter is to be free then, so that not every change is a reason to let go of some.
func (h *holding) roomier() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.left) == 0 || !h.over.IsZero() {
		return false
	}
	all, _ := h.share(h.most - h.most/4)
	left := map[types.NamespacedName]bool{}
	for _, name := range all {
		left[name] = h.left[name]
	}
	before := len(h.left)
	maps.DeleteFunc(h.left, func(name types.NamespacedName, _ bool) bool { return !left[name] })
	return len(h.left) < before
}

// overSince returns since when nothing more is held; zero: there is room.
func (h *holding) overSince() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over
}
