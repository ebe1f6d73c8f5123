// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/svcproxy/kubectl-svcproxy/internal/peer"
	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Client is the plugin's side.
type Client struct {
	Peer  peer.Peer // how the helper introduced itself
	Noise string    // what stood before its hello, printable

	mu     sync.Mutex // one request at a time
	in     *decoder
	bytes  *counter // of the stream
	out    *encoder
	limits Limits
	id     uint64
	broken error
}

// Sink takes an answer as it comes in. Each file is whole; the answer is only when Call returns no error.
type Sink struct {
	Progress func(text string) // may be nil
	File     func(Received)
	// Large is called once before the answer takes more than Limits.Held bytes of memory, and may wait until there is
	// memory for it; its error ends the answer. It may be nil.
	Large func() error
}

// RemoteError is the helper's own account of why there is no answer. The connection is still good.
type RemoteError struct{ Message string }

// Error returns the message of the other side.
func (e *RemoteError) Error() string { return e.Message }

// NewClient says hello and waits for the helper's. The error is a *peer.Error or a *NoHelloError.
func NewClient(r io.Reader, w io.Writer, build string, limits Limits) (*Client, error) {
	self := peer.Peer{Protocol: peer.Protocol, Build: build}
	if err := writeHello(w, self); err != nil {
		return nil, &NoHelloError{Err: err}
	}
	count := &counter{r: r}
	in := bufio.NewReaderSize(count, 64<<10)
	other, noise, err := readHello(in)
	if err != nil {
		return nil, err
	}
	if err := other.Check(self); err != nil {
		return nil, err
	}
	out, err := newEncoder(w)
	if err != nil {
		return nil, err
	}
	return &Client{Peer: other, Noise: noise, in: newDecoder(in), bytes: count, out: out, limits: limits}, nil
}

// Call asks for one thing and takes the whole answer. Any error but a *RemoteError ends the connection: later calls
// return it, too.
func (c *Client) Call(method string, params any, sink Sink) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return fmt.Errorf("the connection to the helper is lost: %w", c.broken)
	}
	err := c.call(method, params, sink)
	if _, remote := errors.AsType[*RemoteError](err); !remote {
		c.broken = err
	}
	return err
}

func (c *Client) call(method string, params any, sink Sink) error {
	p, err := json.Marshal(params)
	if err != nil {
		return err
	}
	c.id++
	if err := c.out.send(kindRequest, request{ID: c.id, Method: method, Params: p}); err != nil {
		return fmt.Errorf("cannot ask the helper for %s: %w", method, err)
	}
	a := answer{id: c.id, sink: sink, limits: c.limits, names: map[string]bool{}}
	c.in.hash.Reset()
	c.bytes.allow(c.limits.Compressed)
	for {
		k, payload, err := c.in.next()
		if err != nil {
			return a.brokeOff(unexpected(err))
		}
		if k == kindDone {
			if err := a.done(payload, c.in.hash.Sum(nil)); err != nil {
				return a.brokeOff(err)
			}
			return nil
		}
		c.in.count(k, payload)
		if err := a.take(k, payload); err != nil {
			if remote, ok := errors.AsType[*RemoteError](err); ok {
				return remote
			}
			return a.brokeOff(err)
		}
	}
}

// answer is what has come in so far.
type answer struct {
	id     uint64
	sink   Sink
	limits Limits

	names    map[string]bool
	bytes    int64
	held     int64 // bytes in memory
	large    bool  // Sink.Large was called
	progress int
	open     *fileBody // the file whose chunks are coming in
	data     *snapshot.Packer
}

func (a *answer) brokeOff(err error) error {
	return fmt.Errorf("the helper's answer ended after %d files and %d bytes, and is not used: %w",
		len(a.names), a.bytes, err)
}

// takers say what to do with each kind of frame of an answer.
var takers = map[kind]func(*answer, []byte) error{
	kindProgress: (*answer).message,
	kindFile:     (*answer).file,
	kindChunk:    (*answer).chunk,
	kindFileEnd:  (*answer).fileEnd,
	kindError:    (*answer).remoteError,
}

func (a *answer) take(k kind, payload []byte) error {
	taker := takers[k]
	if taker == nil {
		return fmt.Errorf("a frame of kind %q is not allowed in an answer", byte(k))
	}
	return taker(a, payload)
}

func (a *answer) message(payload []byte) error {
	a.progress++
	if a.progress > a.limits.Progress {
		return bounds.Errorf("there are more than %d progress messages", a.limits.Progress)
	}
	b, err := decodeBody[progressBody](payload)
	if err == nil && a.sink.Progress != nil {
		a.sink.Progress(safetext.Line(b.Text, maxText))
	}
	return err
}

func (a *answer) file(payload []byte) error {
	b, err := decodeBody[fileBody](payload)
	switch {
	case err != nil:
		return err
	case a.open != nil:
		return fmt.Errorf("%s begins before the end of %s", safetext.Line(b.Name, 200), a.open.Name)
	case len(a.names) >= a.limits.Files:
		return bounds.Errorf("there are more than %d files", a.limits.Files)
	case a.names[b.Name]:
		return fmt.Errorf("%s comes twice", safetext.Line(b.Name, 200))
	}
	if err := checkName(b.Name); err != nil {
		return err
	}
	a.names[b.Name] = true
	b.Unread = safetext.Line(b.Unread, maxText)
	a.open = &b
	a.data = &snapshot.Packer{}
	return nil
}

func (a *answer) chunk(payload []byte) error {
	a.bytes += int64(len(payload))
	switch {
	case a.open == nil:
		return errors.New("bytes came that belong to no file")
	case a.open.Unread != "":
		return fmt.Errorf("%s has bytes, though it could not be read", a.open.Name)
	case len(payload) == 0:
		return errors.New("a frame has no byte of its file")
	case a.data.Len()+int64(len(payload)) > a.limits.File:
		return bounds.Errorf("%s is larger than %d bytes", a.open.Name, a.limits.File)
	case a.bytes > a.limits.Answer:
		return bounds.Errorf("the files are larger than %d bytes together", a.limits.Answer)
	}
	if !a.large && a.sink.Large != nil && a.held+a.data.Held() > a.limits.Held {
		a.large = true
		if err := a.sink.Large(); err != nil {
			return err
		}
	}
	_, err := a.data.Write(payload)
	return err
}

func (a *answer) fileEnd(payload []byte) error {
	b, err := decodeBody[fileEndBody](payload)
	switch {
	case err != nil:
		return err
	case a.open == nil:
		return errors.New("a file ends that did not begin")
	case b.Bytes != a.data.Len():
		return fmt.Errorf("%s has %d bytes, and %d came", a.open.Name, b.Bytes, a.data.Len())
	}
	f := Received{Name: a.open.Name, Unread: a.open.Unread}
	if f.Unread == "" {
		if f.Content, err = a.data.Pack(); err != nil {
			return err
		}
		a.held += f.Content.Held()
	}
	a.open, a.data = nil, nil
	a.sink.File(f)
	return nil
}

func (a *answer) remoteError(payload []byte) error {
	b, err := decodeBody[errorBody](payload)
	if err != nil {
		return err
	}
	if b.ID != a.id {
		return fmt.Errorf("the error is that of request %d, and %d was asked", b.ID, a.id)
	}
	return &RemoteError{Message: safetext.Line(b.Message, maxText)}
}

func (a *answer) done(payload, sum []byte) error {
	b, err := decodeBody[doneBody](payload)
	switch {
	case err != nil:
		return err
	case a.open != nil:
		return fmt.Errorf("%s has no end", a.open.Name)
	case b.ID != a.id:
		return fmt.Errorf("the answer is that to request %d, and %d was asked", b.ID, a.id)
	case b.Files != len(a.names) || b.Bytes != a.bytes:
		return fmt.Errorf("%d files and %d bytes were sent", b.Files, b.Bytes)
	case !bytes.Equal(b.SHA256, sum):
		return errors.New("its checksum is wrong")
	}
	return nil
}

// counter reads a stream of which only some bytes may come.
type counter struct {
	r       io.Reader
	bounded bool
	left    int64
	most    int64
}

// allow lets n bytes come from now on.
func (c *counter) allow(n int64) { c.bounded, c.left, c.most = n > 0, n, n }

func (c *counter) Read(p []byte) (int, error) {
	if !c.bounded {
		return c.r.Read(p)
	}
	if c.left <= 0 {
		return 0, bounds.Errorf("more than %s came for one answer, compressed", bounds.Bytes(c.most))
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}
