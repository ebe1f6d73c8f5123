// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// What lasts for a moment is between two passes, which may be minutes apart. A look is cheap, and there is one each
// second.

// lookTime is the time from one look to the next.
const lookTime = time.Second

// Moment is what a look at the node shows.
type Moment struct {
	Lock  Lock   // the xtables lock
	Proxy string // the PID of kube-proxy, or of the program that contains it; "" where there is none
}

// Lock is the state of the xtables lock, which who writes rules by the legacy iptables holds meanwhile
// (iptables/xshared.c, xtables_lock).
type Lock string

// The states of the lock. A node without the file of the lock, or whose locks cannot be read, has none of them.
const (
	LockFree   Lock = "free"
	LockHeld   Lock = "held"   // by one, and nobody waits
	LockWaited Lock = "waited" // by one, and others wait
)

// lockStates are all of them.
var lockStates = []Lock{LockFree, LockHeld, LockWaited}

// lockOf finds the lock of a file in /proc/locks (fs/locks.c, lock_get_status): "1: FLOCK ADVISORY WRITE 4711
// 00:1a:815 0 EOF", and one who waits behind "1: ->". major, minor and inode are the file's.
func lockOf(locks string, major, minor uint32, inode uint64) Lock {
	file := fmt.Sprintf("%02x:%02x:%d", major, minor, inode)
	state := LockFree
	for line := range strings.Lines(locks) {
		words := strings.Fields(line)
		waits := len(words) > 1 && words[1] == "->"
		if waits {
			words = words[1:]
		}
		const at = 5 // number, kind, ADVISORY, READ or WRITE, PID, file
		if len(words) <= at || words[1] != "FLOCK" || words[at] != file {
			continue
		}
		if waits {
			return LockWaited
		}
		state = LockHeld
	}
	return state
}

// looks has a look at the node each second until the context ends.
func (a *Agent) looks(ctx context.Context) {
	if a.Look == nil {
		return
	}
	var seen seen
	for pause(ctx, lookTime) == nil {
		seen.look(a.metrics, a.Look(), time.Now())
	}
}

// seen is what the looks so far have shown.
type seen struct {
	proxy string    // the last PID that there was
	at    time.Time // of the last look
}

// look counts what a look shows. Before there was a kube-proxy it is not missed: a node may have none on purpose.
func (s *seen) look(m *metrics, now Moment, at time.Time) {
	if now.Lock != "" {
		m.locks.WithLabelValues(string(now.Lock)).Inc()
	}
	switch {
	case now.Proxy == "" && s.proxy != "":
		m.absent.Add(at.Sub(s.at).Seconds())
	case now.Proxy != s.proxy && s.proxy != "":
		m.starts.Inc()
	}
	if s.at = at; now.Proxy != "" {
		s.proxy = now.Proxy
	}
}
