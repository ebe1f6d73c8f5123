// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"io"
	"net/http"

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
}

// pageOf is a response with its items.
func pageOf[T any](l metav1.ListInterface, items []T) page[T] {
	return page[T]{items, l.GetContinue(), l.GetResourceVersion()}
}

// list requests all objects of a kind page by page, as kubectl does, and refuses more than bounds.Objects. Where the
// pages expire meanwhile (410 Gone), all are requested at once. version is the list's resourceVersion.
func list[T any](
	ctx context.Context, kind string, options metav1.ListOptions,
	request func(context.Context, metav1.ListOptions) (page[T], error),
) (out []*T, version string, err error) {
	options.Limit = bounds.APIPage
	for pages := 0; ; pages++ {
		p, err := request(ctx, options)
		if apierrors.IsResourceExpired(err) && options.Continue != "" {
			options.Limit, options.Continue, out = 0, "", nil
			p, err = request(ctx, options)
		}
		if err != nil {
			return nil, "", err
		}
		if len(out)+len(p.items) > bounds.Objects || pages > bounds.Objects {
			return nil, "", bounds.Errorf("the API server lists more than %d %s: at most %d were expected", bounds.Objects, kind,
				bounds.Objects)
		}
		out = append(out, pointers(p.items)...)
		if p.more == "" || options.Limit == 0 {
			return out, p.version, nil
		}
		options.Continue = p.more
	}
}

// BoundResponses makes a transport that ends a response of the API server after bounds.APIResponse bytes,
// uncompressed.
func BoundResponses(next http.RoundTripper) http.RoundTripper { return boundedTransport{next} }

type boundedTransport struct{ next http.RoundTripper }

// RoundTrip sends a request.
func (t boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	if err == nil && answer.Body != nil && answer.StatusCode != http.StatusSwitchingProtocols {
		answer.Body = &boundedBody{answer.Body, r.URL.Path, bounds.APIResponse}
	}
	return answer, err
}

// boundedBody is a body of which left bytes may still be read.
type boundedBody struct {
	io.ReadCloser
	path string
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return 0, bounds.Errorf("the API server's answer for %s is larger than %s: at most %s were expected", b.path,
			bounds.Bytes(bounds.APIResponse), bounds.Bytes(bounds.APIResponse))
	}
	return n, err
}
