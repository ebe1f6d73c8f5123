// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace that ends with the test.
type Namespace struct {
	// PID is that of a process in it, which does nothing: ip takes it for the name of the namespace, and probes find
	// pods by their processes.
	PID string
	// Path is the file of the namespace.
	Path string
}

// NewNamespace makes an empty network namespace. When it returns, the namespace is there.
func NewNamespace(t testing.TB) *Namespace {
	t.Helper()
	// It ends with the test; where that is killed, after an hour.
	cmd := Unshared(t, "sleep", "3600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	pid := strconv.Itoa(cmd.Process.Pid)
	return &Namespace{PID: pid, Path: "/proc/" + pid + "/ns/net"}
}

// NewExampleNode makes a network namespace with the addresses, routes and rules of worker-1 of examples/broken-node;
// files is the folder of its snapshot. It needs iptables-nft-restore, ip6tables-nft-restore, ip and nfacct.
func NewExampleNode(t testing.TB, files string) *Namespace {
	t.Helper()
	ns := NewNamespace(t)
	for _, command := range []string{
		"ip link set lo up", "ip link add eth0 type veth peer name peer0", "ip link add cni0 type bridge",
		"ip addr add 10.77.0.11/24 dev eth0", "ip addr add 10.244.1.1/24 dev cni0",
		"ip link set eth0 up", "ip link set peer0 up", "ip link set cni0 up",
		"ip route add default via 10.77.0.1", "ip route add 10.244.2.0/24 via 10.77.0.12",
		"ip route add 10.244.3.0/24 via 10.77.0.13", "sysctl -qw net.ipv4.ip_forward=1",
		"nfacct add ct_state_invalid_dropped_pkts", "nfacct add localhost_nps_accepted_pkts",
	} {
		ns.Run(t, strings.Fields(command)...)
	}
	ns.Run(t, "iptables-nft-restore", filepath.Join(files, "iptables-save.txt"))
	ns.Run(t, "ip6tables-nft-restore", filepath.Join(files, "ip6tables-save.txt"))
	return ns
}

// Unshared is a command in a network namespace of its own, which ends with the command.
func Unshared(t testing.TB, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...) //nolint:gosec // words of the tests
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	return cmd
}

// Command is a command in the namespace.
func (n *Namespace) Command(t testing.TB, argv ...string) *exec.Cmd {
	t.Helper()
	argv = append([]string{"--net=" + n.Path}, argv...)
	return exec.CommandContext(t.Context(), "nsenter", argv...) //nolint:gosec // words of the tests
}

// Run runs a command in the namespace and returns its output; the test fails where the command does.
func (n *Namespace) Run(t testing.TB, argv ...string) string {
	t.Helper()
	return output(t, n.Command(t, argv...))
}

// Thread is a thread that stays in a network namespace: sockets that its jobs make belong to the namespace. The nil
// Thread is in the test's own.
type Thread chan func()

// NewThread begins a thread in the network namespace with that file (Namespace.Path, or of ip netns
// /run/netns/NAME); without one, in the test's own namespace. It ends with the test.
func NewThread(t testing.TB, path string) Thread {
	t.Helper()
	jobs, ready := make(Thread), make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := enter(path)
		ready <- err
		if err != nil {
			return
		}
		for job := range jobs {
			job()
		}
	}()
	if err := <-ready; err != nil {
		t.Fatalf("network namespace %s: %v", path, err)
	}
	t.Cleanup(func() { close(jobs) })
	return jobs
}

func enter(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
}

// Do runs a job on the thread, and returns when it is done. A job must not end the test (t.Fatal): that has to be
// the test's own goroutine.
func (th Thread) Do(job func()) {
	if th == nil {
		job()
		return
	}
	done := make(chan bool)
	th <- func() { job(); close(done) }
	<-done
}
