// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ktesting "k8s.io/client-go/testing"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// The end of the run closes helpers that were not closed.
func TestCloseEndsHelpers(t *testing.T) {
	w := newFakeCluster(t, nil)
	s, err := w.l.Open(t.Context(), "node1")
	if err != nil {
		t.Fatal(err)
	}
	w.l.Close()
	if left := w.left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, _, err := s.Collect(t.Context(), nil, nil); err == nil {
		t.Error("a helper outlives the run")
	}
	if _, err := w.l.Open(t.Context(), "node1"); !errors.Is(err, context.Canceled) {
		t.Errorf("a node is opened after the end of the run: %v", err)
	}
}

func TestKeep(t *testing.T) {
	w := newFakeCluster(t, func(o *Options) { o.Keep = true })
	s, err := w.l.Open(t.Context(), "node1")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if left := w.left(); !slices.Equal(left, []string{podName}) {
		t.Errorf("left: %v", left)
	}
	want := []string{
		"the helper pod tools/svcproxy-abcde stays because of --keep; delete it with: kubectl delete pod -n tools " +
			"svcproxy-abcde",
	}
	if !slices.Equal(w.noted, want) {
		t.Errorf("noted %q", w.noted)
	}
}

// A deletion is tried again while the API server restarts; the error of a failed one contains the command for it.
func TestCloseCannotDelete(t *testing.T) {
	status := func(code int32, reason metav1.StatusReason) error {
		return &apierrors.StatusError{
			ErrStatus: metav1.Status{Status: "Failure", Code: code, Reason: reason, Message: "the server is shutting down"},
		}
	}
	for name, c := range map[string]struct {
		errs []error
		want string
		left int
	}{
		"restarting": {
			errs: []error{
				errors.New("connection refused"), status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable),
			},
		},
		"gone already": {
			errs: []error{apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, podName)}, left: 1,
		},
		"another pod by now": {
			errs: []error{
				apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, podName,
					errors.New("the UID in the precondition does not match")),
			},
			left: 1,
		},
		"not allowed": {
			errs: []error{
				apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, podName,
					errors.New(`User "jane" cannot delete resource "pods" in API group "" in the namespace "tools"`)),
			},
			want: "could not delete the helper pod tools/svcproxy-abcde (cannot delete pods in tools as user jane: " +
				"deploy/rbac.yaml grants it); delete it with: kubectl delete pod -n tools svcproxy-abcde",
			left: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeCluster(t, nil)
			w.react("delete", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
				if len(c.errs) == 0 {
					return false, nil, nil
				}
				err := c.errs[0]
				c.errs = c.errs[1:]
				return true, nil, err
			})
			s, err := w.l.Open(t.Context(), "node1")
			if err != nil {
				t.Fatal(err)
			}
			expect(t, s.Close(), c.want)
			if left := w.left(); len(left) != c.left {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// The connection breaks during an answer: an incomplete answer is an error.
func TestCollectFails(t *testing.T) {
	noisy := func(_ context.Context, _ json.RawMessage, a *wire.Answer) error {
		noise := make([]byte, 1<<20)
		for i := range noise {
			noise[i] = byte(i*i>>9) ^ byte(i*7>>3)
		}
		return errors.Join(a.File(wire.File{Name: "small", Data: []byte("x")}),
			a.File(wire.File{Name: "large", Data: noise}))
	}
	half := func(then func(s streams) error) streamer {
		return func(ctx context.Context, _ *corev1.Pod, _ []string, s streams) error {
			limited := &cutter{w: s.stdout, left: 200 << 10}
			server, err := wire.NewServer(s.stdin, limited, "v1.2.3")
			if err != nil {
				return err
			}
			err = server.Serve(ctx, map[string]wire.Handler{wire.MethodCollect: noisy})
			if !errors.Is(err, errCut) {
				return fmt.Errorf("the answer was not cut: %w", err)
			}
			return then(s)
		}
	}
	for name, c := range map[string]struct {
		attach streamer
		status corev1.PodStatus // what the API then says of the pod
		want   []string
	}{
		"the stream breaks in a file": {
			attach: half(func(streams) error { return errors.New("websocket: close 1006") }),
			status: statusRunning,
			want: []string{
				"cannot read node node1: the helper's answer ended after 2 files and ",
				", and is not used: websocket: close 1006",
			},
		},
		"the stream breaks, and the helper has left in order": {
			attach: half(func(streams) error { return errors.New("websocket: close 1006") }),
			status: terminated(0, "Completed", ""),
			want: []string{
				"cannot read node node1: the helper's answer ended after 2 files and ",
				", and is not used: websocket: close 1006",
			},
		},
		"the helper ends in a file": {
			attach: half(func(s streams) error {
				_, err := io.WriteString(s.stderr, "panic: out of range\n\tgoroutine 1\n")
				return err
			}),
			status: terminated(2, "Error", ""),
			want: []string{
				"cannot read node node1: the helper's answer ended after 2 files and ",
				", and is not used: unexpected EOF; its last output: panic: out of range goroutine 1; the cluster " +
					"reports about the helper: it ended with exit code 2: Error",
			},
		},
		"the helper runs out of memory": {
			attach: half(func(streams) error { return nil }),
			status: terminated(137, "OOMKilled", ""),
			want: []string{
				"; the cluster reports about the helper: it ended with exit code 137: OOMKilled; it exceeded its memory limit " +
					"of 1Gi",
			},
		},
		"the helper cannot": {
			attach: helper(map[string]wire.Handler{
				wire.MethodCollect: func(context.Context, json.RawMessage, *wire.Answer) error { return errors.New("not root") },
			}),
			want: []string{"cannot read node node1: not root"},
		},
		"the helper does not know how": {
			attach: helper(nil),
			want:   []string{`cannot read node node1: this helper does not know the request "collect"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeCluster(t, nil)
			w.attach = c.attach
			s, err := w.l.Open(t.Context(), "node1")
			if err != nil {
				t.Fatal(err)
			}
			w.react("get", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
				return true, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: podName, UID: "uid-1"}, Status: c.status}, nil
			})
			data, unread, err := s.Collect(t.Context(), nil, nil)
			if err == nil || data != nil || unread != nil {
				t.Fatalf("got %d files, %v", len(data), err)
			}
			text := err.Error()
			if !strings.HasPrefix(text, c.want[0]) && len(c.want) > 1 || !strings.HasSuffix(text, c.want[len(c.want)-1]) {
				t.Errorf("got\n  %s\nwant\n  %s", text, strings.Join(c.want, "…"))
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What is undone is said also where not all of it could be.
func TestUndoOfAPart(t *testing.T) {
	w := newFakeCluster(t, nil)
	w.attach = helper(map[string]wire.Handler{
		wire.MethodUndo: func(_ context.Context, _ json.RawMessage, a *wire.Answer) error {
			return errors.Join(errors.New("the record /x of the journal cannot be read"), a.File(wire.File{
				Name: wire.ProgramFile, Data: []byte(`[{"services":["shop/web"],"mode":"iptables","left":["table ip nat stays"]}]`),
			}))
		},
	})
	s, err := w.l.Open(t.Context(), "node1")
	if err != nil {
		t.Fatal(err)
	}
	undone, err := s.Undo(t.Context(), wire.UndoAll)
	if err == nil || !strings.Contains(err.Error(), "the record /x of the journal cannot be read") {
		t.Errorf("the error: %v", err)
	}
	if len(undone) != 1 || !slices.Equal(undone[0].Left, []string{"table ip nat stays"}) {
		t.Errorf("undone: %+v", undone)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// cutter is a stream that breaks.
type cutter struct {
	w    io.Writer
	left int
}

var errCut = errors.New("cut")

func (c *cutter) Write(p []byte) (int, error) {
	if len(p) > c.left {
		n, err := c.w.Write(p[:c.left])
		c.left = 0
		return n, errors.Join(errCut, err)
	}
	c.left -= len(p)
	return c.w.Write(p)
}

// Reading from a helper that sends nothing for the timeout fails.
func TestCollectSilence(t *testing.T) {
	w := newFakeCluster(t, nil)
	silent := func(ctx context.Context, _ json.RawMessage, _ *wire.Answer) error {
		<-ctx.Done()
		return ctx.Err()
	}
	w.attach = helper(map[string]wire.Handler{wire.MethodCollect: silent})
	s, err := w.l.Open(t.Context(), "node1")
	if err != nil {
		t.Fatal(err)
	}
	s.conn.idle.limit = 20 * time.Millisecond
	s.why = nil
	_, _, err = s.Collect(t.Context(), nil, nil)
	expect(t, err, "cannot read node node1: the helper has not answered for 20ms; try a longer --timeout")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.Collect(ctx, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupt gives %v", err)
	}
}

// Local serves within this process, and closes in order.
func TestLocal(t *testing.T) {
	ended := make(chan struct{})
	serve := func(ctx context.Context, in io.Reader, out io.Writer) error {
		defer close(ended)
		return goodHelper(ctx, nil, nil, streams{stdin: in, stdout: out})
	}
	s, err := Local(t.Context(), "here", Options{Build: "v1.2.3"}, serve)
	if err != nil {
		t.Fatal(err)
	}
	data, unread, err := s.Collect(t.Context(), nil, nil)
	if err != nil || len(data) != 1 || len(unread) != 1 {
		t.Errorf("%d files, %d unread, %v", len(data), len(unread), err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	<-ended

	_, err = Local(t.Context(), "here", Options{}, func(context.Context, io.Reader, io.Writer) error {
		return errors.New("not root")
	})
	expect(t, err, "it did not answer: not root")
	_, err = Local(t.Context(), "here", Options{}, nil)
	expect(t, err, "this program cannot inspect the machine it runs on")
}
