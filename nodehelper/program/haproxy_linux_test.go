// SPDX-License-Identifier: Apache-2.0

//go:build bench

package program

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// What is measured, in each run.
const (
	benchRuns        = 3
	benchConnections = 4000
	benchClients     = 4 // at once, of connections
	benchTrips       = 10_000
	benchBytes       = 1 << 30
)

const (
	benchEndpoint = "10.244.1.1:8080"
	benchHAProxy  = "127.0.0.1:8081"
	benchConfig   = `global
	maxconn 1000
defaults
	mode tcp
	timeout connect 5s
	timeout client 60s
	timeout server 60s
listen web
	bind ` + benchHAProxy + `
	server one ` + benchEndpoint + `
`
)

// benchChild is set in the process that has the proxy: it is not to share a scheduler with its clients.
const benchChild = "SVCPROXY_BENCH_PROXY"

// benchServe answers connections, according to their first byte. 'e': every byte is sent back; 's': all others are
// read, and one byte is sent at the end.
func benchServe(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", benchEndpoint)
	if err != nil {
		t.Fatal(err)
	}
	testutil.Serve(t, l, func(c net.Conn) {
		kind := make([]byte, 1)
		if _, err := io.ReadFull(c, kind); err != nil {
			return
		}
		if kind[0] == 's' {
			buf := make([]byte, 1<<20)
			for left := benchBytes; left > 0; {
				n, err := c.Read(buf)
				if err != nil {
					return
				}
				left -= n
			}
			_, _ = c.Write(kind)
			return
		}
		for {
			if _, err := c.Write(kind); err != nil {
				return
			}
			if _, err := io.ReadFull(c, kind); err != nil {
				return
			}
		}
	})
}

func benchDial(t *testing.T, to string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", to, 10*time.Second)
	if err == nil {
		err = c.SetDeadline(time.Now().Add(2 * time.Minute))
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// benchMeasures are the measured values of connections to an address: less is better.
var benchMeasures = []struct {
	name string
	of   func(t *testing.T, to string) float64
}{
	{"a connection of 1 byte, µs", func(t *testing.T, to string) float64 {
		begin := time.Now()
		var wg sync.WaitGroup
		for range benchClients {
			wg.Go(func() {
				one := []byte{'e'}
				for range benchConnections / benchClients {
					c, err := net.Dial("tcp", to)
					if err == nil {
						_, err = c.Write(one)
					}
					if err == nil {
						_, err = io.ReadFull(c, one)
					}
					if err == nil {
						err = c.Close()
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		return float64(time.Since(begin).Microseconds()) / benchConnections
	}},
	{"a round trip of 1 byte, µs", func(t *testing.T, to string) float64 {
		c := benchDial(t, to)
		defer c.Close()
		one := []byte{'e'}
		begin := time.Now()
		for range benchTrips {
			if _, err := c.Write(one); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, one); err != nil {
				t.Fatal(err)
			}
		}
		return float64(time.Since(begin).Microseconds()) / benchTrips
	}},
	{"a stream, ms per GiB", func(t *testing.T, to string) float64 {
		c := benchDial(t, to)
		defer c.Close()
		buf := make([]byte, 1<<20)
		buf[0] = 's'
		begin := time.Now()
		if _, err := c.Write(buf[:1]); err != nil {
			t.Fatal(err)
		}
		for range benchBytes / len(buf) {
			if _, err := c.Write(buf); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := io.ReadFull(c, buf[:1]); err != nil {
			t.Fatal(err)
		}
		return float64(time.Since(begin).Milliseconds()) / (benchBytes >> 30)
	}},
}

// TestUserspaceAgainstHAProxy times userspace mode beside a direct connection and HAProxy in TCP mode, each behind a
// rule that redirects the Service's address to it. The proxies are processes of their own.
func TestUserspaceAgainstHAProxy(t *testing.T) {
	const service, other = "10.96.0.10:80", "10.96.0.11:80"
	if root := os.Getenv(benchChild); root != "" {
		debug.SetGCPercent(400) // as the helper's main does
		prog := newProgrammer(t, root)
		_, err := prog.Apply(t.Context(), params(web(0, benchEndpoint), wire.Userspace, wire.BackendNFT, "a"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
		if _, err := prog.Undo(t.Context(), wire.UndoMine); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !testutil.Isolate(t, unix.CLONE_NEWNET, append(executables, "haproxy")...) {
		return
	}
	for _, words := range []string{
		"ip link set lo up", "ip addr add 10.244.1.1/32 dev lo", "ip addr add 192.0.2.10/32 dev lo",
		"ip route add 10.96.0.0/16 dev lo", "sysctl -qw net.ipv4.ip_local_port_range=1024\t65000",
		"sysctl -qw net.ipv4.tcp_tw_reuse=1",
	} {
		testutil.Run(t, "", strings.Split(words, " ")...)
	}
	testutil.Run(t, "", "iptables-nft", "-t", "nat", "-A", "OUTPUT", "-d", "10.96.0.11/32", "-p", "tcp", "--dport", "80",
		"-j", "REDIRECT", "--to-ports", "8081")
	benchServe(t)
	config := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(config, []byte(benchConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func(cmd *exec.Cmd) {
		t.Helper()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	start(exec.CommandContext(t.Context(), "haproxy", "-q", "-db", "-f", config))
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), benchChild+"="+t.TempDir())
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	start(child)
	buf := make([]byte, 1000)
	for got := ""; !strings.Contains(got, "ready"); {
		n, err := out.Read(buf)
		if err != nil {
			t.Fatalf("%v: %s", err, got)
		}
		got += string(buf[:n])
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", benchHAProxy)
		if err == nil {
			c.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatal(errors.Join(errors.New("HAProxy does not listen"), err))
		}
	}
	targets := []string{benchEndpoint, service, other}
	fmt.Printf("userspace mode beside a direct connection and HAProxy, medians of %d runs\n", benchRuns)
	for _, m := range benchMeasures {
		times := make([][]float64, len(targets))
		for range benchRuns {
			for i, to := range targets {
				times[i] = append(times[i], m.of(t, to))
			}
		}
		for i := range times {
			slices.Sort(times[i])
		}
		direct, ours, ha := times[0][benchRuns/2], times[1][benchRuns/2], times[2][benchRuns/2]
		fmt.Printf("  %-28s direct %8.1f   userspace %8.1f   HAProxy %8.1f   userspace/HAProxy %.2f   userspace/direct "+
			"%.2f   HAProxy/direct %.2f\n", m.name, direct, ours, ha, ours/ha, ours/direct, ha/direct)
	}
}
