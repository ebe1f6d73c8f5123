// SPDX-License-Identifier: Apache-2.0

//go:build unix

package testutil

import (
	"testing"
	"time"
)

// failures counts what would have failed a test.
type failures struct {
	testing.TB
	n int
}

func (*failures) Helper()                 {}
func (f *failures) Errorf(string, ...any) { f.n++ }

// Work is noticed, waiting for a busy machine is not.
func TestPromptly(t *testing.T) {
	busy := func() {
		sum := 0
		for before := ProcessorTime(); ProcessorTime()-before < processorLimit+100*time.Millisecond; {
			sum++
		}
		t.Log(sum, "rounds")
	}
	for name, c := range map[string]struct {
		do   func()
		want int
	}{
		"work":    {busy, 1},
		"waiting": {func() { time.Sleep(processorLimit + 100*time.Millisecond) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := failures{TB: t}
			Promptly(&f, c.do)
			if f.n != c.want {
				t.Errorf("%d failures, want %d", f.n, c.want)
			}
		})
	}
}
