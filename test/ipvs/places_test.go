// SPDX-License-Identifier: Apache-2.0

//go:build vm

package ipvs

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// place is a network namespace in which sockets can be made: a thread of its own that stays there.
type place chan func()

// placeAt begins work in a network namespace of ip netns; without name, in that of the node.
func placeAt(t *testing.T, name string) place {
	t.Helper()
	p, ready := make(place), make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if name != "" {
			f, err := os.Open("/run/netns/" + name)
			if err == nil {
				err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
				f.Close()
			}
			ready <- err
			if err != nil {
				return
			}
		} else {
			ready <- nil
		}
		for job := range p {
			job()
		}
	}()
	if err := <-ready; err != nil {
		t.Fatalf("network namespace %s: %v", name, err)
	}
	t.Cleanup(func() { close(p) })
	return p
}

func (p place) do(job func()) {
	done := make(chan bool)
	p <- func() { job(); close(done) }
	<-done
}

// endpoint is an address at which a pod listens.
type endpoint struct {
	protocol string // TCP or UDP
	address  netip.AddrPort
}

// answer has an endpoint tell everybody who it is, and whom it sees: "ENDPOINT CLIENT".
func (p place) answer(t *testing.T, e endpoint) {
	t.Helper()
	var err error
	p.do(func() {
		if e.protocol == "UDP" {
			err = answerUDP(t, e)
		} else {
			err = answerTCP(t, e)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

func answerTCP(t *testing.T, e endpoint) error {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", e.address.String())
	if err != nil {
		return err
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "%s %s", e.address, netip.MustParseAddrPort(c.RemoteAddr().String()).Addr())
			c.Close()
		}
	}()
	return nil
}

func answerUDP(t *testing.T, e endpoint) error {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(e.address))
	if err != nil {
		return err
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 16)
		for {
			_, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			if _, err := c.WriteToUDPAddrPort(fmt.Appendf(nil, "%s %s", e.address, from.Addr().Unmap()), from); err != nil {
				return
			}
		}
	}()
	return nil
}

// seen is what became of one connection: an endpoint and whom it saw, or an error.
type seen struct {
	endpoint netip.AddrPort
	client   netip.Addr
	err      error
}

// ask opens a connection and waits for the answer. Without source address the kernel chooses it.
func (p place) ask(protocol string, source netip.Addr, to netip.AddrPort, wait time.Duration) (s seen) {
	p.do(func() { s = ask(protocol, source, to, wait) })
	return s
}

func ask(protocol string, source netip.Addr, to netip.AddrPort, wait time.Duration) (s seen) {
	d := net.Dialer{Timeout: wait}
	network := strings.ToLower(protocol)
	if source.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
		if network == "udp" {
			d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
		}
	}
	c, err := d.Dial(network, to.String())
	if err != nil {
		s.err = err
		return s
	}
	defer c.Close()
	if s.err = c.SetDeadline(time.Now().Add(wait)); s.err != nil {
		return s
	}
	if network == "udp" {
		if _, s.err = c.Write([]byte("?")); s.err != nil {
			return s
		}
	}
	b := make([]byte, 200)
	n, err := c.Read(b)
	if err != nil && (n == 0 || err != io.EOF) { //nolint:errorlint // io.Reader returns it as it is
		s.err = err
		return s
	}
	who, client, _ := strings.Cut(string(b[:n]), " ")
	if s.endpoint, s.err = netip.ParseAddrPort(who); s.err == nil {
		s.client, s.err = netip.ParseAddr(client)
	}
	return s
}
