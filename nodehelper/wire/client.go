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

	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
)

// Client is the plugin's side.
type Client struct {
	Peer  Hello  // how the helper introduced itself
	Noise string // what stood before its hello, printable

	mu     sync.Mutex // one request at a time
	in     *decoder
	out    *encoder
	limits Limits
	id     uint64
	broken error
}

// Sink takes an answer as it comes in. Each file is whole; the answer is only when Call returns no error.
type Sink struct {
	Progress func(text string) // may be nil
	File     func(File)        // its Data is the receiver's
}

// RemoteError is the helper's own account of why there is no answer. The connection is still good.
type RemoteError struct{ Message string }

// Error returns the message of the other side.
func (e *RemoteError) Error() string { return e.Message }

// NewClient says hello and waits for the helper's. The error is a *ProtocolError or a *NoHelloError.
func NewClient(r io.Reader, w io.Writer, build string, limits Limits) (*Client, error) {
	self := Hello{Protocol: Protocol, Build: build}
	if err := writeHello(w, self); err != nil {
		return nil, &NoHelloError{Err: err}
	}
	in := bufio.NewReaderSize(r, 64<<10)
	peer, noise, err := readHello(in)
	if err != nil {
		return nil, err
	}
	if peer.Protocol != Protocol {
		return nil, &ProtocolError{Self: self, Peer: peer}
	}
	out, err := newEncoder(w)
	if err != nil {
		return nil, err
	}
	return &Client{Peer: peer, Noise: noise, in: newDecoder(in), out: out, limits: limits}, nil
}

// Call asks for one thing and takes the whole answer. Any error but a *RemoteError ends the connection: later calls
// return it, too.
func (c *Client) Call(method string, params any, sink Sink) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return fmt.Errorf("the connection to the helper is no more: %w", c.broken)
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

	names map[string]bool
	bytes int64
	open  *fileBody // the file whose chunks are coming in
	data  bytes.Buffer
}

func (a *answer) brokeOff(err error) error {
	return fmt.Errorf("the helper's answer broke off after %d files and %d bytes, and counts as none: %w",
		len(a.names), a.bytes, err)
}

// takers say what to do with each kind of frame of an answer.
var takers = map[kind]func(*answer, []byte) error{
	kindProgress: (*answer).progress,
	kindFile:     (*answer).file,
	kindChunk:    (*answer).chunk,
	kindFileEnd:  (*answer).fileEnd,
	kindError:    (*answer).remoteError,
}

func (a *answer) take(k kind, payload []byte) error {
	taker := takers[k]
	if taker == nil {
		return fmt.Errorf("a frame of kind %q has no place in an answer", byte(k))
	}
	return taker(a, payload)
}

func (a *answer) progress(payload []byte) error {
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
		return fmt.Errorf("there are more than %d files", a.limits.Files)
	case a.names[b.Name]:
		return fmt.Errorf("%s comes twice", safetext.Line(b.Name, 200))
	}
	if err := checkName(b.Name); err != nil {
		return err
	}
	a.names[b.Name] = true
	b.Unread = safetext.Line(b.Unread, maxText)
	a.open = &b
	a.data = bytes.Buffer{}
	return nil
}

func (a *answer) chunk(payload []byte) error {
	a.bytes += int64(len(payload))
	switch {
	case a.open == nil:
		return errors.New("bytes came that belong to no file")
	case a.open.Unread != "":
		return fmt.Errorf("%s has bytes, though it could not be read", a.open.Name)
	case int64(a.data.Len()+len(payload)) > a.limits.File:
		return fmt.Errorf("%s is larger than %d bytes", a.open.Name, a.limits.File)
	case a.bytes > a.limits.Answer:
		return fmt.Errorf("the files are larger than %d bytes together", a.limits.Answer)
	}
	a.data.Write(payload)
	return nil
}

func (a *answer) fileEnd(payload []byte) error {
	b, err := decodeBody[fileEndBody](payload)
	switch {
	case err != nil:
		return err
	case a.open == nil:
		return errors.New("a file ends that did not begin")
	case b.Bytes != int64(a.data.Len()):
		return fmt.Errorf("%s has %d bytes, and %d came", a.open.Name, b.Bytes, a.data.Len())
	}
	f := File{Name: a.open.Name, Unread: a.open.Unread}
	if f.Unread == "" {
		// Empty and not there are different things.
		f.Data = append([]byte{}, a.data.Bytes()...)
		if a.data.Len() > chunk {
			f.Data = a.data.Bytes()
		}
	}
	a.open, a.data = nil, bytes.Buffer{}
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
