// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/cgroup"
)

// listenAt has this program listen at an address, in place of running tests.
const listenAt = "SVCPROXY_TEST_LISTEN"

// listenAlone listens, says so, and waits until its input ends.
func listenAlone(at string) {
	l, err := net.Listen("tcp", at)
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return
	}
	defer l.Close()
	fmt.Fprintln(os.Stdout, "listens")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// stopped has a process of its own listen that is stopped then.
func (n *topology) stopped(c *fault) {
	n.t.Helper()
	// nsenter has become the program: it is the same process.
	if err := n.listenInProcess(c).Signal(unix.SIGSTOP); err != nil {
		n.t.Fatal(err)
	}
}

// frozen has a process of its own listen whose control group is frozen then, as that of a paused container is.
func (n *topology) frozen(c *fault) {
	n.t.Helper()
	pid := []byte(strconv.Itoa(n.listenInProcess(c).Pid))
	own, err := cgroup.Of("self")
	if err != nil {
		n.t.Fatal(err)
	}
	for _, h := range own {
		freeze, ok := map[string][2]string{"": {"cgroup.freeze", "1"}, "freezer": {"freezer.state", "FROZEN"}}[h.Name]
		procs, err := h.Open("/", "cgroup.procs", os.O_WRONLY)
		if !ok || err != nil {
			continue
		}
		procs.Close()
		dir := filepath.Join(filepath.Dir(procs.Name()), "svcproxy-test-"+string(pid))
		write := func(file, text string) error { return os.WriteFile(filepath.Join(dir, file), []byte(text), 0) }
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		end := n.close
		n.close = sync.OnceFunc(func() {
			thaw := map[string]string{"1": "0", "FROZEN": "THAWED"}[freeze[1]]
			err := errors.Join(write(freeze[0], thaw), os.WriteFile(procs.Name(), pid, 0))
			end()
			if err := errors.Join(err, os.Remove(dir)); err != nil {
				n.t.Error(err)
			}
		})
		n.t.Cleanup(n.close)
		if errors.Join(write("cgroup.procs", string(pid)), write(freeze[0], freeze[1])) == nil {
			return
		}
	}
	n.t.Skip("no control group can be made and frozen here")
}

// listenInProcess has a process of its own listen.
func (n *topology) listenInProcess(c *fault) *os.Process {
	n.t.Helper()
	program, err := os.Executable()
	if err != nil {
		n.t.Fatal(err)
	}
	cmd := n.names[c.namespace()].Command(n.t, program)
	cmd.Env = append(os.Environ(), listenAt+"="+c.at().String())
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		n.t.Fatal(err)
	}
	n.close = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = in.Close()
		_ = cmd.Wait()
	})
	n.t.Cleanup(n.close)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "listens\n" {
		n.t.Fatalf("%q %v", line, err)
	}
	return cmd.Process
}

// listen listens for a fault until the test ends; what is accepted is answered by what came.
func (n *topology) listen(c *fault, address string) {
	n.t.Helper()
	if n.v6 {
		address = six.Replace(address)
	}
	var l net.Listener
	var packets net.PacketConn
	var err error
	config := net.ListenConfig{Control: sharedPort}
	if device, ok := strings.CutPrefix(address, "%"); ok {
		address = fmt.Sprintf("0.0.0.0:%d", endpoint.Port())
		config.Control = func(_, _ string, c syscall.RawConn) error {
			var bind error
			err := c.Control(func(fd uintptr) { bind = unix.BindToDevice(int(fd), device) })
			return errors.Join(err, bind)
		}
	}
	testutil.NewThread(n.t, n.names[c.namespace()].Path).Do(func() {
		if c.udp {
			packets, err = config.ListenPacket(n.t.Context(), "udp", address)
		} else {
			l, err = config.Listen(n.t.Context(), "tcp", address)
		}
	})
	if err != nil {
		n.t.Fatal(err)
	}
	if c.udp {
		n.close = func() { packets.Close() }
		n.t.Cleanup(n.close)
		go echo(packets)
		return
	}
	testutil.Serve(n.t, l, func(c net.Conn) { _, _ = io.Copy(c, c) })
	n.close = func() { l.Close() }
}

// echo answers datagrams by what came, until the socket is closed.
func echo(c net.PacketConn) {
	for b := make([]byte, 1<<16); ; {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		_, _ = c.WriteTo(b[:n], from)
	}
}

// sharedPort lets other sockets listen at the same port.
func sharedPort(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	return errors.Join(err, failed)
}

// fullBeside makes a listener at the endpoint's own address whose process accepts nothing, fills its queue, and has
// another one listen at all addresses.
func (n *topology) fullBeside(c *fault) {
	n.t.Helper()
	var fd int
	var err error
	testutil.NewThread(n.t, n.names[c.namespace()].Path).Do(func() {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return
		}
		err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
			unix.Bind(fd, &unix.SockaddrInet4{Port: int(c.at().Port()), Addr: c.at().Addr().As4()}), unix.Listen(fd, 1))
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.listen(c, ":8080")
	other := n.close
	n.close = sync.OnceFunc(func() {
		_ = unix.Close(fd)
		other()
	})
	n.t.Cleanup(n.close)
	n.fill()
}

// full makes a listener whose process accepts nothing, and fills its queue.
func (n *topology) full() {
	n.t.Helper()
	var fd int
	var err error
	testutil.NewThread(n.t, n.names["endpoint"].Path).Do(func() {
		if fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return
		}
		if err = unix.Bind(fd, &unix.SockaddrInet6{Port: int(endpoint.Port())}); err == nil {
			err = unix.Listen(fd, 1)
		}
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.close = sync.OnceFunc(func() { _ = unix.Close(fd) })
	n.t.Cleanup(n.close)
	n.fill()
}

// fill has more connections wait to be accepted than a queue for one holds.
func (n *topology) fill() {
	n.t.Helper()
	for range 4 {
		n.connects(&fault{}, 0)
	}
}

// unread has nobody read from a socket of UDP until it takes no more.
func (n *topology) unread(c *fault) {
	n.t.Helper()
	var l net.PacketConn
	var err error
	testutil.NewThread(n.t, n.names[c.namespace()].Path).Do(func() {
		if l, err = net.ListenPacket("udp", c.at().String()); err != nil {
			return
		}
		const enough = 1000
		for range enough {
			if _, err = l.WriteTo(make([]byte, enough), l.LocalAddr()); err != nil {
				return
			}
		}
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.close = sync.OnceFunc(func() { _ = l.Close() })
	n.t.Cleanup(n.close)
}

// connects tells whether a connection from the client is accepted, and whether size bytes over it come back.
func (n *topology) connects(of *fault, size int) bool {
	var c net.Conn
	var err error
	if of.udp { // a datagram is accepted where it is answered
		size = min(max(size, 1), 1000)
	}
	from, to, dialer := "client", n.port(frontend), net.Dialer{Timeout: time.Second}
	if of.works { // one packet that a busy machine loses is sent again after a second
		dialer.Timeout = 5 * time.Second
	}
	if of.outside {
		from, to = "outside", n.port(nodePort)
		dialer.LocalAddr = &net.TCPAddr{IP: n.as(outside).AsSlice()}
	}
	testutil.NewThread(n.t, n.names[from].Path).Do(func() {
		c, err = dialer.DialContext(n.t.Context(), of.protocol(), to.String())
	})
	if err != nil {
		return false
	}
	n.t.Cleanup(func() { c.Close() })
	if size == 0 {
		return true
	}
	whole := exchanged(c, size)
	if of.resends && whole && size > 1 { // that took segments which were sent again one by one
		return sentAgain(n.t, c) == 0
	}
	return whole
}

// exchanged sends bytes, and says whether all come back within two seconds.
func exchanged(c net.Conn, size int) bool {
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := c.Write(make([]byte, size)); err != nil {
		return false
	}
	_, err := io.ReadFull(c, make([]byte, size))
	return err == nil
}

// sentAgain counts the segments of a connection that were sent again.
func sentAgain(t *testing.T, c net.Conn) uint32 {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var info *unix.TCPInfo
	failed := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	if err := errors.Join(failed, err); err != nil {
		t.Fatal(err)
	}
	return info.Total_retrans
}
