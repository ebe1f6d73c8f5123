// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"context"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// timeProbe tells whether the kernel, and the iptables that writes a record, have the match time. It asks once for each
// backend.
func timeProbe(root string, b *iptables) func(*Record) bool {
	var mu sync.Mutex
	known := map[string]bool{}
	return func(r *Record) bool {
		mu.Lock()
		defer mu.Unlock()
		has, asked := known[r.Backend]
		if !asked {
			has = hasModule(root, "xt_time") && b.takesTime(r)
			known[r.Backend] = has
		}
		return has
	}
}

// probeTime bounds the question.
const probeTime = 30 * time.Second

// takesTime writes a rule with the match into a network namespace that is nobody's: a list of modules does not tell
// whether one may be loaded, and --test of iptables-restore does not ask the kernel. It is true where there can be no
// such namespace: then it is the rules themselves that are refused.
func (b *iptables) takesTime(r *Record) bool {
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	family := families[0]
	if !r.Plan.Has(family.v6) {
		family = families[1]
	}
	t, err := b.find(ctx, family.executable, r.Backend, "-restore")
	if err != nil {
		return false
	}
	probe := iptTable{name: "filter"}
	probe.chain("PROBE")
	probe.end("PROBE", time.Unix(0, 0))
	answer := make(chan bool, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and the namespace with both
		if unix.Unshare(unix.CLONE_NEWNET) != nil {
			answer <- true
			return
		}
		var text bytes.Buffer
		(&iptInput{tables: []*iptTable{&probe}}).write(&text)
		_, err := t.run(ctx, text.Bytes(), "-w", waitSeconds, "--noflush")
		answer <- err == nil
	}()
	return <-answer
}
