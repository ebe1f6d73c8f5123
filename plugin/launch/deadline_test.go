// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// slowly serves a helper that sends something every half second, and never ends.
func slowly(send func(a *wire.Answer) error) func(ctx context.Context, s streams) error {
	return func(ctx context.Context, s streams) error {
		server, err := wire.NewServer(s.stdin, s.stdout, "v1")
		if err != nil {
			return err
		}
		return server.Serve(ctx, map[string]wire.Handler{
			wire.MethodCollect: func(ctx context.Context, _ json.RawMessage, a *wire.Answer) error {
				for ctx.Err() == nil {
					if err := send(a); err != nil {
						return err
					}
					time.Sleep(time.Second / 2)
				}
				return ctx.Err()
			},
		})
	}
}

// A helper that says something now and then is not silent; its answer has to end all the same.
func TestProgressDoesNotExtendACall(t *testing.T) {
	for _, tt := range []struct {
		name    string
		silence time.Duration
		want    time.Duration
	}{
		{"the longest time for reading a node", 10 * time.Second, bounds.Call},
		{"a longer --timeout", 5 * time.Minute, 5 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stream := slowly(func(a *wire.Answer) error { return a.Progress("reading") })
				c, err := connect(t.Context(), stream, "v1", tt.silence, tt.silence)
				if err != nil {
					t.Fatal(err)
				}
				defer c.close()
				h := &Helper{node: "n", conn: c}
				start := time.Now()
				_, _, err = h.Collect(t.Context(), nil, nil)
				if took := time.Since(start); took < tt.want || took > tt.want+5*time.Second {
					t.Errorf("it ended after %v, want %v", took, tt.want)
				}
				if err == nil || !strings.Contains(err.Error(), "the helper's answer did not end within "+tt.want.String()) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// An answer that may not be large yet ends with its deadline, and not later.
func TestLargeAnswerWaitsNoLongerThanItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		noise := make([]byte, 1<<20)
		x := uint64(88172645463325252)
		for i := range noise {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			noise[i] = byte(x)
		}
		n := 0
		c, err := connect(t.Context(), slowly(func(a *wire.Answer) error {
			n++
			return a.File(wire.File{Name: "f" + time.Duration(n).String(), Data: noise})
		}), "v1", time.Minute, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		h := &Helper{node: "n", conn: c}
		asked := false
		start := time.Now()
		_, _, err = h.Collect(t.Context(), nil, func(ctx context.Context) error {
			asked = true
			<-ctx.Done()
			return errors.New("no memory")
		})
		if took := time.Since(start); !asked || err == nil || took > bounds.Call+5*time.Second {
			t.Errorf("asked: %t, after %v: %v", asked, took, err)
		}
	})
}

// A helper that never says hello is given up after the same silence as one that does not answer, also where the context
// has no end.
func TestSilentHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, err := connect(t.Context(), func(ctx context.Context, _ streams) error {
			<-ctx.Done()
			return ctx.Err()
		}, "v1", 20*time.Second, time.Minute)
		if took := time.Since(start); took < 20*time.Second || took > 25*time.Second {
			t.Errorf("it ended after %v", took)
		}
		if err == nil || !strings.Contains(err.Error(), "the helper has not answered for 20s") {
			t.Errorf("got %v", err)
		}
	})
}
