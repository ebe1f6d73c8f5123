// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

const clusterIP = "10.96.0.10:80"

// servedBy has userspace mode lead a Service to endpoints, of which one gives its connections to serve, and others do
// not listen.
func servedBy(t *testing.T, scheduler string, endpoints []string, serve func(c *net.TCPConn)) *Programmer {
	t.Helper()
	servedNode(t)
	for _, e := range append([]string{one}, endpoints...) {
		host, _, err := net.SplitHostPort(e)
		if err != nil {
			t.Fatal(err)
		}
		testutil.Run(t, "", "ip", "addr", "replace", host+"/32", "dev", "lo")
	}
	l, err := net.Listen("tcp", one)
	if err != nil {
		t.Fatal(err)
	}
	testutil.Serve(t, l, func(c net.Conn) { serve(c.(*net.TCPConn)) }) //nolint:forcetypeassert // of that network
	prog := newProgrammer(t, t.TempDir())
	req := params(web(0, endpoints...), wire.Userspace, wire.BackendNFT, "a")
	req.Scheduler = scheduler
	if _, err := prog.Apply(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	return prog
}

// slowly writes or reads n bytes in pieces of any length, with pauses; both sides of a connection have the same bytes
// where they have the same seed.
func slowly(n int, seed uint64, piece func(b []byte) error) error {
	r, pause := rand.NewChaCha8([32]byte{byte(seed)}), rand.New(rand.NewPCG(seed, 1))
	buf := make([]byte, 300<<10)
	for n > 0 {
		b := buf[:min(n, 1+pause.IntN(1+pause.IntN(len(buf))))]
		_, _ = r.Read(b)
		if err := piece(b); err != nil {
			return err
		}
		n -= len(b)
		if pause.IntN(10) == 0 {
			time.Sleep(time.Duration(pause.IntN(3)) * time.Millisecond)
		}
	}
	return nil
}

// Many connections at once, each of which sends and receives as much as it likes, at its own speed: all arrives, in
// order, and the end of one direction does not end the other.
func TestEverythingArrives(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, append(executables, "nsenter", "sysctl")...) {
		return
	}
	// A client says how much it wants; the endpoint sends that meanwhile, and says at the end what it got.
	prog := servedBy(t, "", []string{one}, func(c *net.TCPConn) {
		var head [16]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		wanted, seed := int(binary.BigEndian.Uint64(head[:])), binary.BigEndian.Uint64(head[8:])
		sent := make(chan error, 1)
		go func() { sent <- slowly(wanted, seed, func(b []byte) error { _, err := c.Write(b); return err }) }()
		sum := crc32.NewIEEE()
		n, err := io.Copy(sum, c)
		if err = errors.Join(err, <-sent); err == nil {
			fmt.Fprintf(c, "%d %08x", n, sum.Sum32())
		}
	})
	var wg sync.WaitGroup
	for i := range 80 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 2))
			sends, wants := r.IntN(1<<r.IntN(23)), r.IntN(1<<r.IntN(23))
			if err := exchange(uint64(i), sends, wants); err != nil {
				t.Errorf("connection %d, which sends %d bytes and wants %d: %v", i, sends, wants, err)
			}
		})
	}
	wg.Wait()
	undo(t, prog)
}

func exchange(seed uint64, sends, wants int) error {
	conn, err := net.DialTimeout("tcp", clusterIP, 10*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	c := conn.(*net.TCPConn) //nolint:forcetypeassert // of that network
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if seed%3 == 0 { // which one is full sooner
		_ = errors.Join(c.SetReadBuffer(4<<10), c.SetWriteBuffer(4<<10))
	}
	var head [16]byte
	binary.BigEndian.PutUint64(head[:], uint64(wants))
	binary.BigEndian.PutUint64(head[8:], seed)
	if _, err := c.Write(head[:]); err != nil {
		return err
	}
	sum, sent := crc32.NewIEEE(), make(chan error, 1)
	go func() {
		err := slowly(sends, seed+100, func(b []byte) error { _, err := io.MultiWriter(c, sum).Write(b); return err })
		sent <- errors.Join(err, c.CloseWrite())
	}()
	got := make([]byte, 300<<10)
	err = slowly(wants, seed, func(b []byte) error {
		if _, err := io.ReadFull(c, got[:len(b)]); err != nil {
			return err
		}
		if !slices.Equal(b, got[:len(b)]) {
			return errors.New("other bytes than were sent")
		}
		return nil
	})
	if err != nil {
		return err
	}
	rest, err := io.ReadAll(c)
	if err := errors.Join(err, <-sent); err != nil {
		return err
	}
	if want := fmt.Sprintf("%d %08x", sends, sum.Sum32()); string(rest) != want {
		return fmt.Errorf("at the end the endpoint says %q, not %q", rest, want)
	}
	return nil
}

// What an endpoint says before it ends a connection in the middle of a request reaches the client.
func TestAnAnswerBeforeAResetArrives(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, append(executables, "nsenter", "sysctl")...) {
		return
	}
	prog := servedBy(t, "", []string{one}, func(c *net.TCPConn) {
		_, _ = io.ReadFull(c, make([]byte, 1))
		_, _ = io.WriteString(c, "no\n")
	})
	for i := range 20 {
		c, err := net.DialTimeout("tcp", clusterIP, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		go func() { _, _ = io.Copy(c, endless{}) }()
		got := make([]byte, 3)
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "no\n" {
			t.Errorf("connection %d: %q %v", i, got, err)
		}
		c.Close()
	}
	undo(t, prog)
}

// A client that is gone leaves nothing behind, though its endpoint waits on.
func TestAConnectionEndsWithItsClient(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, append(executables, "nsenter", "sysctl")...) {
		return
	}
	ended := make(chan struct{})
	prog := servedBy(t, "", []string{one}, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "welcome\n") // who serves speaks first
		_, _ = io.Copy(io.Discard, c)
		close(ended)
		time.Sleep(2 * drainTime)
	})
	c, err := net.DialTimeout("tcp", clusterIP, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, len("welcome\n"))); err != nil {
		t.Fatal(err)
	}
	_ = c.(*net.TCPConn).SetLinger(0) //nolint:forcetypeassert // of that network
	c.Close()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Error("the endpoint is not told that its client is gone")
	}
	begin := time.Now()
	undo(t, prog)
	if took := time.Since(begin); took > drainTime {
		t.Errorf("the connection was kept: the end took %s", took)
	}
}

// An endpoint that does not answer is given up, and the next one serves; when all are given up the client is told.
func TestTheNextEndpointServes(t *testing.T) {
	testutil.Long(t)
	if !testutil.Isolate(t, unix.CLONE_NEWNET, append(executables, "nsenter", "sysctl")...) {
		return
	}
	prog := servedBy(t, "", []string{two, one}, func(c *net.TCPConn) { _, _ = io.WriteString(c, "one\n") })
	drop := func(change, address string) {
		testutil.Run(t, "", "iptables-nft", change, "OUTPUT", "-d", address, "-p", "tcp", "--syn", "-j", "DROP")
	}
	drop("-A", "10.244.2.2")
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			begin := time.Now()
			c, err := net.DialTimeout("tcp", clusterIP, 5*time.Second)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(4 * dialTime))
			got, err := io.ReadAll(c)
			if err != nil || string(got) != "one\n" || time.Since(begin) > 2*dialTime {
				t.Errorf("connection %d: %q after %s, %v", i, got, time.Since(begin), err)
			}
		})
	}
	wg.Wait()
	drop("-A", "10.244.1.1")
	c, err := net.DialTimeout("tcp", clusterIP, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(4 * dialTime))
	if _, err := io.ReadAll(c); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("without an endpoint: %v", err)
	}
	drop("-D", "10.244.2.2")
	drop("-D", "10.244.1.1")
	undo(t, prog)
}

// While the process may open no more files connections wait, and are served afterwards.
func TestConnectionsWaitForFiles(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, append(executables, "nsenter", "sysctl")...) {
		return
	}
	prog := servedBy(t, "", []string{one}, func(c *net.TCPConn) { _, _ = io.WriteString(c, "one\n") })
	clients := make([]int, 5)
	for i := range clients {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
			t.Fatal(err)
		}
		clients[i] = fd
	}
	var before unix.Rlimit
	free, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
	if err = errors.Join(err, unix.Close(free), unix.Getrlimit(unix.RLIMIT_NOFILE, &before)); err != nil {
		t.Fatal(err)
	}
	none := before
	none.Cur = uint64(free)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	for _, fd := range clients {
		if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{10, 96, 0, 10}, Port: 80}); err != nil {
			t.Error(err)
		}
	}
	time.Sleep(100 * time.Millisecond)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	for _, fd := range clients {
		f := os.NewFile(uintptr(fd), "client")
		got, err := io.ReadAll(f)
		if err != nil || strings.TrimSpace(string(got)) != "one" {
			t.Errorf("%q %v", got, err)
		}
		f.Close()
	}
	undo(t, prog)
}

// An endpoint that does not answer is given up in time, though other connections always have something to move.
func TestTimeIsKeptBesideStreams(t *testing.T) {
	testutil.Long(t)
	if !testutil.Isolate(t, unix.CLONE_NEWNET, append(executables, "nsenter", "sysctl")...) {
		return
	}
	prog := servedBy(t, "", []string{two, one}, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "one\n")
		_, _ = io.Copy(io.Discard, c)
	})
	var streams sync.WaitGroup
	for range 3 {
		c, err := net.DialTimeout("tcp", clusterIP, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(3 * dialTime))
		streams.Go(func() {
			defer c.Close()
			_, _ = io.Copy(c, endless{})
		})
	}
	testutil.Run(t, "", "iptables-nft", "-A", "OUTPUT", "-d", "10.244.2.2", "-p", "tcp", "--syn", "-j", "DROP")
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() {
			begin := time.Now()
			who, err := readLine(clusterIP, 2*dialTime)
			if err != nil || who != "one\n" {
				t.Errorf("client %d: %q after %s, %v", i, who, time.Since(begin), err)
			}
		})
	}
	clients.Wait()
	testutil.Run(t, "", "iptables-nft", "-D", "OUTPUT", "-d", "10.244.2.2", "-p", "tcp", "--syn", "-j", "DROP")
	undo(t, prog) // ends the streams
	streams.Wait()
}

func readLine(from string, within time.Duration) (string, error) {
	c, err := net.DialTimeout("tcp", from, within)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(within))
	return bufio.NewReader(c).ReadString('\n')
}

// A read stops before urgent data: what comes after it arrives all the same.
func TestBytesAfterUrgentDataArrive(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, append(executables, "nsenter", "sysctl")...) {
		return
	}
	prog := servedBy(t, "", []string{one}, func(c *net.TCPConn) {
		got := make([]byte, 6)
		_, _ = io.ReadFull(c, got)
		fmt.Fprintf(c, "%s\n", got)
	})
	for i := range 20 {
		c, err := net.DialTimeout("tcp", clusterIP, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		raw, err := c.(*net.TCPConn).SyscallConn() //nolint:forcetypeassert // of that network
		if err != nil {
			t.Fatal(err)
		}
		var sent error
		err = raw.Control(func(fd uintptr) {
			sent = errors.Join(unix.Send(int(fd), []byte("abc"), 0), unix.Send(int(fd), []byte("!"), unix.MSG_OOB),
				unix.Send(int(fd), []byte("def"), 0))
		})
		got, readErr := bufio.NewReader(c).ReadString('\n')
		if err = errors.Join(err, sent, readErr); err != nil || got != "abcdef\n" {
			t.Errorf("connection %d: %q %v", i, got, err)
		}
		c.Close()
	}
	undo(t, prog)
}

// Without anybody who listens on it, a port that the kernel chooses by itself leads back to the socket.
func TestNoConnectionToItself(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, append(executables, "nsenter", "sysctl")...) {
		return
	}
	prog := servedBy(t, "", []string{"10.244.2.2:40002"}, func(*net.TCPConn) {})
	testutil.Run(t, "", "sysctl", "-qw", "net.ipv4.ip_local_port_range=40002 40003")
	for range 5 {
		c, err := net.DialTimeout("tcp", clusterIP, 5*time.Second)
		if err != nil {
			continue // no port is left for a moment
		}
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = io.WriteString(c, "ping\n")
		if got, err := bufio.NewReader(c).ReadString('\n'); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("an endpoint that does not listen answers %q, %v", got, err)
		}
		c.Close()
	}
	undo(t, prog)
}

// Clients of MPTCP are served, as those of TCP.
func TestMultipathClients(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, append(executables, "nsenter", "sysctl")...) {
		return
	}
	prog := servedBy(t, "", []string{one}, func(c *net.TCPConn) { _, _ = io.WriteString(c, "one\n") })
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_MPTCP)
	if err != nil {
		t.Skipf("this kernel has no MPTCP: %v", err)
	}
	f := os.NewFile(uintptr(fd), "client")
	defer f.Close()
	err = errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}),
		unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{10, 96, 0, 10}, Port: 80}))
	got, readErr := io.ReadAll(f)
	if err = errors.Join(err, readErr); err != nil || string(got) != "one\n" {
		t.Errorf("%q %v", got, err)
	}
	undo(t, prog)
}

// A connection on which neither side sends anything ends; one that only one side sends on stays.
func TestIdleConnectionsEnd(t *testing.T) {
	const idle = 500 * time.Millisecond
	client, c := tcpPair(t)
	up, endpoint := tcpPair(t)
	var both sync.WaitGroup
	both.Go(func() { forward(up, c, idle) })
	both.Go(func() { forward(c, up, idle) })
	for i := range 10 {
		time.Sleep(idle / 5)
		if _, err := endpoint.Write([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
	both.Wait()
	for _, side := range []net.Conn{client, endpoint} {
		_ = side.SetDeadline(time.Now().Add(time.Minute))
		if n, err := side.Read(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a side of an idle connection reads %d bytes, %v", n, err)
		}
	}
}

func tcpPair(t *testing.T) (dialled, accepted *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a.(*net.TCPConn), b.(*net.TCPConn) //nolint:forcetypeassert // of that network
}

// Beyond the largest number of connections a client gets a reset, and is served once there are fewer.
func TestConnectionsAreLimited(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, append(executables, "nsenter", "sysctl")...) {
		return
	}
	prog := servedBy(t, "", []string{one}, func(c *net.TCPConn) { _, _ = io.WriteString(c, "one\n") })
	x := prog.modes[wire.Userspace].(*userspace).proxies["0123abcd"] //nolint:forcetypeassert // it is
	x.conns.Add(tcpMost)
	if got, err := readLine(clusterIP, time.Minute); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("one too many: %q %v", got, err)
	}
	x.conns.Add(-tcpMost)
	if got, err := readLine(clusterIP, time.Minute); err != nil || got != "one\n" {
		t.Errorf("one that there is room for: %q %v", got, err)
	}
	undo(t, prog)
}
