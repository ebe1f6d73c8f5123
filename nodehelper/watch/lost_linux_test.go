// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Where the kernel discards notifications that are received too late (ENOBUFS), that is counted, and a pass follows
// that reads the whole node.
func TestNotificationsThatAreLost(t *testing.T) {
	testutil.NeedRoot(t, "nft", "nsenter")
	namespace := testutil.NewNamespace(t)
	thread := testutil.NewThread(t, namespace.Path)
	c := capture(t, "nftables", "node1")
	a := c.agent(t)
	a.pass(t.Context(), reasonStart)
	select {
	case <-a.woken:
	default:
	}
	reads := 0
	read := a.Read
	a.Read = func(ctx context.Context) (*snapshot.Node, error) { reads++; return read(ctx) }

	ctx, cancel := context.WithCancel(t.Context())
	works, first, written, lost := make(chan bool, 1), make(chan bool), make(chan bool), make(chan bool)
	var once, end sync.Once
	done := make(chan bool)
	go func() {
		defer close(done)
		thread.Do(func() {
			listen(ctx, func(w bool) {
				a.announces(w)
				if w {
					works <- true
				}
			}, func(discarded bool) {
				a.heard(discarded)
				once.Do(func() { close(first); <-written }) // too late for what comes meanwhile
				if discarded {
					end.Do(func() { close(lost) })
				}
			}, func(err error) { t.Errorf("it begins anew: %v", err) })
		})
	}()
	defer func() { cancel(); <-done }()
	<-works
	namespace.Run(t, "nft", "add table ip t; add chain ip t c")
	<-first
	testutil.NewThread(t, namespace.Path).Do(func() {
		conn, err := netlink.Dial()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		for i := range 3000 { // more than announceBuffer of notifications
			if err := conn.Commit(netlink.Request{
				Subsystem: unix.NFNL_SUBSYS_NFTABLES, Type: unix.NFT_MSG_NEWTABLE, Family: unix.NFPROTO_IPV4,
				Flags:      unix.NLM_F_CREATE,
				Attributes: []netlink.Attribute{netlink.String(unix.NFTA_TABLE_NAME, fmt.Sprintf("t%d", i))},
			}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	close(written)
	select {
	case <-lost:
	case <-ctx.Done():
	}
	if got := exposed(t, a.Handler())[lostMetric]; got == "0" {
		t.Error("what was lost is not counted")
	}
	if heard, works := a.announced.all(); heard.gap.IsZero() || !works {
		t.Errorf("the gap is at %v; notifications are received: %t", heard.gap, works)
	}
	reason, err := a.await(ctx)
	if err != nil || reason != reasonKernel {
		t.Fatalf("the next pass begins for %q: %v", reason, err)
	}
	a.pass(ctx, reason)
	if reads != 1 || exposed(t, a.Handler())[judgedMetric+`{reason="kernel"}`] != "1" {
		t.Errorf("the node was read %d times", reads)
	}
}
