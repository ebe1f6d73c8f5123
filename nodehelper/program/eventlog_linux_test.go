// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// stuck is a writer whose reader takes nothing until free is closed.
type stuck struct {
	free chan struct{}
	mu   sync.Mutex
	got  bytes.Buffer
}

func (s *stuck) Write(b []byte) (int, error) {
	<-s.free
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.Write(b)
}

// Connections do not wait for a log that nobody reads; what is lost is said once somebody does.
func TestALogThatNobodyReads(t *testing.T) {
	out := &stuck{free: make(chan struct{})}
	l := newEventLog(out)
	const events = linesKept + 100
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := range events {
			fmt.Fprintf(l, "msg=closed number=%d\n", i)
		}
	}()
	select {
	case <-written:
	case <-time.After(20 * time.Second):
		t.Fatal("a connection waits for its line")
	}
	close(out.free)
	l.end()
	<-l.ended
	lines := strings.Count(out.got.String(), "msg=closed")
	if lost := events - lines; lost < 90 || !strings.Contains(out.got.String(), fmt.Sprintf("%d lines were lost", lost)) {
		t.Errorf("%d of %d lines are written, and of the others is said:\n%s", lines, events,
			out.got.String()[max(0, out.got.Len()-200):])
	}
}
