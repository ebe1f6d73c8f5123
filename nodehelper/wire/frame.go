// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"compress/flate"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// kind says what a frame holds.
type kind byte

const (
	kindRequest  kind = 'r' // request
	kindProgress kind = 'p' // progressBody
	kindFile     kind = 'f' // fileBody; its bytes follow in chunks
	kindChunk    kind = 'c' // bytes of the file
	kindFileEnd  kind = 'z' // fileEndBody
	kindDone     kind = 'd' // doneBody: the answer is whole
	kindError    kind = 'x' // errorBody: there is no answer
)

type request struct {
	ID     uint64          `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params,omitempty"`
}

type progressBody struct {
	Text string `json:"text"`
}

type fileBody struct {
	Name   string `json:"name"`
	Unread string `json:"unread,omitempty"`
}

type fileEndBody struct {
	Bytes int64 `json:"bytes"`
}

// doneBody is the trailer. SHA256 is over all frames of the answer before it.
type doneBody struct {
	ID     uint64 `json:"id"`
	Files  int    `json:"files"`
	Bytes  int64  `json:"bytes"`
	SHA256 []byte `json:"sha256"`
}

type errorBody struct {
	ID      uint64 `json:"id"`
	Message string `json:"message"`
}

const headerSize = 1 + 4

// encoder writes frames into one DEFLATE stream.
type encoder struct {
	out   *bufio.Writer
	flate *flate.Writer
	hash  hash.Hash
}

func newEncoder(w io.Writer) (*encoder, error) {
	e := &encoder{out: bufio.NewWriterSize(w, 64<<10), hash: sha256.New()}
	var err error
	e.flate, err = flate.NewWriter(e.out, flate.BestSpeed)
	return e, err
}

// write adds a frame; it may stay in a buffer until flush.
func (e *encoder) write(k kind, payload []byte) error {
	if most := payloads[k]; len(payload) > most {
		return bounds.Errorf("a frame of %d bytes is longer than the %d that the protocol allows", len(payload), most)
	}
	header := [headerSize]byte{byte(k)}
	binary.BigEndian.PutUint32(header[1:], uint32(len(payload))) //nolint:gosec // bounded above
	for _, part := range [][]byte{header[:], payload} {
		e.hash.Write(part)
		if _, err := e.flate.Write(part); err != nil {
			return err
		}
	}
	return nil
}

func (e *encoder) writeJSON(k kind, body any) error {
	payload, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return e.write(k, payload)
}

// flush sends what was written.
func (e *encoder) flush() error {
	if err := e.flate.Flush(); err != nil {
		return err
	}
	return e.out.Flush()
}

// send writes one frame and sends it.
func (e *encoder) send(k kind, body any) error {
	if err := e.writeJSON(k, body); err != nil {
		return err
	}
	return e.flush()
}

// decoder reads frames.
type decoder struct {
	in   io.Reader
	hash hash.Hash
	buf  []byte
}

func newDecoder(r *bufio.Reader) *decoder {
	return &decoder{in: flate.NewReader(r), hash: sha256.New()}
}

// next returns the next frame; its payload is valid until the next call. The error is io.EOF where the stream ends
// between two frames. A DEFLATE stream of this protocol has no end of its own: it breaks off where its bytes do, hence
// the check of both errors.
func (d *decoder) next() (k kind, payload []byte, err error) {
	var header [headerSize]byte
	n, err := io.ReadFull(d.in, header[:])
	switch {
	case n == 0 && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		return 0, nil, io.EOF
	case err != nil:
		return 0, nil, unexpected(err)
	}
	k = kind(header[0])
	size := binary.BigEndian.Uint32(header[1:])
	if most := payloads[k]; int64(size) > int64(most) {
		return 0, nil, bounds.Errorf("a frame of kind %q announces %d bytes, and the protocol allows %d", header[0], size,
			most)
	}
	if cap(d.buf) < int(size) {
		d.buf = make([]byte, size)
	}
	payload = d.buf[:size]
	if _, err := io.ReadFull(d.in, payload); err != nil {
		return 0, nil, unexpected(err)
	}
	return k, payload, nil
}

// count adds a frame to the hash that the trailer is compared with.
func (d *decoder) count(k kind, payload []byte) {
	header := [headerSize]byte{byte(k)}
	binary.BigEndian.PutUint32(header[1:], uint32(len(payload))) //nolint:gosec // next has bounded it
	d.hash.Write(header[:])
	d.hash.Write(payload)
}

func decodeBody[T any](payload []byte) (T, error) {
	var body T
	if err := json.Unmarshal(payload, &body); err != nil {
		return body, fmt.Errorf("a frame cannot be read: %w", err)
	}
	return body, nil
}
