// SPDX-License-Identifier: Apache-2.0

package program

import (
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// The node's clock jumps by years while a path is programmed, and its helper is killed: the journal then has times of
// the past or of the future. The path ends after the time that was asked for, neither sooner nor later.
func TestAClockThatJumpsMovesNoEnd(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	const years = 3 * 365 * 24 * time.Hour
	for name, jump := range map[string]time.Duration{"forwards": -years, "backwards": years} {
		for _, m := range modes {
			t.Run(name+", "+m.mode+" "+m.backend, func(t *testing.T) {
				root := t.TempDir()
				prog := newProgrammer(t, root)
				if _, err := prog.Apply(t.Context(), params(web(0, "10.244.1.1:8080"), m.mode, m.backend, "a")); err != nil {
					t.Fatal(err)
				}
				next := dies(t, prog, func(*Record) {})
				// To whoever reads the journal after the jump, the time of day in it is years away.
				setExpires(t, next, time.Now().Add(jump))
				if err := next.Adopt(t.Context(), "a"); err != nil || len(next.Held()) != 1 {
					t.Fatalf("%v; held: %v", err, next.Held())
				}
				if left := time.Until(next.Held()[0].Expires); left <= 0 || left > time.Minute {
					t.Errorf("it has %v to go, and was programmed for a minute", left)
				}
				list, err := listing(next.journal.dir)
				if err != nil || len(list.Records) != 1 || time.Until(list.Records[0].Expires).Abs() > time.Minute {
					t.Errorf("the journal's listing: %+v %v", list, err)
				}
				last := dies(t, next, func(r *Record) { r.Ends = sinceStart() - 1 })
				setExpires(t, last, time.Now().Add(jump))
				if err := last.Adopt(t.Context(), "a"); err != nil || len(last.Held()) != 0 {
					t.Errorf("after its time: %v; held: %v", err, last.Held())
				}
				if got := testutil.Run(t, "", "nft", "list", "ruleset"); got != "" {
					t.Errorf("left: %s", got)
				}
			})
		}
	}
}

// A record that would last longer than any may is one of an earlier start of the system: it is over.
func TestARecordOfAnEarlierStart(t *testing.T) {
	for _, left := range []time.Duration{wire.MaxTTL + time.Hour, 1<<63 - 1 - sinceStart(), -1 << 62} {
		if at := expiry(sinceStart() + left); time.Until(at) > 0 {
			t.Errorf("with %v to go it ends at %v", left, at)
		}
	}
	if left := time.Until(expiry(sinceStart() + wire.MaxTTL)); left < wire.MaxTTL-time.Minute {
		t.Errorf("the longest time is cut to %v", left)
	}
}

// setExpires changes the time of day in the only record of a journal, and nothing else.
func setExpires(t *testing.T, prog *Programmer, to time.Time) {
	t.Helper()
	path := prog.journal.path("0123abcd")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	if fields["expires"], err = json.Marshal(to); err == nil {
		data, err = json.Marshal(fields)
	}
	if err = errors.Join(err, os.WriteFile(path, data, 0o600)); err != nil {
		t.Fatal(err)
	}
}
