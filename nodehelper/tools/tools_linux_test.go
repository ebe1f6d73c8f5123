// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"context"
	"io"
	"strings"
	"testing"
)

// A program that fails, hangs or prints too much is no answer.
func TestRun(t *testing.T) {
	_, _, err := Run(t.Context(), "/", "/bin/sh", nil, "-c", "echo half; echo 'no good' >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "sh: exit status 3: no good") {
		t.Errorf("a failure: %v", err)
	}
	if _, _, err := Run(t.Context(), "/", "/does/not/exist", nil); err == nil {
		t.Error("a program that there is not ran")
	}
	if out, _, err := Run(t.Context(), "/", "/bin/cat", strings.NewReader("in")); string(out) != "in" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Run(ctx, "/", "/bin/sh", nil, "-c", "sleep 60"); err == nil {
		t.Error("an ended context did not end the program")
	}
	b := &bounded{limit: 3}
	if _, err := io.WriteString(b, "abcd"); err == nil {
		t.Error("too much was taken")
	}
	// As exec copies: a buffer that is embedded would be asked to read by itself, without any limit.
	if _, err := io.Copy(&bounded{limit: 3}, io.LimitReader(neverEnding{}, 100)); err == nil {
		t.Error("too much was copied")
	}
	b = &bounded{limit: 3, drop: true}
	if n, err := io.WriteString(b, "abcd"); n != 4 || err != nil || b.buf.String() != "abc" {
		t.Errorf("%d, %v, %q", n, err, b.buf.String())
	}
}

type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) { return len(p), nil }
