// SPDX-License-Identifier: Apache-2.0

package nodehelper

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// meeting starts Serve, and returns its other end and what it returns.
func meeting(ctx context.Context, o Options) (stdin *io.PipeWriter, stdout *io.PipeReader, served <-chan error) {
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	result := make(chan error, 1)
	go func() {
		err := Serve(ctx, in, out, o)
		out.CloseWithError(io.EOF)
		result <- err
	}()
	return stdin, stdout, result
}

func TestServe(t *testing.T) {
	stdin, stdout, served := meeting(t.Context(), Options{Build: "v1", Hello: time.Hour, Deadline: time.Hour})
	c, err := wire.NewClient(stdout, stdin, "v2", wire.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	if c.Peer.Build != "v1" {
		t.Errorf("the helper is of build %s", c.Peer.Build)
	}
	// Parameters that cannot be read are the end of a request, not of the connection.
	err = c.Call(wire.MethodCollect, 7, wire.Sink{File: func(wire.Received) {}})
	_, remote := errors.AsType[*wire.RemoteError](err)
	if !remote || !strings.HasPrefix(err.Error(), "the parameters of the request cannot be read: ") {
		t.Errorf("parameters that are none give %v", err)
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// A helper whose plugin never comes, stays away or is told to go does not stay.
func TestServeEnds(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx   context.Context //nolint:containedctx // of the case
		o     Options
		hello bool
		want  error
	}{
		"nobody says hello":             {ctx: t.Context(), o: Options{Hello: time.Millisecond}, want: ErrNoHello},
		"nobody says hello in its time": {ctx: t.Context(), o: Options{Deadline: time.Millisecond}, want: ErrDeadline},
		"nobody asks for anything": {
			ctx: t.Context(), o: Options{Hello: time.Hour, Deadline: 50 * time.Millisecond}, hello: true, want: ErrDeadline,
		},
		"a signal": {ctx: gone, o: Options{Hello: time.Hour}, want: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			stdin, stdout, served := meeting(c.ctx, c.o)
			defer stdin.Close()
			if c.hello {
				if _, err := wire.NewClient(stdout, stdin, "v2", wire.DefaultLimits); err != nil {
					t.Fatal(err)
				}
			}
			if err := <-served; !errors.Is(err, c.want) {
				t.Errorf("Serve: %v", err)
			}
		})
	}
}

func TestServeNobodyThere(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want string
	}{
		"stdin is closed": {"", "it ended without any output"},
		"a person types":  {"help\n", "what answers is not svcproxy's node helper; it wrote: help"},
		"another version": {
			"\x16svcproxy-wire {\"protocol\":99,\"build\":\"v9\"}\n",
			"the other side is newer: it speaks version 99 of the protocol (build v9), and this one version 2 (build v1)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := Serve(t.Context(), strings.NewReader(c.in), io.Discard, Options{Build: "v1"})
			if err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// The table of requests is complete.
func TestHandlers(t *testing.T) {
	var names []string
	for name := range (Options{}).handlers(&paths{}, &followings{}) {
		names = append(names, name)
	}
	slices.Sort(names)
	want := []string{
		wire.MethodCollect, wire.MethodFollow, wire.MethodFollowed, wire.MethodHealth, wire.MethodJudge, wire.MethodNames,
		wire.MethodOrphans, wire.MethodPod, wire.MethodProbe,
		wire.MethodProgram, wire.MethodUndo,
	}
	if !slices.Equal(names, want) {
		t.Errorf("requests %v, want %v", names, want)
	}
}
