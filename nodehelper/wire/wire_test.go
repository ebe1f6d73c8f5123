// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/peer"
)

// pair connects a client to a server that answers by handlers. The returned function closes the client's side, and
// returns what Serve did.
func pair(t *testing.T, limits Limits, handlers map[string]Handler) (*Client, func() error) {
	t.Helper()
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	served := make(chan error, 1)
	go func() {
		s, err := NewServer(toServer, fromServer, "v1.0.0")
		if err == nil {
			err = s.Serve(t.Context(), handlers)
		}
		fromServer.CloseWithError(io.EOF)
		served <- err
	}()
	c, err := NewClient(toClient, fromClient, "v2.0.0", limits)
	if err != nil {
		t.Fatal(err)
	}
	return c, func() error {
		fromClient.Close()
		return <-served
	}
}

// files answers with files.
func files(fs ...File) Handler {
	return func(_ context.Context, _ json.RawMessage, a *Answer) error {
		for _, f := range fs {
			if err := a.File(f); err != nil {
				return err
			}
		}
		return nil
	}
}

// collect returns a sink, and where it puts its files.
func collect() (Sink, map[string]File) {
	got := map[string]File{}
	return Sink{File: func(f Received) {
		data, err := f.Content.Bytes()
		if err != nil {
			panic(err)
		}
		got[f.Name] = File{Name: f.Name, Data: data, Unread: f.Unread}
	}}, got
}

func equal(a, b map[string]File) bool {
	return maps.EqualFunc(a, b, func(x, y File) bool {
		return x.Name == y.Name && x.Unread == y.Unread && bytes.Equal(x.Data, y.Data) && (x.Data == nil) == (y.Data == nil)
	})
}

func TestCall(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 20<<10)
	var asked []string
	c, end := pair(t, DefaultLimits, map[string]Handler{
		MethodCollect: func(_ context.Context, params json.RawMessage, a *Answer) error {
			var p CollectParams
			if err := json.Unmarshal(params, &p); err != nil {
				return err
			}
			asked = p.Files
			if err := a.Progress("reading\x1b[2J rules"); err != nil {
				return err
			}
			return files(
				File{Name: "large.txt", Data: large},
				File{Name: "empty.txt", Data: []byte{}},
				File{Name: "gone.txt", Unread: "no permission\nhere"},
			)(t.Context(), nil, a)
		},
		"fails": func(context.Context, json.RawMessage, *Answer) error { return errors.New("it did not work") },
		"fails late": func(_ context.Context, _ json.RawMessage, a *Answer) error {
			return errors.Join(a.File(File{Name: "half", Data: []byte("x")}), errors.New("it did not work in the end"))
		},
	})
	if c.Peer != (peer.Peer{Protocol: peer.Protocol, Build: "v1.0.0"}) || c.Noise != "" {
		t.Errorf("the helper introduced itself as %+v, after %q", c.Peer, c.Noise)
	}
	// An error ends an answer, and not the connection.
	for method, want := range map[string]string{
		"fails":      "it did not work",
		"fails late": "it did not work in the end",
		"nonsense":   `this helper does not know the request "nonsense"`,
	} {
		sink, _ := collect()
		err := c.Call(method, nil, sink)
		if _, remote := errors.AsType[*RemoteError](err); !remote || err.Error() != want {
			t.Errorf("%s: got %v, want %s", method, err, want)
		}
	}
	for range 2 {
		sink, got := collect()
		var progress []string
		sink.Progress = func(text string) { progress = append(progress, text) }
		if err := c.Call(MethodCollect, CollectParams{Files: []string{"a", "b"}}, sink); err != nil {
			t.Fatal(err)
		}
		want := map[string]File{
			"large.txt": {Name: "large.txt", Data: large},
			"empty.txt": {Name: "empty.txt", Data: []byte{}},
			"gone.txt":  {Name: "gone.txt", Unread: "no permission here"},
		}
		if !equal(got, want) {
			t.Errorf("other files came than were sent: %v", got)
		}
		if fmt.Sprint(asked) != "[a b]" {
			t.Errorf("asked for %v", asked)
		}
		if fmt.Sprintf("%q", progress) != `["reading�[2J rules"]` {
			t.Errorf("progress %q", progress)
		}
	}
	if err := end(); err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// A file far larger than all buffers passes, though the reader takes it in small bites.
func TestCallLargeFile(t *testing.T) {
	var rules bytes.Buffer
	for i := range 10_000 {
		fmt.Fprintf(&rules, "-A KUBE-SEP-%016X -p tcp -m tcp -j DNAT --to-destination 10.244.0.%d:8080\n", i*i, i%256)
	}
	data := bytes.Repeat(rules.Bytes(), 1+(100<<20)/rules.Len())
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	go func() {
		s, err := NewServer(toServer, fromServer, "v1")
		if err == nil {
			err = s.Serve(t.Context(), map[string]Handler{MethodCollect: files(File{Name: "large", Data: data})})
		}
		fromServer.CloseWithError(err)
	}()
	defer fromClient.Close()
	c, err := NewClient(smallBites{toClient}, fromClient, "v1", DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	sink, got := collect()
	if err := c.Call(MethodCollect, nil, sink); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got["large"].Data, data) {
		t.Error("another file came than was sent")
	}
}

type smallBites struct{ r io.Reader }

func (s smallBites) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), 5000)]) }

// playback gives a client a recorded stream.
func playback(stream []byte, limits Limits, sink Sink) error {
	c, err := NewClient(bytes.NewReader(stream), io.Discard, "v1", limits)
	if err != nil {
		return err
	}
	return c.Call(MethodCollect, nil, sink)
}

// answerOf is the stream of a helper that sends frames.
func answerOf(t testing.TB, write func(e *encoder) error) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := writeHello(&b, peer.Peer{Protocol: peer.Protocol, Build: "v1"}); err != nil {
		t.Fatal(err)
	}
	e, err := newEncoder(&b)
	if err != nil {
		t.Fatal(err)
	}
	if err := write(e); err != nil {
		t.Fatal(err)
	}
	if err := e.flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func goodAnswer(t testing.TB) []byte {
	t.Helper()
	return answerOf(t, func(e *encoder) error {
		a := &Answer{out: e, id: 1}
		handler := func(_ context.Context, _ json.RawMessage, a *Answer) error {
			return errors.Join(
				a.Progress("reading"),
				a.File(File{Name: "rules", Data: []byte(strings.Repeat("-A KUBE-SERVICES -j KUBE-SVC\n", 50))}),
				a.File(File{Name: "sets", Unread: "no permission"}),
			)
		}
		return a.run(t.Context(), request{ID: 1, Method: MethodCollect}, map[string]Handler{MethodCollect: handler})
	})
}

// Wherever a stream breaks off, its answer is none.
func TestAnswerCutOff(t *testing.T) {
	stream := goodAnswer(t)
	sink, got := collect()
	if err := playback(stream, DefaultLimits, sink); err != nil || len(got) != 2 {
		t.Fatalf("the whole stream gives %d files and %v", len(got), err)
	}
	// The last bytes are those of two flushes (RFC 1951, an empty stored block each); the trailer stands before them.
	const flushed = 2 * 5
	for n := range len(stream) - flushed {
		sink, _ := collect()
		if err := playback(stream[:n], DefaultLimits, sink); err == nil {
			t.Fatalf("%d of %d bytes are taken for a whole answer", n, len(stream))
		}
	}
}

// A bit that changes in transmission is an error, or has no effect.
func TestAnswerChanged(t *testing.T) {
	stream := goodAnswer(t)
	sink, want := collect()
	if err := playback(stream, DefaultLimits, sink); err != nil {
		t.Fatal(err)
	}
	hello := bytes.IndexByte(stream, '\n') + 1
	noticed := 0
	for i := hello; i < len(stream); i++ {
		bit := i % 8
		changed := bytes.Clone(stream)
		changed[i] ^= 1 << bit
		sink, got := collect()
		if err := playback(changed, DefaultLimits, sink); err != nil {
			noticed++
		} else if !equal(got, want) {
			t.Fatalf("bit %d of byte %d makes another answer, and nobody notices", bit, i)
		}
	}
	if noticed == 0 {
		t.Error("no change was noticed at all")
	}
}

func TestHostileHelper(t *testing.T) {
	small := Limits{File: 1000, Answer: 1500, Files: 2, Progress: 3}
	file := func(name string, size int) func(e *encoder) error {
		return func(e *encoder) error {
			return errors.Join(
				e.writeJSON(kindFile, fileBody{Name: name}),
				e.write(kindChunk, make([]byte, size)),
				e.writeJSON(kindFileEnd, fileEndBody{Bytes: int64(size)}),
			)
		}
	}
	all := func(parts ...func(e *encoder) error) func(e *encoder) error {
		return func(e *encoder) error {
			var errs []error
			for _, p := range parts {
				errs = append(errs, p(e))
			}
			return errors.Join(errs...)
		}
	}
	done := func(b doneBody) func(e *encoder) error {
		return func(e *encoder) error {
			b.SHA256 = e.hash.Sum(nil)
			return e.writeJSON(kindDone, b)
		}
	}
	for name, c := range map[string]struct {
		write func(e *encoder) error
		want  string
	}{
		"a file that is too large": {file("a", 1001), "a is larger than 1000 bytes"},
		"files that are too large together": {
			all(file("a", 900), file("b", 900)), "the files are larger than 1500 bytes together",
		},
		"too many files":      {all(file("a", 1), file("b", 1), file("c", 1)), "there are more than 2 files"},
		"the same file twice": {all(file("a", 1), file("a", 2)), "a comes twice"},
		"a name of another directory": {
			file("../../etc/passwd", 1), `"../../etc/passwd" is not a name of a file: use letters, digits, '.', '_' and '-'`,
		},
		"a name with an escape sequence": {
			file("a\x1b[2J", 1), "\"a\uFFFD[2J\" is not a name of a file: use letters, digits, '.', '_' and '-'",
		},
		"bytes of no file": {
			func(e *encoder) error { return e.write(kindChunk, []byte("x")) }, "bytes came that belong to no file",
		},
		"an end of no file": {
			func(e *encoder) error { return e.writeJSON(kindFileEnd, fileEndBody{}) }, "a file ends that did not begin",
		},
		"a file within a file": {func(e *encoder) error {
			return errors.Join(e.writeJSON(kindFile, fileBody{Name: "a"}), e.writeJSON(kindFile, fileBody{Name: "b"}))
		}, "b begins before the end of a"},
		"bytes of a file that was not read": {func(e *encoder) error {
			return errors.Join(e.writeJSON(kindFile, fileBody{Name: "a", Unread: "no"}), e.write(kindChunk, []byte("x")))
		}, "a has bytes, though it could not be read"},
		"a file of another size": {func(e *encoder) error {
			return errors.Join(e.writeJSON(kindFile, fileBody{Name: "a"}), e.writeJSON(kindFileEnd, fileEndBody{Bytes: 7}))
		}, "a has 7 bytes, and 0 came"},
		"a file without an end": {func(e *encoder) error {
			return errors.Join(e.writeJSON(kindFile, fileBody{Name: "a"}), done(doneBody{ID: 1, Files: 1})(e))
		}, "a has no end"},
		"another count of files": {
			all(file("a", 1), done(doneBody{ID: 1, Files: 2, Bytes: 1})), "2 files and 1 bytes were sent",
		},
		"another count of bytes": {
			all(file("a", 1), done(doneBody{ID: 1, Files: 1, Bytes: 2})), "1 files and 2 bytes were sent",
		},
		"another checksum": {all(file("a", 1), func(e *encoder) error {
			return e.writeJSON(kindDone, doneBody{ID: 1, Files: 1, Bytes: 1, SHA256: make([]byte, 32)})
		}), "its checksum is wrong"},
		"the answer to another request": {done(doneBody{ID: 9}), "the answer is that to request 9, and 1 was asked"},
		"the error of another request": {
			func(e *encoder) error { return e.writeJSON(kindError, errorBody{ID: 9}) },
			"the error is that of request 9, and 1 was asked",
		},
		"a kind that nobody knows": {
			func(e *encoder) error { return e.write('?', nil) }, "a frame of kind '?' is not allowed in an answer",
		},
		"a request in place of an answer": {
			func(e *encoder) error { return e.writeJSON(kindRequest, request{}) },
			"a frame of kind 'r' is not allowed in an answer",
		},
		"a frame that is longer than allowed": {func(e *encoder) error {
			_, err := e.flate.Write([]byte{byte(kindChunk), 0xff, 0xff, 0xff, 0xff})
			return err
		}, "a frame of kind 'c' announces 4294967295 bytes, and the protocol allows 1048576"},
		"a body that is not JSON": {
			func(e *encoder) error { return e.write(kindFile, []byte("{")) },
			"a frame cannot be read: unexpected end of JSON input",
		},
	} {
		t.Run(name, func(t *testing.T) {
			sink, _ := collect()
			err := playback(answerOf(t, c.write), small, sink)
			if err == nil || !strings.HasPrefix(err.Error(), "the helper's answer ended after ") ||
				!strings.HasSuffix(err.Error(), ": "+c.want) {
				t.Errorf("got  %v\nwant … %s", err, c.want)
			}
		})
	}
}

// After a broken answer nothing is asked any more.
func TestCallAfterBreak(t *testing.T) {
	c, err := NewClient(bytes.NewReader(answerOf(t, func(*encoder) error { return nil })), io.Discard, "v1", DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	first := c.Call(MethodCollect, nil, Sink{})
	if !errors.Is(first, io.ErrUnexpectedEOF) {
		t.Errorf("a stream without an answer gives %v", first)
	}
	second := c.Call(MethodCollect, nil, Sink{})
	if !errors.Is(second, io.ErrUnexpectedEOF) ||
		!strings.HasPrefix(second.Error(), "the connection to the helper is lost: ") {
		t.Errorf("the call after it gives %v", second)
	}
}

func TestHello(t *testing.T) {
	good := magic + `{"protocol":1,"build":"v1"}` + "\n"
	for name, c := range map[string]struct {
		stream, noise, err string
		hello              peer.Peer
	}{
		"alone":                    {stream: good, hello: peer.Peer{Protocol: 1, Build: "v1"}},
		"with something behind it": {stream: good + "rest", hello: peer.Peer{Protocol: 1, Build: "v1"}},
		"after another program's line": {
			stream: "Defaulted container \x1b[1mfoo\n\n" + good, noise: "Defaulted container \uFFFD[1mfoo",
			hello: peer.Peer{Protocol: 1, Build: "v1"},
		},
		"after half a hello": {stream: magic[:5] + good, noise: "\uFFFDsvcp", hello: peer.Peer{Protocol: 1, Build: "v1"}},
		"of a later version": {
			stream: magic + `{"protocol":7,"build":"v9\u001b","more":[1]}` + "\n", hello: peer.Peer{Protocol: 7, Build: "v9\uFFFD"},
		},
		"nothing": {err: "it ended without any output"},
		"another program": {
			stream: "exec format error\n", err: "what answers is not svcproxy's node helper; it wrote: exec format error",
		},
		"another program that talks on": {
			stream: strings.Repeat("y\n", maxNoise),
			err:    "what answers is not svcproxy's node helper; it wrote: " + strings.Repeat("y ", 498) + "y…",
		},
		"cut off": {stream: good[:len(good)-2], err: "it did not answer: its hello is cut off: unexpected EOF"},
		"without end": {
			stream: magic + strings.Repeat(" ", 2*maxHello), err: "it did not answer: its hello is longer than 4096 bytes",
		},
		"without JSON": {
			stream: magic + "hi\n",
			err:    "it did not answer: its hello cannot be read: invalid character 'h' looking for beginning of value",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, noise, err := readHello(bufio.NewReader(strings.NewReader(c.stream)))
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != c.err {
				t.Errorf("error\n%q\nwant\n%q", text, c.err)
			}
			if err == nil && (h != c.hello || noise != c.noise) {
				t.Errorf("got %+v after %q", h, noise)
			}
		})
	}
}

// Both sides learn that they are of different versions.
func TestOtherProtocol(t *testing.T) {
	later := magic + `{"protocol":99,"build":"v2"}` + "\n"
	want := fmt.Sprintf("the other side is newer: it speaks version 99 of the protocol (build v2), and this one "+
		"version %d (build v1)", peer.Protocol)
	var said bytes.Buffer
	_, err := NewServer(strings.NewReader(later), &said, "v1")
	if _, ok := errors.AsType[*peer.Error](err); !ok || err.Error() != want {
		t.Errorf("server: %v", err)
	}
	self := peer.Peer{Protocol: peer.Protocol, Build: "v1"}
	if h, _, err := readHello(bufio.NewReader(&said)); err != nil || h != self {
		t.Errorf("the server introduces itself as %+v, %v", h, err)
	}
	_, err = NewClient(strings.NewReader(later), io.Discard, "v1", DefaultLimits)
	if _, ok := errors.AsType[*peer.Error](err); !ok || err.Error() != want {
		t.Errorf("client: %v", err)
	}
}
