// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
)

// A socket that receives nothing while the rules change is noticed; one that receives what is announced is not taken
// for it.
func TestASocketThatReceivesNothing(t *testing.T) {
	testutil.NeedRoot(t, "nft", "nsenter")
	for _, tt := range []struct {
		name       string
		subscribes bool
		want       error
	}{
		{"it has subscribed", true, nil},
		{"it has not", false, errDeaf},
	} {
		t.Run(tt.name, func(t *testing.T) {
			namespace := testutil.NewNamespace(t)
			var conns [2]*netlink.Conn
			var failed [2]error
			testutil.NewThread(t, namespace.Path).Do(func() {
				for i := range conns {
					conns[i], failed[i] = netlink.Dial()
				}
			})
			if err := errors.Join(failed[:]...); err != nil {
				t.Fatal(err)
			}
			for _, c := range conns {
				t.Cleanup(func() { c.Close() })
			}
			if tt.subscribes {
				if err := conns[0].Subscribe(unix.NFNLGRP_NFTABLES); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- hear(ctx, conns[0], conns[1], func(bool) {}) }()
			var got error
			for i, over := 0, false; !over; i++ {
				if tt.want == nil && i == 5 { // more than one that receives nothing is given
					cancel()
				}
				namespace.Run(t, "nft", fmt.Sprintf("add table ip t%d", i))
				select {
				case got = <-ended:
					over = true
				case <-time.After(2 * announceStep):
				}
			}
			if !errors.Is(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
