// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"context"
	"net"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// sock_diag tells of a listener what /proc does not: the limit of its queue, and whether it takes IPv4, too.
func TestDiagnosed(t *testing.T) {
	listen := func(network string, v6only int) net.Listener {
		c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
			var err error
			if e := raw.Control(func(fd uintptr) {
				if v6only >= 0 {
					err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, v6only)
				}
			}); e != nil {
				return e
			}
			return err
		}}
		l, err := c.Listen(context.Background(), network, ":0")
		if err != nil {
			t.Skipf("%s cannot be listened at: %v", network, err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	list, err := Diagnosed()
	if err != nil {
		t.Skipf("this kernel has no sock_diag: %v", err)
	}
	_ = list
	four, both, six := listen("tcp4", -1), listen("tcp6", 0), listen("tcp6", 1)
	if list, err = Diagnosed(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		l      net.Listener
		six    bool
		v6only bool
	}{{four, false, false}, {both, true, false}, {six, true, true}} {
		port := uint16(c.l.Addr().(*net.TCPAddr).Port)
		i := slices.IndexFunc(list, func(d Diag) bool { return d.Protocol == "TCP" && d.Local.Port() == port })
		if i < 0 {
			t.Fatalf("port %d is not in the list", port)
		}
		d := list[i]
		if d.Local.Addr().Is6() != c.six || d.V6Only != c.v6only || d.Send <= 0 || d.Inode == "0" {
			t.Errorf("port %d: %+v", port, d)
		}
	}
}

// A message of the kernel that is cut off is none.
func TestParseDiag(t *testing.T) {
	for n := range messageSize {
		if _, ok := parseDiag(make([]byte, n)); ok {
			t.Errorf("%d bytes are a socket", n)
		}
	}
	if _, ok := parseDiag(append(make([]byte, messageSize), 3, 0, 1, 0, 9, 9, 9, 9)); !ok {
		t.Error("an attribute with a length that it cannot have makes the socket none")
	}
}
