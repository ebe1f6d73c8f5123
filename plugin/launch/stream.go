// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// streams are the standard streams of a helper.
type streams struct {
	stdin          io.Reader
	stdout, stderr io.Writer
}

// streamer connects the streams to a pod's container, or with a command to that command, until it ends.
type streamer func(ctx context.Context, pod *corev1.Pod, command []string, s streams) error

// remote streams through the API server.
type remote struct {
	config *rest.Config
	client rest.Interface
}

// stream speaks WebSocket, and SPDY where something between here and the kubelet does not (servers before 1.30, some
// proxies).
func (r remote) stream(ctx context.Context, pod *corev1.Pod, command []string, s streams) error {
	req := r.client.Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name)
	if command == nil {
		req.SubResource("attach").VersionedParams(&corev1.PodAttachOptions{
			Container: containerName, Stdin: true, Stdout: true, Stderr: true,
		}, scheme.ParameterCodec)
	} else {
		req.SubResource("exec").VersionedParams(&corev1.PodExecOptions{
			Container: containerName, Command: command, Stdin: true, Stdout: true, Stderr: true,
		}, scheme.ParameterCodec)
	}
	spdy, err := remotecommand.NewSPDYExecutor(r.config, "POST", req.URL())
	if err != nil {
		return err
	}
	ws, err := remotecommand.NewWebSocketExecutor(r.config, "GET", req.URL().String())
	if err != nil {
		return err
	}
	executor, err := remotecommand.NewFallbackExecutor(ws, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return err
	}
	options := remotecommand.StreamOptions{Stdin: s.stdin, Stdout: s.stdout, Stderr: s.stderr}
	return executor.StreamWithContext(quiet(ctx), options)
}

// quiet keeps client-go from logging an error for each stream that breaks and each request that is called off: what
// goes wrong is reported by this package. With -v 4 and above everything is to be seen.
func quiet(ctx context.Context) context.Context {
	if klog.V(4).Enabled() {
		return ctx
	}
	return klog.NewContext(ctx, logr.Discard())
}

// Serve is the node's side, run within this process.
type Serve func(ctx context.Context, in io.Reader, out io.Writer) error

func (serve Serve) stream(ctx context.Context, s streams) error {
	return serve(ctx, s.stdin, s.stdout)
}

// conn is a connection to a helper that has said hello.
type conn struct {
	client *wire.Client
	stdin  *io.PipeWriter
	idle   *idle
	stderr *tail
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // of the stream, once it has ended
}

// connect runs stream and exchanges hellos with the helper at its other end, for which it waits no longer than hello;
// silence is how long it waits for anything after that. Without an error the connection outlives ctx: a run that is
// interrupted still ends its helpers in order.
func connect(
	ctx context.Context, stream func(context.Context, streams) error, build string, hello, silence time.Duration,
) (*conn, error) {
	streamCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	c := &conn{stdin: stdin, stderr: &tail{}, idle: &idle{limit: hello}, cancel: cancel, ended: make(chan struct{})}
	go func() {
		c.err = stream(streamCtx, streams{stdin: in, stdout: c.idle.watch(out), stderr: c.stderr})
		// Whoever waits at the other end of a pipe learns why.
		if c.err == nil {
			out.Close()
			in.CloseWithError(errors.New("the helper has ended"))
		} else {
			out.CloseWithError(c.err)
			in.CloseWithError(c.err)
		}
		close(c.ended)
	}()
	// What reads from the helper waits for a pipe, which does not know of contexts.
	silent := make(chan struct{})
	heard := c.idle.start(func() { close(silent); cancel(); out.CloseWithError(context.DeadlineExceeded) })
	var err error
	c.client, err = wire.NewClient(stdout, stdin, build, wire.DefaultLimits)
	heard()
	if err != nil {
		stdout.Close()
		c.close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err := c.silence(silent); err != nil {
			return nil, err
		}
		return nil, c.explain(err)
	}
	stop()
	c.idle.allow(silence)
	return c, nil
}

// call asks the helper for one thing. It gives up when the context ends, or when the helper is silent for too long.
func (c *conn) call(ctx context.Context, method string, params any, sink wire.Sink) error {
	silent := make(chan struct{})
	defer c.idle.start(func() { close(silent); c.cancel() })()
	defer context.AfterFunc(ctx, c.cancel)()
	err := c.client.Call(method, params, sink)
	if err == nil {
		return nil
	}
	if err := c.silence(silent); err != nil {
		return err
	}
	if cause, ok := errors.AsType[*deadlineError](context.Cause(ctx)); ok {
		return cause
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return c.explain(err)
}

// silence is the error of a helper that has been silent for too long, where that has happened.
func (c *conn) silence(silent <-chan struct{}) error {
	select {
	case <-silent:
		return &silentError{c.idle.limit}
	default:
		return nil
	}
}

// silentError says that a helper said nothing for too long.
type silentError struct{ limit time.Duration }

func (e *silentError) Error() string {
	return fmt.Sprintf("the helper has not answered for %v; try a longer --timeout", e.limit)
}

// deadlineError says that a call took too long.
type deadlineError struct{ after time.Duration }

func (e *deadlineError) Error() string {
	return fmt.Sprintf("the helper's answer did not end within %v; try a longer --timeout", e.after)
}

// deadline bounds a call by most, or by --timeout where that is longer. What the helper sends does not extend it.
func (c *conn) deadline(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	most = max(most, c.idle.limit)
	return context.WithTimeoutCause(ctx, most, &deadlineError{most})
}

// explain adds the end of the helper's standard error to an error of the stream.
func (c *conn) explain(err error) error {
	if _, remote := errors.AsType[*wire.RemoteError](err); remote {
		return err
	}
	// That text may come in after the end of the stream that they explain.
	select {
	case <-c.ended:
	case <-time.After(time.Second):
	}
	if text := c.stderr.String(); text != "" {
		return fmt.Errorf("%w; its last output: %s", err, text)
	}
	return err
}

// close ends the helper's standard input, and the stream in any case.
func (c *conn) close() {
	c.stdin.Close()
	select {
	case <-c.ended:
	case <-time.After(time.Second):
	}
	c.cancel()
	<-c.ended
}

// idle calls a function when nothing was written for too long.
type idle struct {
	limit time.Duration
	mu    sync.Mutex
	timer *time.Timer
}

// allow sets the limit of what starts from now on.
func (i *idle) allow(limit time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.limit = limit
}

func (i *idle) start(f func()) (stop func() bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.timer = time.AfterFunc(i.limit, f)
	return i.timer.Stop
}

func (i *idle) watch(w io.Writer) io.Writer {
	return writerFunc(func(p []byte) (int, error) {
		i.mu.Lock()
		// A timer that has fired or was stopped must not start again.
		if i.timer != nil && i.timer.Stop() {
			i.timer.Reset(i.limit)
		}
		i.mu.Unlock()
		return w.Write(p)
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	data []byte
}

const tailSize = 2 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	if over := len(t.data) - tailSize; over > 0 {
		t.data = append(t.data[:0], t.data[over:]...)
	}
	return len(p), nil
}

// String returns it as one line.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return safetext.Line(string(t.data), 2*tailSize)
}
