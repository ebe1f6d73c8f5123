// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

func dial(t testing.TB) *Conn {
	t.Helper()
	c, err := Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func nftables(kind uint8, attributes ...Attribute) Request {
	return Request{Subsystem: unix.NFNL_SUBSYS_NFTABLES, Type: kind, Family: unix.NFPROTO_IPV4, Attributes: attributes}
}

func newTable(name string) Request {
	r := nftables(unix.NFT_MSG_NEWTABLE, String(unix.NFTA_TABLE_NAME, name))
	r.Flags = unix.NLM_F_CREATE | unix.NLM_F_EXCL
	return r
}

func newChain(table, name string) Request {
	r := nftables(unix.NFT_MSG_NEWCHAIN, String(unix.NFTA_CHAIN_TABLE, table), String(unix.NFTA_CHAIN_NAME, name))
	r.Flags = unix.NLM_F_CREATE
	return r
}

// tables returns the names of all tables.
func tables(t testing.TB, c *Conn) (names []string) {
	t.Helper()
	r := nftables(unix.NFT_MSG_GETTABLE)
	r.Flags = unix.NLM_F_DUMP
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	for i := range answer {
		_, attributes, err := answer[i].Attributes()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range attributes {
			if a.Type == unix.NFTA_TABLE_NAME {
				names = append(names, unix.ByteSliceToString(a.Value))
			}
		}
	}
	return names
}

func TestCommit(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET) {
		return
	}
	c := dial(t)
	if err := c.Commit(newTable("a"), newChain("a", "one"), newChain("a", "two")); err != nil {
		t.Fatal(err)
	}
	// All changes or none; what is left unread of the answer does not disturb the next one.
	for range 3 {
		if err := c.Commit(newTable("b"), newTable("a"), newTable("c"), newTable("d")); !errors.Is(err, unix.EEXIST) {
			t.Errorf("%v, want EEXIST", err)
		}
	}
	if got := tables(t, c); !slices.Equal(got, []string{"a"}) {
		t.Errorf("there are the tables %v, want a", got)
	}
	if err := c.Commit(newTable("b")); err != nil {
		t.Error(err)
	}
	if got := tables(t, c); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("there are the tables %v, want a and b", got)
	}
	if err := c.Commit(); err != nil {
		t.Errorf("without changes: %v", err)
	}

	owned := newTable("owned")
	owned.Attributes = append(owned.Attributes, Uint32(unix.NFTA_TABLE_FLAGS, 2)) // NFT_TABLE_F_OWNER
	owner := dial(t)
	if err := owner.Commit(owned); err != nil {
		t.Fatal(err)
	}
	before := tables(t, c)
	if err := owner.Close(); err != nil {
		t.Fatal(err)
	}
	if after := tables(t, c); !slices.Contains(before, "owned") || slices.Contains(after, "owned") {
		t.Errorf("with its owner there are %v, then %v", before, after)
	}
}

func TestDoReportsErrors(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET) {
		return
	}
	c := dial(t)
	if answer, err := c.Do(nftables(unix.NFT_MSG_GETGEN)); err != nil || len(answer) != 1 {
		t.Errorf("%d messages, %v", len(answer), err)
	}
	absent := nftables(unix.NFT_MSG_GETCHAIN, String(unix.NFTA_CHAIN_TABLE, "a"), String(unix.NFTA_CHAIN_NAME, "b"))
	if _, err := c.Do(absent); !errors.Is(err, unix.ENOENT) {
		t.Errorf("%v, want ENOENT", err)
	}
	unknown := Request{Subsystem: 200, Type: 1}
	if _, err := c.Do(unknown); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a subsystem that does not exist: %v, want EINVAL", err)
	}
	// The kernel explains what is wrong with an attribute: "integer out of range" or the like.
	long := nftables(unix.NFT_MSG_NEWTABLE, String(unix.NFTA_TABLE_NAME, strings.Repeat("x", 300)))
	if err := c.Commit(long); err == nil {
		t.Error("a name of 300 bytes is not an error")
	} else {
		t.Log(err)
	}
	large := nftables(unix.NFT_MSG_GETTABLE, Bytes(unix.NFTA_TABLE_NAME, make([]byte, 1<<16)))
	if _, err := c.Do(large); err == nil {
		t.Error("a request with an attribute of 64 KiB is not an error")
	}
	if got := tables(t, c); len(got) > 0 {
		t.Errorf("there are the tables %v", got)
	}
}

func TestWithoutRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to do without it")
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its user
		if _, _, no := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); no != 0 {
			result <- no
			return
		}
		c, err := Dial()
		if err != nil {
			result <- err
			return
		}
		defer c.Close()
		if err := c.SetReceiveBuffer(64 << 20); !errors.Is(err, unix.EPERM) {
			result <- fmt.Errorf("a large receive buffer: %w, want EPERM", err)
			return
		}
		if err := c.Commit(newTable("a")); !errors.Is(err, unix.EPERM) {
			result <- fmt.Errorf("a change: %w, want EPERM", err)
			return
		}
		_, err = c.Do(nftables(unix.NFT_MSG_GETGEN))
		result <- err
	}()
	if err := <-result; !errors.Is(err, unix.EPERM) {
		t.Errorf("%v, want EPERM", err)
	}
}

// A socket stays in the network namespace of the thread that opened it.
func TestNetworkNamespaceOfTheThread(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET) {
		return
	}
	here := dial(t)
	opened := make(chan *Conn)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its network namespace
		defer close(opened)
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		c, err := Dial()
		if err != nil {
			t.Error(err)
			return
		}
		opened <- c
	}()
	there := <-opened
	if there == nil {
		t.FailNow()
	}
	defer there.Close()
	if err := there.Commit(newTable("there")); err != nil {
		t.Fatal(err)
	}
	if err := here.Commit(newTable("here")); err != nil {
		t.Fatal(err)
	}
	if got := tables(t, there); !slices.Equal(got, []string{"there"}) {
		t.Errorf("there are the tables %v", got)
	}
	if got := tables(t, here); !slices.Equal(got, []string{"here"}) {
		t.Errorf("here are the tables %v", got)
	}
}

// Changes at a generation are made only while it is the present one.
func TestCommitAt(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET) {
		return
	}
	c, other := dial(t), dial(t)
	generation, err := c.Generation()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Commit(newTable("a")); err != nil {
		t.Fatal(err)
	}
	if err := c.CommitAt(generation, newTable("b")); !errors.Is(err, unix.ERESTART) {
		t.Errorf("at an earlier generation: %v", err)
	}
	if generation, err = c.Generation(); err != nil {
		t.Fatal(err)
	}
	if err := c.CommitAt(generation, newTable("c")); err != nil {
		t.Errorf("at the present generation: %v", err)
	}
	if got := tables(t, c); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("there are the tables %v", got)
	}
}

// A transaction of thousands of changes needs no larger buffers than one of a few.
func TestCommitOfThousands(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET) {
		return
	}
	c := dial(t)
	changes := []Request{newTable("a")}
	for i := range 2000 {
		changes = append(changes, newChain("a", fmt.Sprint("c", i)))
	}
	if err := c.Commit(changes...); err != nil {
		t.Fatal(err)
	}
	if err := c.Commit(newTable("a")); !errors.Is(err, unix.EEXIST) {
		t.Errorf("the error of the change after it: %v", err)
	}
}

func TestNotifications(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET) {
		return
	}
	c := dial(t)
	if err := c.Subscribe(unix.NFNLGRP_NFTABLES); err != nil {
		t.Fatal(err)
	}
	for _, timeout := range []time.Duration{0, 10 * time.Millisecond} {
		begin := time.Now()
		if _, err := c.Receive(timeout); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) < timeout {
			t.Errorf("%v after %v, where %v were to be waited for nothing", err, time.Since(begin), timeout)
		}
	}
	// One that is waited for.
	changes := dial(t)
	committed := make(chan error, 1)
	time.AfterFunc(20*time.Millisecond, func() { committed <- changes.Commit(newTable("a")) })
	datagram, err := c.Receive(10 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	told := false
	for m, err := range Messages(datagram) {
		if err != nil {
			t.Fatal(err)
		}
		told = told || m.Is(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_NEWTABLE)
	}
	if !told {
		t.Errorf("a notification of something else: %v", datagram)
	}
}

// What the kernel has discarded is an error, and the socket can be used afterwards.
func TestLostNotifications(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET) {
		return
	}
	c, changes := dial(t), dial(t)
	if err := errors.Join(c.SetReceiveBuffer(1), c.Subscribe(unix.NFNLGRP_NFTABLES)); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if err := changes.Commit(newTable(fmt.Sprint("t", i))); err != nil {
			t.Fatal(err)
		}
	}
	lost := false
	for !lost {
		_, err := c.Receive(0)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		lost = errors.Is(err, unix.ENOBUFS)
	}
	if !lost {
		t.Error("no ENOBUFS, though the kernel had to discard notifications")
	}
	if got := tables(t, changes); len(got) != 50 {
		t.Errorf("%d tables", len(got))
	}
}

// A dump of rules that change meanwhile says so.
func TestInterruptedDump(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET) {
		return
	}
	c, changes := dial(t), dial(t)
	if err := c.Commit(newTable("a")); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		chains := make([]Request, 100)
		for k := range chains {
			chains[k] = newChain("a", fmt.Sprintf("%s%d-%d", strings.Repeat("c", 100), i, k))
		}
		if err := c.Commit(chains...); err != nil {
			t.Fatal(err)
		}
	}
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := changes.Commit(newTable(fmt.Sprint("t", i))); err != nil {
				stopped <- err
				return
			}
		}
	}()
	r := nftables(unix.NFT_MSG_GETCHAIN)
	r.Flags = unix.NLM_F_DUMP
	interrupted := false
	for end := time.Now().Add(20 * time.Second); !interrupted && time.Now().Before(end); {
		got, err := c.Append(nil, r)
		if interrupted = errors.Is(err, ErrInterrupted); !interrupted && err != nil {
			t.Error(err)
			break
		}
		if len(got) < 100*2000 {
			t.Errorf("%d bytes of 2,000 chains, %v", len(got), err)
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if !interrupted {
		t.Error("no dump was interrupted in 20 seconds")
	}
	if got, err := c.Append([]byte("first"), r); err != nil || string(got[:5]) != "first" {
		t.Errorf("without changes: %v", err)
	}
}

// inNewNamespace moves the calling goroutine to a network namespace of its own, which ends with it.
func inNewNamespace(b *testing.B) error {
	b.Helper()
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root")
	}
	runtime.LockOSThread()
	return unix.Unshare(unix.CLONE_NEWNET)
}
