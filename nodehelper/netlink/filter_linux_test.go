// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// Of the notifications of changes with many objects, one for each change is received, and no other.
func TestOnly(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET) {
		return
	}
	changes, all, only := dial(t), dial(t), dial(t)
	if err := only.Only(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_NEWGEN); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Conn{all, only} {
		if err := c.Subscribe(unix.NFNLGRP_NFTABLES); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		table := fmt.Sprintf("t%d", i)
		if err := changes.Commit(newTable(table), newChain(table, "one"), newChain(table, "two")); err != nil {
			t.Fatal(err)
		}
	}
	received := func(c *Conn) (types []uint8) {
		t.Helper()
		for {
			datagram, err := c.Receive(100 * time.Millisecond)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return types
			}
			if err != nil {
				t.Fatal(err)
			}
			for m, err := range Messages(datagram) {
				if err != nil {
					t.Fatal(err)
				}
				types = append(types, uint8(m.Type&0xff))
			}
		}
	}
	const table, chain, generation = unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_NEWGEN
	if got, want := received(all), slices.Repeat([]uint8{table, chain, chain, generation}, 3); !slices.Equal(got, want) {
		t.Errorf("all are %v, want %v", got, want)
	}
	if got, want := received(only), slices.Repeat([]uint8{generation}, 3); !slices.Equal(got, want) {
		t.Errorf("those of changes are %v, want %v", got, want)
	}
}
