// SPDX-License-Identifier: Apache-2.0

package kerneltrace

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
)

// Listener receives the events of the network namespace that it was made in.
type Listener struct{ conn *netlink.Conn }

// ReceiveBuffer is enough for the events of some packets, however many rules they traverse, in bytes.
const ReceiveBuffer = 4 << 20

// Listen begins to receive events of the calling thread's network namespace. The kernel keeps receiveBuffer bytes of
// them until they are read, and discards what exceeds that. The caller closes the Listener.
func Listen(receiveBuffer int) (*Listener, error) {
	conn, err := netlink.Dial()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(conn.SetReceiveBuffer(receiveBuffer), conn.Subscribe(unix.NFNLGRP_NFTRACE)); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("trace events of nf_tables: %w", err)
	}
	return &Listener{conn}, nil
}

// Close ends the receiving.
func (l *Listener) Close() error { return l.conn.Close() }

// longest is how long Collect waits for events at most: others may have packets traced all the time.
const longest = 300 * time.Millisecond

// buffered is how many datagrams the receive buffer, which the kernel makes twice as large as it was asked to
// (sock_setsockopt in net/core/sock.c), holds at most: each takes as much of it as the smallest piece of
// memory that the kernel allots to one (SKB_TRUESIZE in linux/skbuff.h).
const buffered = 2 * ReceiveBuffer / 512

// Collect returns the events that are received until none has come for the time of quiet, which may be 0, and for not
// much longer than a third of a second; of those that were received by then none is left out, however late this process
// comes to read them. The error is unix.ENOBUFS if events were lost.
func (l *Listener) Collect(quiet time.Duration) ([]Event, error) { return l.collect(quiet, longest) }

func (l *Listener) collect(quiet, longest time.Duration) ([]Event, error) {
	var out []Event
	end := time.Now().Add(longest)
	for late := 0; late < buffered; {
		if time.Now().After(end) {
			quiet = 0
			late++
		}
		events, err := l.Next(quiet)
		if errors.Is(err, ErrTimeout) {
			break
		}
		if err != nil {
			return out, err
		}
		out = append(out, events...)
	}
	return out, nil
}

// Discard reads what was received so far, of which some may be lost: it was not asked for.
func (l *Listener) Discard() error {
	for range buffered {
		if _, err := l.Next(0); errors.Is(err, ErrTimeout) {
			break
		} else if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return err
		}
	}
	return nil
}

// ErrTimeout says that the kernel reported nothing more.
var ErrTimeout = errors.New("the kernel reported nothing more")

// Read returns the events up to the first for which last is true, with those that came together with it. The error is
// [ErrTimeout] if none has come for the time of timeout before that.
func (l *Listener) Read(last func(*Event) bool, timeout time.Duration) ([]Event, error) {
	var out []Event
	for {
		events, err := l.Next(timeout)
		if err != nil {
			return out, err
		}
		out = append(out, events...)
		if slices.ContainsFunc(events, func(e Event) bool { return last(&e) }) {
			return out, nil
		}
	}
}

// Next returns the events that come together next. The error is [ErrTimeout] if none come for the time of timeout,
// which may be 0, and unix.ENOBUFS if events were lost.
func (l *Listener) Next(timeout time.Duration) ([]Event, error) {
	datagram, err := l.conn.Receive(timeout)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, ErrTimeout
	}
	if err != nil {
		return nil, err
	}
	return parse(datagram)
}
