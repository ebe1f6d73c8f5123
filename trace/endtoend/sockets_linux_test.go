// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// socketOptions are the words by which a socket of a fault is set before it is bound.
var socketOptions = map[string]struct{ level, name, value int }{
	"v6only":    {unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1},
	"reuseaddr": {unix.SOL_SOCKET, unix.SO_REUSEADDR, 1},
	"reuseport": {unix.SOL_SOCKET, unix.SO_REUSEPORT, 1},
}

// sockets makes the sockets of a list, in its order: "ADDRESS WORD…; …", where an address of six words, as one that
// stands for IPv4 (::ffff:10.244.2.9), is of a socket of IPv6. Words are those of socketOptions, %DEVICE, and idle: its
// process accepts and reads nothing, and its queue, which is for one connection (with backlog0 for none), is filled.
func (n *topology) sockets(c *fault, list string) {
	n.t.Helper()
	idle := false
	var closers []func()
	for spec := range strings.SplitSeq(list, ";") {
		words := strings.Fields(spec)
		idle = slices.Contains(words, "idle") || idle
		closers = append(closers, n.socket(c, netip.MustParseAddr(words[0]), words[1:]))
	}
	n.close = sync.OnceFunc(func() {
		for _, end := range closers {
			end()
		}
	})
	n.t.Cleanup(n.close)
	if idle && !c.udp {
		n.fill()
	}
}

// socket makes one socket of a list, and returns what closes it.
func (n *topology) socket(c *fault, at netip.Addr, words []string) (end func()) {
	n.t.Helper()
	var fd int
	var err error
	kind, family := unix.SOCK_STREAM, unix.AF_INET
	var to unix.Sockaddr = &unix.SockaddrInet4{Port: int(endpoint.Port())}
	if c.udp {
		kind = unix.SOCK_DGRAM
	}
	if at.Is4() {
		to.(*unix.SockaddrInet4).Addr = at.As4()
	} else {
		family, to = unix.AF_INET6, &unix.SockaddrInet6{Port: int(endpoint.Port()), Addr: at.As16()}
	}
	backlog := 1
	testutil.NewThread(n.t, n.names[c.namespace()].Path).Do(func() {
		if fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0); err != nil {
			return
		}
		for _, w := range words {
			if o, ok := socketOptions[w]; ok {
				err = errors.Join(err, unix.SetsockoptInt(fd, o.level, o.name, o.value))
			}
			if dev, ok := strings.CutPrefix(w, "%"); ok {
				err = errors.Join(err, unix.BindToDevice(fd, dev))
			}
		}
		if err = errors.Join(err, unix.Bind(fd, to)); err == nil && !c.udp {
			if slices.Contains(words, "backlog0") {
				backlog = 0
			} else if !slices.Contains(words, "idle") {
				backlog = 100
			}
			err = unix.Listen(fd, backlog)
		}
	})
	if err != nil {
		n.t.Fatal(err)
	}
	if slices.Contains(words, "idle") {
		return func() { _ = unix.Close(fd) }
	}
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	if c.udp {
		packets, err := net.FilePacketConn(f)
		if err != nil {
			n.t.Fatal(err)
		}
		go echo(packets)
		return func() { packets.Close() }
	}
	l, err := net.FileListener(f)
	if err != nil {
		n.t.Fatal(err)
	}
	testutil.Serve(n.t, l, func(c net.Conn) { _, _ = io.Copy(c, c) })
	return func() { l.Close() }
}
