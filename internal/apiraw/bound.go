// SPDX-License-Identifier: Apache-2.0

package apiraw

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// Bound makes a transport that refuses answers that do not end, or that take more memory than they have bytes. It reads
// an answer as a whole before anybody else does, in pieces of one size: a buffer that grows would take twice as much.
// All answers that are read at the same time have most bytes together. Watches pass: of these client-go bounds each
// event.
func Bound(most int) func(next http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return &bounded{next: next, most: most} }
}

// piece is the size of the pieces of answers.
const piece = 256 << 10

type bounded struct {
	next http.RoundTripper
	most int

	mu    sync.Mutex
	taken int
	free  [][]byte
}

// RoundTrip sends a request.
func (t *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	if err != nil || answer.Body == nil || answer.StatusCode == http.StatusSwitchingProtocols ||
		r.URL.Query().Get("watch") == "true" {
		return answer, err
	}
	body := &pieces{of: t, pages: 1}
	if r.URL.Query().Get("resourceVersion") == "0" { // of the API server's cache, which has no pages
		body.pages = bounds.Objects / bounds.APIItems
	}
	err = body.read(answer.Body, "the API server's answer for "+r.URL.Path, answer.Header.Get("Content-Type"))
	if closeErr := answer.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, errors.Join(err, body.Close())
	}
	answer.Body = body
	return answer, nil
}

// take returns a piece; nil where all are in use.
func (t *bounded) take() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if (t.taken+1)*piece > t.most {
		return nil
	}
	t.taken++
	if last := len(t.free) - 1; last >= 0 {
		p := t.free[last]
		t.free = t.free[:last]
		return p
	}
	return make([]byte, piece)
}

func (t *bounded) giveBack(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken--
	t.free = append(t.free, p[:piece])
}

// pieces are the body of an answer.
type pieces struct {
	of    *bounded
	pages int // how many pages of a list are in it
	list  [][]byte
	first int // of the first of list: how much was read of it
}

func (b *pieces) read(from io.Reader, name, contentType string) error {
	if strings.Contains(contentType, "json") {
		limits := bounds.ClusterJSON
		limits.Objects, limits.Values = b.pages*bounds.APIFields/objectFields, b.pages*bounds.APIFields
		from = limits.Reader(name, from)
	}
	for {
		p := b.of.take()
		if p == nil {
			return bounds.TooLarge(name, int64(b.of.most))
		}
		n, err := io.ReadFull(from, p)
		b.list = append(b.list, p[:n])
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return err //nolint:wrapcheck // of the connection, or of a limit
		}
	}
	if strings.Contains(contentType, "protobuf") {
		return checkFields(name, bytes.Join(b.list, nil), b.pages)
	}
	return nil
}

// objectFields is of how many values one is an object of its own.
const objectFields = 5

func (b *pieces) Read(p []byte) (int, error) {
	for len(b.list) > 0 && b.first == len(b.list[0]) {
		b.of.giveBack(b.list[0])
		b.list, b.first = b.list[1:], 0
	}
	if len(b.list) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.list[0][b.first:])
	b.first += n
	return n, nil
}

func (b *pieces) Close() error {
	for _, p := range b.list {
		b.of.giveBack(p)
	}
	b.list, b.first = nil, 0
	return nil
}

// magic begins a message of Kubernetes (k8s.io/apimachinery/pkg/runtime/serializer/protobuf): a runtime.Unknown, whose
// field 2 is the object or list. Field 2 of a list is an object of it.
const (
	magic = "k8s\x00"
	inner = 2
)

// checkFields refuses a message with more objects or fields than are expected: an empty one has two bytes, and takes a
// hundred in memory, or a thousand.
func checkFields(name string, data []byte, pages int) error {
	data, ok := bytes.CutPrefix(data, []byte(magic))
	if !ok {
		return nil // the decoder says so
	}
	items, fields := 0, 0
	mostItems, mostFields := pages*bounds.APIItems, pages*bounds.APIFields
	// count counts the fields of a message, and of those in it: what can be read as a message is taken for one.
	var count func(data []byte, depth int) bool
	count = func(data []byte, depth int) bool {
		for len(data) > 0 {
			key, n := binary.Uvarint(data)
			if n <= 0 || key>>3 == 0 {
				return false
			}
			data = data[n:]
			fields++
			if depth == 1 && key>>3 == inner {
				items++
			}
			if fields > mostFields || items > mostItems {
				return true
			}
			var size uint64
			switch key & 7 { //nolint:mnd // wire types: varint, 64 bit, bytes, 32 bit
			case 0:
				if _, n = binary.Uvarint(data); n <= 0 {
					return false
				}
				size = uint64(n)
			case 1:
				size = 8
			case 2:
				size, n = binary.Uvarint(data)
				if n <= 0 || size > uint64(len(data)-n) { //nolint:gosec // n is at most len(data)
					return false
				}
				data = data[n:]
				if depth < maxDepth {
					count(data[:size], depth+1)
				}
			case 5:
				size = 4
			default:
				return false
			}
			if size > uint64(len(data)) {
				return false
			}
			data = data[size:]
		}
		return true
	}
	count(data, 0)
	if fields > mostFields || items > mostItems {
		return bounds.Errorf("%s has more than %d objects or %d fields: fewer were expected", name, mostItems, mostFields)
	}
	return nil
}

// maxDepth is how deep messages are looked into: what is below is small.
const maxDepth = 8
