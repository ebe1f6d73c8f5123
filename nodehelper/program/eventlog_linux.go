// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// eventLog writes lines in a goroutine of its own: connections do not wait until they are read. What does not fit in is
// lost, and counted.
type eventLog struct {
	lines chan []byte
	lost  atomic.Int64
	ended chan struct{}
}

const (
	linesKept = 10_000
	lastLines = time.Second // for what is not written yet at the end
)

func newEventLog(to io.Writer) *eventLog {
	l := &eventLog{lines: make(chan []byte, linesKept), ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		for line := range l.lines {
			_, _ = to.Write(line)
			if n := l.lost.Swap(0); n > 0 {
				fmt.Fprintf(to, "%d lines were lost, as they were not read in time\n", n)
			}
		}
	}()
	return l
}

// Write takes a line.
func (l *eventLog) Write(line []byte) (int, error) {
	select {
	case l.lines <- bytes.Clone(line):
	default:
		l.lost.Add(1)
	}
	return len(line), nil
}

// end writes what is left. Nothing is written after that.
func (l *eventLog) end() {
	close(l.lines)
	select {
	case <-l.ended:
	case <-time.After(lastLines):
	}
}
