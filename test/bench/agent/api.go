// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// api serves lists and watches of some kinds as an API server does, in protobuf and JSON, with all objects at the
// beginning of a watch where that is asked for (sendInitialEvents). It takes little of the processors: what is measured
// beside it has them.
type api struct {
	kinds   map[string]*kind // by the path of the list
	version int

	mu      sync.Mutex
	changed *sync.Cond
	reports int // how often a NodeReport was written
	bytes   int // of the largest one
	last    []byte
}

// kind is one kind of object.
type kind struct {
	gv      schema.GroupVersion
	list    func() runtime.Object
	objects []object // in the order in which they were made
	log     []event
}

type object interface {
	runtime.Object
	metav1.Object
}

type event struct {
	version int
	kind    watch.EventType
	object  object
}

// The paths of the lists of what is watched.
const (
	servicesPath = "/api/v1/services"
	slicesPath   = "/apis/discovery.k8s.io/v1/endpointslices"
	nodesPath    = "/api/v1/nodes"
	cidrsPath    = "/apis/networking.k8s.io/v1/servicecidrs"
	reportsPath  = "/apis/svcproxy.dev/v1alpha1/nodereports"
)

func newAPI() *api {
	a := &api{version: 1, kinds: map[string]*kind{
		servicesPath: {gv: corev1.SchemeGroupVersion, list: func() runtime.Object { return &corev1.ServiceList{} }},
		slicesPath: {
			gv: discoveryv1.SchemeGroupVersion, list: func() runtime.Object { return &discoveryv1.EndpointSliceList{} },
		},
		nodesPath: {gv: corev1.SchemeGroupVersion, list: func() runtime.Object { return &corev1.NodeList{} }},
		cidrsPath: {
			gv: networkingv1.SchemeGroupVersion, list: func() runtime.Object { return &networkingv1.ServiceCIDRList{} },
		},
	}}
	a.changed = sync.NewCond(&a.mu)
	return a
}

// put makes an object, or changes it. It is not changed by the caller any more.
func (a *api) put(path string, o object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.kinds[path]
	a.version++
	o.SetResourceVersion(strconv.Itoa(a.version))
	i := slices.IndexFunc(k.objects, func(x object) bool {
		return x.GetName() == o.GetName() && x.GetNamespace() == o.GetNamespace()
	})
	if i < 0 {
		k.objects = append(k.objects, o) // before anybody watches
		return
	}
	k.objects[i] = o
	k.log = append(k.log, event{a.version, watch.Modified, o})
	a.changed.Broadcast()
}

// ServeHTTP answers a request.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k := a.kinds[r.URL.Path]
	q := r.URL.Query()
	switch {
	case strings.HasPrefix(r.URL.Path, reportsPath):
		a.report(w, r)
	case k == nil || r.Method != http.MethodGet:
		a.refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case q.Get("watch") == "true" || q.Get("watch") == "1":
		a.watch(w, r, k)
	default:
		a.mu.Lock()
		objects, version := selected(k.objects, q.Get("fieldSelector")), a.version
		a.mu.Unlock()
		list := k.list()
		items := make([]runtime.Object, len(objects))
		for i, o := range objects {
			items[i] = o
		}
		if err := meta.SetList(list, items); err != nil {
			panic(err) // of another kind
		}
		if l, err := meta.ListAccessor(list); err == nil {
			l.SetResourceVersion(strconv.Itoa(version))
		}
		info := serializerFor(r)
		w.Header().Set("Content-Type", info.MediaType)
		_ = scheme.Codecs.EncoderForVersion(info.Serializer, k.gv).Encode(list, w) // who has gone is not answered
	}
}

// refuse answers with a Status.
func (a *api) refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(&metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: reason,
		Code: int32(code), //nolint:gosec // three digits
	})
}

// report takes a NodeReport, which nobody reads.
func (a *api) report(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		a.refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	a.mu.Lock()
	a.reports, a.bytes, a.last = a.reports+1, max(a.bytes, len(data)), data
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data)
}

// selected are the objects of a field selector, of which only that of a name is used.
func selected(all []object, selector string) []object {
	s, err := fields.ParseSelector(selector)
	if err != nil || s.Empty() {
		return slices.Clone(all)
	}
	var out []object
	for _, o := range all {
		if s.Matches(fields.Set{"metadata.name": o.GetName()}) {
			out = append(out, o)
		}
	}
	return out
}

// serializerFor is protobuf where the client takes it.
func serializerFor(r *http.Request) runtime.SerializerInfo {
	want := runtime.ContentTypeJSON
	if strings.Contains(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		want = runtime.ContentTypeProtobuf
	}
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), want)
	if !ok {
		panic(want)
	}
	return info
}

// watch sends changes until the client goes.
func (a *api) watch(w http.ResponseWriter, r *http.Request, k *kind) {
	q := r.URL.Query()
	info := serializerFor(r)
	w.Header().Set("Content-Type", info.MediaType+map[bool]string{true: ";stream=watch"}[!info.EncodesAsText])
	objects := scheme.Codecs.EncoderForVersion(info.Serializer, k.gv)
	to := streaming.NewEncoder(info.StreamSerializer.NewFrameWriter(w), info.StreamSerializer.Serializer)
	send := func(kind watch.EventType, o runtime.Object) bool {
		raw, err := runtime.Encode(objects, o)
		if err != nil {
			panic(fmt.Errorf("%T: %w", o, err))
		}
		return to.Encode(&metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: raw}}) == nil
	}
	flush := http.NewResponseController(w).Flush
	a.mu.Lock()
	initial, since := []object(nil), a.version
	if q.Get("sendInitialEvents") == "true" {
		initial = selected(k.objects, q.Get("fieldSelector"))
	} else if n, err := strconv.Atoi(q.Get("resourceVersion")); err == nil && n > 0 {
		since = n
	}
	a.mu.Unlock()
	for _, o := range initial {
		if !send(watch.Added, o) {
			return
		}
	}
	if q.Get("sendInitialEvents") == "true" && !send(watch.Bookmark, bookmark(k, since)) {
		return
	}
	if flush() != nil {
		return
	}
	stop := context.AfterFunc(r.Context(), a.changed.Broadcast)
	defer stop()
	for {
		events := a.after(r.Context(), k, since)
		if events == nil {
			return
		}
		for _, e := range events {
			since = e.version
			if len(selected([]object{e.object}, q.Get("fieldSelector"))) > 0 && !send(e.kind, e.object) {
				return
			}
		}
		if flush() != nil {
			return
		}
	}
}

// after waits for the changes after a version; nil: the context has ended.
func (a *api) after(ctx context.Context, k *kind, version int) []event {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		if ctx.Err() != nil {
			return nil
		}
		i := slices.IndexFunc(k.log, func(e event) bool { return e.version > version })
		if i >= 0 {
			return slices.Clone(k.log[i:])
		}
		a.changed.Wait()
	}
}

// bookmark ends the objects that a watch begins with.
func bookmark(k *kind, version int) runtime.Object {
	list := k.list()
	gvks, _, err := scheme.Scheme.ObjectKinds(list)
	if err != nil {
		panic(err)
	}
	o, err := scheme.Scheme.New(k.gv.WithKind(strings.TrimSuffix(gvks[0].Kind, "List")))
	if err != nil {
		panic(err)
	}
	m, err := meta.Accessor(o)
	if err != nil {
		panic(err)
	}
	m.SetResourceVersion(strconv.Itoa(version))
	m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return o
}
