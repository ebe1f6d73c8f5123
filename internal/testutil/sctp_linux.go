// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"net"
	"net/netip"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/sctp"
)

// HoldSCTP accepts associations at an address, and holds them open until the test ends. The socket is made by the
// thread.
func HoldSCTP(t testing.TB, thread Thread, at netip.AddrPort) {
	t.Helper()
	var l net.Listener
	var err error
	thread.Do(func() { l, err = sctp.Listen(at) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		var held []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			held = append(held, c)
		}
		for _, c := range held {
			c.Close()
		}
	}()
}
