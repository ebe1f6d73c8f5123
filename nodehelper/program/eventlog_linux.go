// SPDX-License-Identifier: Apache-2.0

package program

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// eventLog writes lines in a goroutine of its own, as nobody may read them: connections do not wait for that. What does
// not fit in is lost, and counted.
type eventLog struct {
	log   *slog.Logger
	lines chan line
	lost  atomic.Int64
	over  chan struct{}
	ended chan struct{}
}

type line struct {
	what string
	args []any
}

const (
	linesKept = 10_000
	lastLines = time.Second // for what is not written yet at the end
)

func newEventLog(log *slog.Logger) *eventLog {
	l := &eventLog{
		log: log, lines: make(chan line, linesKept), over: make(chan struct{}), ended: make(chan struct{}),
	}
	go l.run()
	return l
}

func (l *eventLog) write(what string, args []any) {
	select {
	case l.lines <- line{what, args}:
	default:
		l.lost.Add(1)
	}
}

func (l *eventLog) run() {
	defer close(l.ended)
	for {
		select {
		case x := <-l.lines:
			l.print(x)
		case <-l.over:
			if len(l.lines) == 0 {
				return
			}
		}
	}
}

func (l *eventLog) print(x line) {
	l.log.Info(x.what, x.args...)
	if n := l.lost.Swap(0); n > 0 {
		l.log.Warn("lines were lost, as nobody read them in time", "lines", n)
	}
}

// end writes what is left.
func (l *eventLog) end() {
	close(l.over)
	select {
	case <-l.ended:
	case <-time.After(lastLines):
	}
}
