// SPDX-License-Identifier: Apache-2.0

// Command echo is the server behind the tests' Services, their client, and their name server.
//
//	echo [:8080]                     answer each TCP connection, UDP packet and, where the kernel has it, SCTP
//	                                 association with the host's name
//	echo connect [-for 10s] ADDRESS  connect over and over, and print how often that went well
//	echo get URL                     print what an HTTP server answers
//	echo dns [NAME=ADDRESS,…]…       answer for these names at port 53 of UDP and TCP, and that others do not exist;
//	                                 NAME=NAME makes one an alias
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/sctp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == "connect":
		err = connect(ctx, os.Args[2:])
	case len(os.Args) == 3 && os.Args[1] == "get":
		err = get(ctx, os.Args[2])
	case len(os.Args) > 1 && os.Args[1] == "dns":
		err = serveDNS(ctx, ":53", os.Args[2:])
	default:
		address := ":8080"
		if len(os.Args) > 1 {
			address = os.Args[1]
		}
		err = serve(ctx, address)
	}
	if err != nil {
		log.Print(err)
		os.Exit(1) //nolint:gocritic // the deferred stop has nothing left to stop
	}
}

// get prints the answer of an HTTP server.
func get(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody) //nolint:gosec // a test has given it
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req) //nolint:gosec // a test has given it
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(os.Stdout, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// serve answers until the context ends.
func serve(ctx context.Context, address string) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	tcp, udp, err := listen(ctx, address)
	if err != nil {
		return err
	}
	greeting := func(c net.Conn) {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.WriteString(c, name+"\n")
	}
	listeners := []net.Listener{tcp}
	port := tcp.Addr().(*net.TCPAddr).AddrPort().Port()
	if l, err := sctp.Listen(netip.AddrPortFrom(netip.IPv6Unspecified(), port)); err == nil {
		listeners = append(listeners, l)
	} else {
		log.Printf("no SCTP: %v", err)
	}
	context.AfterFunc(ctx, func() {
		for _, l := range listeners {
			_ = l.Close()
		}
		_ = udp.Close()
	})
	for _, l := range listeners[1:] {
		go accept(l, greeting)
	}
	go func() {
		buf := make([]byte, 2048)
		for {
			_, from, err := udp.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = udp.WriteTo([]byte(name+"\n"), from)
			}
		}
	}()
	accept(tcp, greeting)
	return nil
}

// listen listens at an address for TCP and UDP.
func listen(ctx context.Context, address string) (net.Listener, net.PacketConn, error) {
	var lc net.ListenConfig
	tcp, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, nil, err
	}
	udp, err := lc.ListenPacket(ctx, "udp", address)
	return tcp, udp, err
}

// accept serves the connections of a listener until it is closed.
func accept(l net.Listener, serve func(c net.Conn)) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			log.Print(err)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		go serve(c)
	}
}

// connect makes one connection after the other, and counts.
func connect(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("connect", flag.ContinueOnError)
	duration := flags.Duration("for", 10*time.Second, "how long")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("connect needs one address")
	}
	var connected, failed int
	dialer := net.Dialer{Timeout: 2 * time.Second}
	for end := time.Now().Add(*duration); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		if err := greet(ctx, &dialer, flags.Arg(0)); err != nil {
			log.Print(err)
			failed++
		} else {
			connected++
		}
	}
	_, err := fmt.Printf("%d connected, %d failed\n", connected, failed)
	return err
}

// greet connects and reads the whole answer.
func greet(ctx context.Context, dialer *net.Dialer, address string) error {
	c, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	answer, err := io.ReadAll(c)
	if err == nil && len(answer) == 0 {
		err = errors.New("an empty answer")
	}
	return err
}
