// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"unsafe" // the size of a struct alone

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// page is one response to a list request.
type page[T any] struct {
	items []T
	more  string // the token of the next page
	// version is the resourceVersion of the list, the same for all pages.
	version string
	memory  int // how many bytes the items take besides their own structs
}

// pageOf is a response with its items, without what nothing here needs: a page is small, and all of them are not.
func pageOf[T any](l metav1.ListInterface, items []T) page[T] {
	p := page[T]{items: items, more: l.GetContinue(), version: l.GetResourceVersion()}
	for i := range items {
		switch o := any(&items[i]).(type) {
		case *corev1.Pod:
			*o = *leanPod(o)
		case *corev1.Node:
			o.ManagedFields, o.Status.Images = nil, nil
		}
		if o, ok := any(&items[i]).(interface{ Size() int }); ok {
			p.memory += o.Size()
		}
	}
	return p
}

// list requests all objects of a kind page by page, as kubectl does, and refuses more than bounds.Objects, or objects
// that take more memory than is expected. Where the pages expire meanwhile (410 Gone), they are requested anew. A page
// that is too large is requested in smaller ones. version is the list's resourceVersion.
func list[T any](
	ctx context.Context, kind string, options metav1.ListOptions,
	request func(context.Context, metav1.ListOptions) (page[T], error),
) (out []*T, version string, err error) {
	most, taken := bounds.APIObjects, takenOf(ctx)
	if _, ok := any(new(T)).(*corev1.Pod); ok {
		most, taken = bounds.APIPods, new(atomic.Int64)
	}
	before := int64(collectAt) // or the memory limit that was there, if that is higher
	defer func() {
		if before > collectAt {
			debug.SetMemoryLimit(before)
		}
	}()
	options.Limit = bounds.APIPage
	expired := 0
	for pages := 0; ; pages++ {
		p, err := request(ctx, options)
		switch {
		case apierrors.IsResourceExpired(err) && options.Continue != "" && expired < maxExpired:
			expired++
			options.Continue, out = "", nil
			continue
		case bounds.Is(err) && options.Limit > 1:
			options.Limit = max(1, options.Limit/smaller)
			continue
		case err != nil:
			return nil, "", err
		case len(out)+len(p.items) > bounds.Objects || pages > bounds.APIPages:
			return nil, "", bounds.Errorf("the API server lists more than %d %s, or in more than %d pages: fewer were expected",
				bounds.Objects, kind, bounds.APIPages)
		}
		more := int64(p.memory + len(p.items)*int(unsafe.Sizeof(*new(T))))
		now := taken.Add(more)
		if now > int64(most) {
			return nil, "", bounds.Errorf("with the %s that the API server lists the objects take more than %s: "+
				"less was expected", kind, bounds.Bytes(int64(most)))
		}
		if now/collectEvery != (now-more)/collectEvery {
			// What was read stays, and what it was read from is several times as much.
			runtime.GC()
			before = max(before, debug.SetMemoryLimit(collectAt))
		}
		out = append(out, pointers(p.items)...)
		if p.more == "" {
			return out, p.version, nil
		}
		options.Continue = p.more
	}
}

// collectEvery is after how many bytes of objects garbage is collected, and collectAt from how many bytes of memory on
// that is done more often: a large cluster has so many.
const (
	collectEvery = 32 << 20
	collectAt    = 240 << 20
)

type takenKey struct{}

// counted is a context in which the objects of all lists count together.
func counted(ctx context.Context) context.Context {
	return context.WithValue(ctx, takenKey{}, new(atomic.Int64))
}

// takenOf is what the objects of the lists of a context take in memory.
func takenOf(ctx context.Context) *atomic.Int64 {
	if taken, ok := ctx.Value(takenKey{}).(*atomic.Int64); ok {
		return taken
	}
	return new(atomic.Int64)
}

// maxExpired is how often pages are requested anew, and smaller how much smaller those are that follow one that was too
// large.
const (
	maxExpired = 3
	smaller    = 10
)
