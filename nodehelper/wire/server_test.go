// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// requestsOf is the stream of a plugin that sends frames.
func requestsOf(t testing.TB, write func(e *encoder) error) []byte {
	t.Helper()
	return answerOf(t, write)
}

func ask(ids ...uint64) func(e *encoder) error {
	return func(e *encoder) error {
		for _, id := range ids {
			if err := e.writeJSON(kindRequest, request{ID: id, Method: MethodCollect}); err != nil {
				return err
			}
		}
		return nil
	}
}

// until is a handler that works until its context ends, and then undoes for a while.
func until(undone *bool) Handler {
	return func(ctx context.Context, _ json.RawMessage, _ *Answer) error {
		<-ctx.Done()
		*undone = true
		return ctx.Err()
	}
}

// The end of the stream in the middle of an answer ends the handler, and Serve waits for it: that is how a plugin that
// is killed has undone what it asked for.
func TestServeStreamEnds(t *testing.T) {
	var undone bool
	s, err := NewServer(bytes.NewReader(requestsOf(t, ask(1))), io.Discard, "v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(t.Context(), map[string]Handler{MethodCollect: until(&undone)}); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if !undone {
		t.Error("Serve returned before its handler")
	}
}

// The end of the context does the same, though the plugin stays silent.
func TestServeContextEnds(t *testing.T) {
	var undone bool
	in, stdin := io.Pipe()
	defer stdin.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	errSignal := errors.New("a signal")
	go func() {
		_, _ = stdin.Write(requestsOf(t, ask(1)))
		cancel(errSignal)
	}()
	s, err := NewServer(in, io.Discard, "v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(ctx, map[string]Handler{MethodCollect: until(&undone)}); !errors.Is(err, errSignal) {
		t.Errorf("Serve: %v", err)
	}
}

// A plugin that takes nothing does not keep a handler from undoing.
func TestServeNobodyReads(t *testing.T) {
	var undone bool
	in, stdin := io.Pipe()
	out, stdout := io.Pipe()
	defer out.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	errDeadline := errors.New("a deadline")
	served := make(chan error, 1)
	go func() {
		s, err := NewServer(in, stdout, "v1")
		if err != nil {
			served <- err
			return
		}
		endless := func(ctx context.Context, _ json.RawMessage, a *Answer) error {
			defer func() { undone = true }()
			context.AfterFunc(ctx, func() {})
			go cancel(errDeadline)
			for {
				if err := a.File(File{Name: "a", Data: make([]byte, 1<<20)}); err != nil {
					return err
				}
			}
		}
		served <- s.Serve(ctx, map[string]Handler{MethodCollect: endless})
	}()
	c, err := NewClient(out, stdin, "v1", DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	// Only the question is sent.
	if err := c.out.send(kindRequest, request{ID: 1, Method: MethodCollect}); err != nil {
		t.Fatal(err)
	}
	if err := <-served; !errors.Is(err, errDeadline) {
		t.Errorf("Serve: %v", err)
	}
	if !undone {
		t.Error("the handler did not come to its end")
	}
}

func TestHostilePlugin(t *testing.T) {
	for name, c := range map[string]struct {
		write func(e *encoder) error
		want  string
	}{
		"more and more requests": {ask(1, 2, 3), "the plugin keeps sending requests, and reads no answer"},
		"no request": {
			func(e *encoder) error { return e.writeJSON(kindDone, doneBody{}) }, "a frame of kind 'd' is not a request",
		},
		"a request for nothing": {
			func(e *encoder) error { return e.writeJSON(kindRequest, request{ID: 1}) },
			"a request does not say what it asks for",
		},
		"a request without JSON": {
			func(e *encoder) error { return e.write(kindRequest, []byte("[")) },
			"a frame cannot be read: unexpected end of JSON input",
		},
		"a frame that is longer than allowed": {
			func(e *encoder) error { _, err := e.flate.Write([]byte("r\xff\xff\xff\xff")); return err },
			"a frame of kind 'r' announces 4294967295 bytes, and the protocol allows 16777216",
		},
		"half a frame": {func(e *encoder) error { _, err := e.flate.Write([]byte("r\x00")); return err }, "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			var undone bool
			s, err := NewServer(bytes.NewReader(requestsOf(t, c.write)), io.Discard, "v1")
			if err != nil {
				t.Fatal(err)
			}
			err = s.Serve(t.Context(), map[string]Handler{MethodCollect: until(&undone)})
			if err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// A handler's mistake is no file of another name.
func TestAnswerFileName(t *testing.T) {
	c, end := pair(t, DefaultLimits, map[string]Handler{MethodCollect: files(File{Name: "a/b"})})
	sink, got := collect()
	err := c.Call(MethodCollect, nil, sink)
	if err == nil || !strings.Contains(err.Error(), `"a/b" is not a name of a file`) || len(got) != 0 {
		t.Errorf("got %v and %d files", err, len(got))
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// FuzzClient plays what a hostile helper may send; nothing but an error may come of it, or an answer within the limits.
func FuzzClient(f *testing.F) {
	f.Add(goodAnswer(f))
	f.Add(answerOf(f, func(e *encoder) error { return e.writeJSON(kindError, errorBody{ID: 1, Message: "no"}) }))
	f.Add([]byte(magic + `{"protocol":2}` + "\n"))
	f.Add([]byte("exec format error\n"))
	limits := Limits{File: 1 << 16, Answer: 1 << 17, Files: 8, Progress: 100}
	testutil.AddHostile(f)
	f.Fuzz(func(t *testing.T, stream []byte) {
		testutil.Promptly(t, func() {
			count, size := 0, 0
			err := playback(stream, limits, Sink{File: func(f Received) {
				count++
				size += int(f.Content.Len())
				if !fileName().MatchString(f.Name) || f.Unread != "" && f.Content.Len() > 0 {
					t.Errorf("a file %q with %d bytes, unread %q", f.Name, f.Content.Len(), f.Unread)
				}
			}})
			if count > limits.Files || size > int(limits.Answer) {
				t.Errorf("%d files and %d bytes came through", count, size)
			}
			if err != nil && strings.ContainsAny(err.Error(), "\x00\x1b") {
				t.Errorf("the error takes a terminal over: %q", err)
			}
		})
	})
}

// FuzzFrames is FuzzClient without compression, which a fuzzer does not see through.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("f\x00\x00\x00\x0c{\"name\":\"a\"}c\x00\x00\x00\x01xz\x00\x00\x00\x0b{\"bytes\":1}"))
	f.Add([]byte("p\x00\x00\x00\x0e{\"text\":\"hi\"}"))
	f.Add([]byte("x\x00\x00\x00\x19{\"id\":1,\"message\":\"oops\"}"))
	testutil.AddHostile(f)
	f.Fuzz(func(t *testing.T, frames []byte) {
		testutil.Promptly(t, func() {
			stream := answerOf(t, func(e *encoder) error {
				_, err := e.flate.Write(frames)
				return err
			})
			limits := Limits{File: 1 << 16, Answer: 1 << 17, Files: 8, Progress: 100}
			if err := playback(stream, limits, Sink{File: func(Received) {}}); err == nil {
				t.Error("frames without a right checksum are taken for an answer")
			}
		})
	})
}

// FuzzServer plays what a hostile plugin may send.
func FuzzServer(f *testing.F) {
	f.Add(requestsOf(f, ask(1)))
	f.Add(requestsOf(f, ask(1, 2, 3)))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	testutil.AddHostile(f)
	f.Fuzz(func(t *testing.T, stream []byte) {
		testutil.Promptly(t, func() {
			s, err := NewServer(bytes.NewReader(stream), io.Discard, "v1")
			if err != nil {
				return
			}
			_ = s.Serve(t.Context(), map[string]Handler{MethodCollect: files(File{Name: "a", Data: []byte("b")})})
		})
	})
}
