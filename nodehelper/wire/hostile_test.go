// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/peer"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// endless is the stream of a helper that goes on and on with the same frames.
func endless(t *testing.T, first, again func(e *encoder) error) io.Reader {
	t.Helper()
	r, w := io.Pipe()
	go func() {
		e, err := newEncoder(w)
		err = errors.Join(writeHello(w, peer.Peer{Protocol: peer.Protocol, Build: "v1"}), err)
		if err == nil {
			err = first(e)
		}
		for err == nil {
			err = again(e)
		}
		w.CloseWithError(err)
	}()
	t.Cleanup(func() { r.Close() })
	return r
}

// An answer without end is an error, whatever it consists of.
func TestEndlessAnswer(t *testing.T) {
	none := func(*encoder) error { return nil }
	begun := func(e *encoder) error { return e.writeJSON(kindFile, fileBody{Name: "a"}) }
	n := 0
	for name, c := range map[string]struct {
		first, again func(e *encoder) error
		want         string
	}{
		"endless progress": {
			none, func(e *encoder) error { return e.writeJSON(kindProgress, progressBody{"reading"}) },
			"there are more than 10000 progress messages",
		},
		"endless files without a byte": {
			none, func(e *encoder) error {
				n++
				return errors.Join(
					e.writeJSON(kindFile, fileBody{Name: fmt.Sprint("f", n)}), e.writeJSON(kindFileEnd, fileEndBody{}),
				)
			}, "there are more than 1000 files",
		},
		"endless frames without a byte": {
			begun, func(e *encoder) error { return e.write(kindChunk, nil) }, "a frame has no byte of its file",
		},
		"zeros without end, which deflate makes small": {
			begun, func(e *encoder) error { return e.write(kindChunk, make([]byte, maxChunk)) },
			"a is larger than 134217728 bytes",
		},
		"files of zeros without end": {
			none, func(e *encoder) error {
				n++
				err := e.writeJSON(kindFile, fileBody{Name: fmt.Sprint("f", n)})
				for range 100 {
					err = errors.Join(err, e.write(kindChunk, make([]byte, maxChunk)))
				}
				return errors.Join(err, e.writeJSON(kindFileEnd, fileEndBody{Bytes: 100 * maxChunk}))
			}, "the files are larger than 268435456 bytes together",
		},
		"a progress message of 16 MB": {
			none, func(e *encoder) error {
				_, err := e.flate.Write([]byte{byte(kindProgress), 1, 0, 0, 0})
				return err
			}, "a frame of kind 'p' announces 16777216 bytes, and the protocol allows 65536",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c2, err := NewClient(endless(t, c.first, c.again), io.Discard, "v1", DefaultLimits)
			if err != nil {
				t.Fatal(err)
			}
			held := int64(0)
			err = c2.Call(MethodCollect, nil, Sink{File: func(f Received) { held += f.Content.Held() }})
			if err == nil || !strings.HasSuffix(err.Error(), ": "+c.want) {
				t.Errorf("got  %v\nwant … %s", err, c.want)
			}
			if held > 16<<20 {
				t.Errorf("%d bytes are in memory", held)
			}
		})
	}
}

// Blocks of DEFLATE that hold nothing are bytes without a frame: they are bounded as they are transferred.
func TestEndlessNothing(t *testing.T) {
	stream := answerOf(t, func(*encoder) error { return nil })
	block := []byte{0, 0, 0, 0xff, 0xff} // RFC 1951, 3.2.4
	at := 0
	r := io.MultiReader(bytes.NewReader(stream), readerFunc(func(p []byte) (int, error) {
		for i := range p {
			p[i] = block[at%len(block)]
			at++
		}
		return len(p), nil
	}))
	limits := DefaultLimits
	limits.Compressed = 4 << 20
	c, err := NewClient(r, io.Discard, "v1", limits)
	if err != nil {
		t.Fatal(err)
	}
	err = c.Call(MethodCollect, nil, Sink{})
	if err == nil || !strings.HasSuffix(err.Error(), ": more than 4 MB came for one answer, compressed") {
		t.Errorf("got %v", err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// random is bytes that deflate does not make smaller.
func random(n int) []byte {
	out := make([]byte, n)
	x := uint64(88172645463325252)
	for i := range out {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		out[i] = byte(x)
	}
	return out
}

// What comes is bounded as it is transferred, too, and an answer that stays large asks before it is kept.
func TestLargeAnswer(t *testing.T) {
	data := random(2 << 20)
	answer := func(e *encoder) error {
		var err error
		for i := range 8 {
			err = errors.Join(err, e.writeJSON(kindFile, fileBody{Name: fmt.Sprint("f", i)}))
			for part := data; len(part) > 0; part = part[min(len(part), maxChunk):] {
				err = errors.Join(err, e.write(kindChunk, part[:min(len(part), maxChunk)]))
			}
			err = errors.Join(err, e.writeJSON(kindFileEnd, fileEndBody{Bytes: int64(len(data))}))
		}
		return errors.Join(err, e.writeJSON(kindDone, doneBody{ID: 1, Files: 8, Bytes: 16 << 20, SHA256: e.hash.Sum(nil)}))
	}
	for _, tt := range []struct {
		name   string
		limits Limits
		large  error // of Sink.Large
		asked  int
		want   string
	}{
		{"an answer that is not large", Limits{Compressed: 1 << 30, Held: 1 << 30}, nil, 0, ""},
		{"a large answer asks once", Limits{Compressed: 1 << 30, Held: 4 << 20}, nil, 1, ""},
		{
			"a large answer that is refused",
			Limits{Compressed: 1 << 30, Held: 4 << 20},
			errors.New("no memory"),
			1,
			"no memory",
		},
		{
			"too many bytes of the stream",
			Limits{Compressed: 3 << 20, Held: 1 << 30},
			nil,
			0,
			"more than 3 MB came for one answer, compressed",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limits := tt.limits
			limits.File, limits.Answer, limits.Files, limits.Progress = bounds.File, bounds.Node, 100, 10
			asked := 0
			err := playback(answerOf(t, answer), limits, Sink{
				File:  func(Received) {},
				Large: func() error { asked++; return tt.large },
			})
			if asked != tt.asked || (err == nil) != (tt.want == "") || err != nil && !strings.HasSuffix(err.Error(), tt.want) {
				t.Errorf("asked %d times, %v; want %d times, %q", asked, err, tt.asked, tt.want)
			}
		})
	}
}

// A plugin may not make the helper take memory: a request is checked before it is decoded.
func TestHostileRequest(t *testing.T) {
	for name, c := range map[string]struct{ params, want string }{
		"a million targets": {
			`[` + strings.TrimSuffix(strings.Repeat("{},", 1_000_000), ",") + `]`,
			"a request holds a list of more than 100000 elements",
		},
		"parameters that nest": {
			strings.Repeat("[", 5_000) + strings.Repeat("]", 5_000),
			"a request is nested deeper than 200 levels",
		},
		"two million of values": {
			`[` + strings.Repeat(`[`+strings.Repeat("1,", 90_000)+`1],`, 20) + `1]`,
			"a request holds more than 1000000 JSON values",
		},
	} {
		t.Run(name, func(t *testing.T) {
			stream := answerOf(t, func(e *encoder) error {
				return e.writeJSON(kindRequest, request{ID: 1, Method: MethodProbe, Params: json.RawMessage(c.params)})
			})
			s, err := NewServer(bytes.NewReader(stream), io.Discard, "v1")
			if err != nil {
				t.Fatal(err)
			}
			called := false
			err = s.Serve(t.Context(), map[string]Handler{
				MethodProbe: func(context.Context, json.RawMessage, *Answer) error { called = true; return nil },
			})
			if called || err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("called: %t, %v; want %s…", called, err, c.want)
			}
		})
	}
}
