// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	udpIdle = 30 * time.Second // after which a client is forgotten, as by connection tracking if it got no answer
	udpMost = 10_000           // clients at once, of one frontend
	largest = 1 << 16          // no datagram is longer
)

// relay forwards the datagrams of one frontend, and the answers to them: a UDP socket does not receive the original
// destination of its packets. Answers are sent from the address that the request was sent to: only then connection
// tracking translates them back.
type relay struct {
	proxy *proxy
	front *frontend
	at    netip.AddrPort
	conn  *net.UDPConn

	mu      sync.Mutex
	closed  bool
	clients map[netip.AddrPort]*client
}

// client is a client of the frontend, and the connection to its endpoint.
type client struct {
	up   *net.UDPConn
	info []byte // the control message of answers
}

func (x *proxy) newRelay(f *frontend, at netip.AddrPort) (*relay, error) {
	network, level, name := "udp4", unix.SOL_IP, unix.IP_PKTINFO
	if at.Addr().Is6() {
		network, level, name = "udp6", unix.SOL_IPV6, unix.IPV6_RECVPKTINFO
	}
	c := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, name, 1) }), err)
	}}
	conn, err := c.ListenPacket(x.over, network, ":0")
	if err != nil {
		return nil, err
	}
	//nolint:forcetypeassert // of that network
	r := &relay{proxy: x, front: f, at: at, conn: conn.(*net.UDPConn), clients: map[netip.AddrPort]*client{}}
	x.active.Go(r.run)
	return r, nil
}

func (r *relay) run() {
	buf, oob := make([]byte, largest), make([]byte, unix.CmsgSpace(unix.SizeofInet6Pktinfo))
	for {
		n, nOOB, _, from, err := r.conn.ReadMsgUDPAddrPort(buf, oob)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error of a client that is gone
		}
		if c := r.client(netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), answerFrom(oob[:nOOB])); c != nil {
			_ = c.up.SetReadDeadline(time.Now().Add(udpIdle))
			_, _ = c.up.Write(buf[:n]) // clients of UDP repeat what is lost
		}
	}
}

// answerFrom makes the control message that has an answer sent from where its request was sent to, of the one of the
// request: without the interface, which the kernel is to choose.
func answerFrom(request []byte) []byte {
	oob := bytes.Clone(request)
	switch len(oob) - unix.CmsgLen(0) {
	case unix.SizeofInet4Pktinfo: // struct in_pktinfo begins with it
		clear(oob[unix.CmsgLen(0):][:4])
	case unix.SizeofInet6Pktinfo: // struct in6_pktinfo ends with it
		clear(oob[unix.CmsgLen(16):])
	}
	return oob
}

// client returns the client with an address, a new one if it is not known yet; nil: its datagrams are dropped.
func (r *relay) client(from netip.AddrPort, info []byte) *client {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.clients[from]; c != nil {
		c.info = info
		return c
	}
	if r.closed || len(r.clients) >= udpMost || !redirected(from, r.at) {
		return nil
	}
	e, err := r.proxy.choose(r.front, from.Addr())
	if err != nil {
		r.proxy.log.Info("refused", "client", from, "frontend", r.at, "why", err)
		return nil
	}
	up, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(e))
	if err != nil {
		r.proxy.release(r.front, e)
		return nil
	}
	_ = up.SetReadDeadline(time.Now().Add(udpIdle))
	c := &client{up: up, info: info}
	r.clients[from] = c
	r.proxy.log.Info("begun", "client", from, "frontend", r.at, "endpoint", e)
	r.proxy.active.Go(func() { r.answers(from, e, c) })
	return c
}

// answers passes on what an endpoint sends, until nothing has come from either side for a time.
func (r *relay) answers(from, e netip.AddrPort, c *client) {
	defer func() {
		r.mu.Lock()
		delete(r.clients, from)
		r.mu.Unlock()
		c.up.Close()
		r.proxy.release(r.front, e)
	}()
	buf := make([]byte, largest)
	for {
		n, err := c.up.Read(buf)
		if err != nil {
			return
		}
		_ = c.up.SetReadDeadline(time.Now().Add(udpIdle))
		r.mu.Lock()
		info := c.info
		r.mu.Unlock()
		if _, _, err = r.conn.WriteMsgUDPAddrPort(buf[:n], info, from); errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// close closes the relay and the connections of its clients.
func (r *relay) close() error {
	err := r.conn.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, c := range r.clients {
		err = errors.Join(err, c.up.Close())
	}
	return err
}
