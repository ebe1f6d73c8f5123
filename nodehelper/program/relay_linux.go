// SPDX-License-Identifier: Apache-2.0

package program

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// relay forwards the datagrams of one frontend, and the answers to them. Answers are sent from the address that the
// request was sent to: only then connection tracking translates them back.
type relay struct {
	proxy *proxy
	front netip.AddrPort
	conn  *net.UDPConn
	v4    *ipv4.PacketConn
	v6    *ipv6.PacketConn

	mu      sync.Mutex
	clients map[netip.AddrPort]*client
}

// client is a client of the frontend, and the connection to its endpoint.
type client struct {
	up      *net.UDPConn
	at      net.IP // the node's address that its datagrams are sent to
	release func()
}

func newRelay(x *proxy, front netip.AddrPort) (*relay, error) {
	network := "udp4"
	if front.Addr().Is6() {
		network = "udp6"
	}
	conn, err := net.ListenUDP(network, nil)
	if err != nil {
		return nil, fmt.Errorf("the proxy cannot listen: %w", err)
	}
	r := &relay{proxy: x, front: front, conn: conn, clients: map[netip.AddrPort]*client{}}
	if front.Addr().Is6() {
		r.v6 = ipv6.NewPacketConn(conn)
		err = r.v6.SetControlMessage(ipv6.FlagDst, true)
	} else {
		r.v4 = ipv4.NewPacketConn(conn)
		err = r.v4.SetControlMessage(ipv4.FlagDst, true)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go r.run()
	return r, nil
}

//nolint:forcetypeassert // of a UDPConn
func (r *relay) port() uint16 { return r.conn.LocalAddr().(*net.UDPAddr).AddrPort().Port() }

// largest is the longest datagram that there is.
const largest = 1 << 16

func (r *relay) run() {
	buf := make([]byte, largest)
	for {
		n, from, at, err := r.read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error of a client that is gone
		}
		if c := r.client(from, at); c != nil {
			_ = c.up.SetReadDeadline(time.Now().Add(udpIdle))
			_, _ = c.up.Write(buf[:n]) // clients of UDP repeat what is lost
		}
	}
}

func (r *relay) read(buf []byte) (n int, from netip.AddrPort, at net.IP, err error) {
	var src net.Addr
	if r.v6 != nil {
		var m *ipv6.ControlMessage
		if n, m, src, err = r.v6.ReadFrom(buf); m != nil {
			at = m.Dst
		}
	} else {
		var m *ipv4.ControlMessage
		if n, m, src, err = r.v4.ReadFrom(buf); m != nil {
			at = m.Dst
		}
	}
	if a, ok := src.(*net.UDPAddr); ok {
		from = a.AddrPort()
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	}
	return n, from, at, err
}

// client returns the client with an address, a new one if it is not known yet; nil: its datagrams are dropped.
func (r *relay) client(from netip.AddrPort, at net.IP) *client {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.clients[from]; c != nil {
		c.at = at
		return c
	}
	front := r.proxy.table.Load().fronts[socketKey{r.front, "UDP"}]
	if front == nil || len(r.clients) >= udpMost || !redirected(from, r.front) {
		return nil
	}
	e, release, err := front.choose(r.proxy.scheduler, from.Addr(), r.proxy.own.has, nil)
	if err != nil {
		r.proxy.logEvent("refused", "client", from, "frontend", r.front, "why", err)
		return nil
	}
	up, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(e))
	if err != nil {
		release()
		return nil
	}
	c := &client{up: up, at: at, release: release}
	r.clients[from] = c
	r.proxy.logEvent("begun", "client", from, "frontend", r.front, "endpoint", e)
	go r.answers(from, c)
	return c
}

// answers passes on what an endpoint sends, until nothing has come from either side for a time.
func (r *relay) answers(from netip.AddrPort, c *client) {
	defer func() {
		r.mu.Lock()
		delete(r.clients, from)
		r.mu.Unlock()
		c.up.Close()
		c.release()
	}()
	to := net.UDPAddrFromAddrPort(from)
	_ = c.up.SetReadDeadline(time.Now().Add(udpIdle))
	buf := make([]byte, largest)
	for {
		n, err := c.up.Read(buf)
		if err != nil {
			return
		}
		_ = c.up.SetReadDeadline(time.Now().Add(udpIdle))
		r.mu.Lock()
		at := c.at
		r.mu.Unlock()
		if r.v6 != nil {
			_, err = r.v6.WriteTo(buf[:n], &ipv6.ControlMessage{Src: at}, to)
		} else {
			_, err = r.v4.WriteTo(buf[:n], &ipv4.ControlMessage{Src: at}, to)
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// close closes the relay and the connections of its clients.
func (r *relay) close() error {
	err := r.conn.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.clients {
		err = errors.Join(err, c.up.Close())
	}
	return err
}
