// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/svcproxy/kubectl-svcproxy/internal/peer"
	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
)

// Server is the helper's side.
type Server struct {
	Peer peer.Peer // how the plugin introduced itself

	in  *decoder
	out io.Writer
}

// Handler answers one request. Its context ends with the stream, the deadline or a signal; before it returns it has
// undone what must not stay. Its error becomes the whole answer.
type Handler func(ctx context.Context, params json.RawMessage, a *Answer) error

// NewServer waits for the plugin's hello and says its own. A plugin of another version is told so, by that hello, and
// the error is a *peer.Error.
func NewServer(r io.Reader, w io.Writer, build string) (*Server, error) {
	self := peer.Peer{Protocol: peer.Protocol, Build: build}
	in := bufio.NewReaderSize(r, 4<<10)
	other, _, err := readHello(in)
	if err != nil {
		return nil, err
	}
	if err := writeHello(w, self); err != nil {
		return nil, fmt.Errorf("cannot speak to the plugin: %w", err)
	}
	if err := other.Check(self); err != nil {
		return nil, err
	}
	return &Server{Peer: other, in: newDecoder(in), out: w}, nil
}

// incoming is a request, or why there will be no other.
type incoming struct {
	request
	err error
}

// Serve answers requests until the stream or the context ends. It returns nil when the plugin has closed the stream, in
// the middle of an answer too: that is how a plugin ends. It returns only after the handler has.
func (s *Server) Serve(ctx context.Context, handlers map[string]Handler) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out, err := newEncoder(newInterruptible(ctx, s.out))
	if err != nil {
		return err
	}
	requests := make(chan incoming)
	go s.read(ctx, requests)
	var r incoming
	for {
		if r.Method == "" {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case r = <-requests:
			}
		}
		if errors.Is(r.err, io.EOF) {
			return nil
		}
		if r.err != nil {
			return r.err
		}
		r, err = s.answer(ctx, cancel, r.request, handlers, out, requests)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// read passes requests on until there are no more.
func (s *Server) read(ctx context.Context, requests chan<- incoming) {
	for {
		var r incoming
		k, payload, err := s.in.next()
		switch {
		case err != nil:
			r.err = err
		case k != kindRequest:
			r.err = fmt.Errorf("a frame of kind %q is not a request", byte(k))
		case requestJSON.Check("a request", payload) != nil:
			r.err = requestJSON.Check("a request", payload)
		default:
			if r.request, r.err = decodeBody[request](payload); r.err == nil && r.Method == "" {
				r.err = errors.New("a request does not say what it asks for")
			}
		}
		select {
		case requests <- r:
		case <-ctx.Done():
			return
		}
		if r.err != nil {
			return
		}
	}
}

// answer runs a request's handler, and watches the stream meanwhile: its end is the handler's end. It returns the next
// request if that came in already: a plugin that has the whole answer may be faster than this side.
func (s *Server) answer(
	ctx context.Context, cancel context.CancelCauseFunc, r request, handlers map[string]Handler, out *encoder,
	requests <-chan incoming,
) (next incoming, err error) {
	a := &Answer{out: out, id: r.ID}
	out.hash.Reset()
	result := make(chan error, 1)
	go func() { result <- a.run(ctx, r, handlers) }()
	for {
		select {
		case err := <-result:
			return next, err
		case in := <-requests:
			if in.err == nil && next.Method == "" {
				next = in
				continue
			}
			if in.err == nil {
				in.err = errors.New("the plugin keeps sending requests, and reads no answer")
			}
			cancel(in.err)
			<-result //nolint:errcheck // nobody is left to be told
			return incoming{}, in.err
		}
	}
}

// Answer is what a handler writes to.
type Answer struct {
	out   *encoder
	id    uint64
	files int
	bytes int64
}

// run answers. Its error is that of the stream.
func (a *Answer) run(ctx context.Context, r request, handlers map[string]Handler) error {
	h := handlers[r.Method]
	if h == nil {
		return a.fail(fmt.Errorf("this helper does not know the request %q", safetext.Line(r.Method, 100)))
	}
	if err := h(ctx, r.Params, a); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return a.fail(err)
	}
	return a.out.send(kindDone, doneBody{ID: a.id, Files: a.files, Bytes: a.bytes, SHA256: a.out.hash.Sum(nil)})
}

func (a *Answer) fail(err error) error {
	return a.out.send(kindError, errorBody{ID: a.id, Message: safetext.Line(err.Error(), maxText)})
}

// Progress tells a person what is going on.
func (a *Answer) Progress(text string) error {
	return a.out.send(kindProgress, progressBody{Text: safetext.Line(text, maxText)})
}

// File sends a file.
func (a *Answer) File(f File) error {
	if err := checkName(f.Name); err != nil {
		return err
	}
	if err := a.out.writeJSON(kindFile, fileBody{Name: f.Name, Unread: safetext.Line(f.Unread, maxText)}); err != nil {
		return err
	}
	size := int64(0)
	if f.Unread == "" {
		for data := f.Data; len(data) > 0; {
			n := min(len(data), chunk)
			if err := a.out.write(kindChunk, data[:n]); err != nil {
				return err
			}
			data = data[n:]
		}
		size = int64(len(f.Data))
	}
	a.files++
	a.bytes += size
	return a.out.send(kindFileEnd, fileEndBody{Bytes: size})
}

// interruptible is a writer that returns when a context ends, also while a reader that takes nothing holds it up. A
// handler that has something to undo must not hang on a plugin that is gone.
type interruptible struct {
	ctx  context.Context //nolint:containedctx // it bounds every write
	w    io.Writer
	todo chan []byte
	done chan error
}

func newInterruptible(ctx context.Context, w io.Writer) *interruptible {
	i := &interruptible{ctx: ctx, w: w, todo: make(chan []byte), done: make(chan error, 1)}
	go func() {
		for {
			select {
			case p := <-i.todo:
				_, err := i.w.Write(p)
				i.done <- err
			case <-ctx.Done():
				return
			}
		}
	}()
	return i
}

// Write may leave p in use after the context has ended; nobody writes to an encoder after its first error.
func (i *interruptible) Write(p []byte) (int, error) {
	select {
	case i.todo <- p:
	case <-i.ctx.Done():
		return 0, context.Cause(i.ctx)
	}
	select {
	case err := <-i.done:
		if err != nil {
			return 0, err
		}
		return len(p), nil
	case <-i.ctx.Done():
		return 0, context.Cause(i.ctx)
	}
}
