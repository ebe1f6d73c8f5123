// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// What could not be read is logged once, with the reason, and is tried again soon, then ever more rarely.
func TestFilesThatWereNotRead(t *testing.T) {
	c := capture(t, "nftables", "node1")
	a := c.agent(t)
	a.Full = 10 * time.Minute
	var said []string
	a.Log = func(line string) { said = append(said, line) }
	read := a.Read
	pass := func(broken bool) {
		t.Helper()
		a.Read = func(ctx context.Context) (*snapshot.Node, error) {
			n, err := read(ctx)
			if err != nil || !broken {
				return n, err
			}
			return n.With(snapshot.UnreadFile, snapshot.EncodeUnread(map[string]string{
				snapshot.IPSetFile: "interrupted", snapshot.ConntrackFile: "an agent does not",
			})), nil
		}
		a.pass(t.Context(), reasonKernel)
	}
	due := func() time.Duration { return time.Until(a.next).Round(time.Second) }
	within := func(d time.Duration) bool { return due() > d*8/10 && due() < d*12/10 }
	pass(false)
	if !within(a.Full) {
		t.Errorf("after a whole pass the next one is due in %v", due())
	}
	for i, want := range []time.Duration{
		30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, a.Full,
	} {
		pass(true)
		if !within(want) {
			t.Errorf("after %d without %s the next one is due in %v, want %v", i+1, snapshot.IPSetFile, due(), want)
		}
	}
	if v := exposed(t, a.Handler())[unreadMetric]; v != "1" {
		t.Errorf("%s files are said to be unread", v)
	}
	pass(false)
	if !within(a.Full) {
		t.Errorf("after a whole pass the next one is due in %v", due())
	}
	want := []string{
		fmt.Sprintf("error: not read: %s: interrupted", snapshot.IPSetFile), "it works again: files of the node",
	}
	if !slices.Equal(said, want) {
		t.Errorf("it said %q, want %q", said, want)
	}
}
