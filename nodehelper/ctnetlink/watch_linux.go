// SPDX-License-Identifier: Apache-2.0

package ctnetlink

import (
	"errors"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
)

// groupNew is the group of notifications about new connections (NFNLGRP_CONNTRACK_NEW in
// uapi/linux/netfilter/nfnetlink_compat.h), messageNew their type (IPCTNL_MSG_CT_NEW).
const (
	groupNew   = 1
	messageNew = 0
)

const (
	// watched is how many connections are remembered at most: those of others are among them.
	watched = 100_000
	// watchBuffer is how much the kernel keeps until it is received, in bytes. What exceeds that is lost.
	watchBuffer = 4 << 20
	// watchStep is after which time it is looked whether the Watcher was closed.
	watchStep = 20 * time.Millisecond
)

// Watcher remembers where new connections are sent. Unlike [Find] it knows those of which the entry is gone again, as
// that of a refused connection is (nf_conntrack_tcp_packet in net/netfilter/nf_conntrack_proto_tcp.c).
type Watcher struct {
	mu    sync.Mutex
	found map[tuple]netip.AddrPort
	quiet time.Time // when nothing more was to be received
	end   chan struct{}
	wg    sync.WaitGroup
}

// tuple is the original direction of a connection.
type tuple struct {
	proto    uint8
	from, to netip.AddrPort
}

// Watch begins to watch the connections of the calling thread's network namespace. Where the kernel does not tell of
// them, nothing is remembered. The caller closes the Watcher.
func Watch() *Watcher {
	w := &Watcher{found: map[tuple]netip.AddrPort{}, end: make(chan struct{})}
	conn, err := netlink.Dial()
	if err != nil {
		return w
	}
	_ = conn.SetReceiveBuffer(watchBuffer) // what is lost is not known, and no error
	if conn.Subscribe(groupNew) != nil {
		_ = conn.Close()
		return w
	}
	w.wg.Go(func() {
		defer conn.Close()
		w.receive(conn)
	})
	return w
}

// Close ends the watching.
func (w *Watcher) Close() {
	close(w.end)
	w.wg.Wait()
}

// Settle waits until what has happened so far is known, or for a moment.
func (w *Watcher) Settle() {
	begin := time.Now()
	for time.Since(begin) < 10*watchStep {
		w.mu.Lock()
		done := w.quiet.After(begin)
		w.mu.Unlock()
		if done {
			return
		}
		time.Sleep(watchStep)
	}
}

// To returns where a connection was sent; the zero AddrPort where that is not known.
func (w *Watcher) To(proto uint8, from, to netip.AddrPort) netip.AddrPort {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.found[tuple{proto, from, to}]
}

func (w *Watcher) receive(conn *netlink.Conn) {
	for {
		select {
		case <-w.end:
			return
		default:
		}
		datagram, err := conn.Receive(watchStep)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			w.mu.Lock()
			w.quiet = time.Now()
			w.mu.Unlock()
			continue
		case errors.Is(err, unix.ENOBUFS):
			continue // some are lost
		case err != nil:
			return
		}
		w.read(datagram)
	}
}

// read remembers the connections of a datagram; a message that it cannot read tells of none.
func (w *Watcher) read(datagram []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for m, err := range netlink.Messages(datagram) {
		if err != nil {
			return
		}
		if !m.Is(unix.NFNL_SUBSYS_CTNETLINK, messageNew) {
			continue
		}
		_, attributes, err := m.Attributes()
		e := entryOf(attributes)
		if err != nil || e == nil || len(w.found) >= watched {
			continue
		}
		for _, a := range attributes {
			if a.Type == attrTupleOrig {
				w.found[tupleOf(a.Value)] = e.From
			}
		}
	}
}

// tupleOf reads the original direction of a connection, as far as it is there.
func tupleOf(value []byte) (t tuple) {
	ends := endsOf(value)
	return tuple{ends.proto, ends.source, ends.destination}
}
