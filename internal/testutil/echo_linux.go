// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// Echo answers at an address ("10.244.1.1:8080") until the test ends: each line of a connection ("tcp"), and each
// datagram ("udp"), with the server's own address, the client's as the server sees it, and what it was sent. The
// socket is made by the thread.
func Echo(t testing.TB, at Thread, network, address string) {
	t.Helper()
	var err error
	at.Do(func() {
		if network == "udp" {
			err = echoDatagrams(t, address)
		} else {
			err = echoLines(t, network, address)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

func echoed(address string, client net.Addr, what string) string {
	return fmt.Sprintf("%s %s %s", address, netip.MustParseAddrPort(client.String()).Addr().Unmap().WithZone(""), what)
}

// Serve hands each connection of a listener to serve, and closes it behind that, until the test ends.
func Serve(t testing.TB, l net.Listener, serve func(c net.Conn)) {
	t.Helper()
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // no more files, for a moment
				time.Sleep(10 * time.Millisecond)
				continue
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
}

func echoLines(t testing.TB, network, address string) error {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), network, address)
	if err != nil {
		return err
	}
	Serve(t, l, func(c net.Conn) {
		r := bufio.NewReader(c)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			if _, err := io.WriteString(c, echoed(address, c.RemoteAddr(), line)); err != nil {
				return
			}
		}
	})
	return nil
}

func echoDatagrams(t testing.TB, address string) error {
	t.Helper()
	c, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", address)
	if err != nil {
		return err
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 100)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = c.WriteTo([]byte(echoed(address, from, string(b[:n]))), from) // who has gone is not answered
		}
	}()
	return nil
}

// Echoed is who answered, and the client that it saw.
type Echoed struct {
	Server netip.AddrPort
	Client netip.Addr
}

const asked = "hello\n"

// Ask sends a line, or a datagram, to a server of Echo, from an address of the thread's namespace or, without one,
// from what the kernel chooses. It gives up after wait.
func Ask(at Thread, network string, from netip.Addr, to string, wait time.Duration) (who Echoed, err error) {
	at.Do(func() { who, err = ask(network, from, to, asked, wait) })
	return who, err
}

// AskLarge is [Ask] of TCP with a line of so many bytes.
func AskLarge(at Thread, to string, size int, wait time.Duration) (who Echoed, err error) {
	line := strings.Repeat("x", size-1) + "\n"
	at.Do(func() { who, err = ask("tcp", netip.Addr{}, to, line, wait) })
	return who, err
}

// AskToEnd is Ask over TCP for a client that says that it has sent all, and reads to the end of the answer.
func AskToEnd(at Thread, to string, wait time.Duration) (who Echoed, err error) {
	at.Do(func() {
		var c net.Conn
		if c, err = dial("tcp", netip.Addr{}, to, asked, wait); err != nil {
			return
		}
		defer c.Close()
		if err = c.(*net.TCPConn).CloseWrite(); err != nil {
			return
		}
		var all []byte
		if all, err = io.ReadAll(c); err == nil {
			who, err = parseEchoed(string(all), asked)
		}
	})
	return who, err
}

func ask(network string, from netip.Addr, to, text string, wait time.Duration) (Echoed, error) {
	c, err := dial(network, from, to, text, wait)
	if err != nil {
		return Echoed{}, err
	}
	defer c.Close()
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return Echoed{}, err
	}
	return parseEchoed(line, text)
}

// dial makes a connection that ends after wait, and sends a text.
func dial(network string, from netip.Addr, to, text string, wait time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: wait}
	if from.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
		if network == "udp" {
			d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
		}
	}
	c, err := d.DialContext(context.Background(), network, to)
	if err != nil {
		return nil, err
	}
	err = c.SetDeadline(time.Now().Add(wait))
	if err == nil {
		_, err = io.WriteString(c, text)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func parseEchoed(line, text string) (who Echoed, err error) {
	words := strings.SplitN(line, " ", 3)
	if len(words) != 3 || words[2] != text {
		return who, fmt.Errorf("the answer is %.100q", line)
	}
	if who.Server, err = netip.ParseAddrPort(words[0]); err == nil {
		who.Client, err = netip.ParseAddr(words[1])
	}
	return who, err
}
