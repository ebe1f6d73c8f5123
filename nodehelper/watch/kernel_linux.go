// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/collect"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

const (
	// announceBuffer is how much the kernel keeps of its notifications until they are received, in bytes: those of more
	// than a thousand changes. What exceeds that is lost, which it tells (ENOBUFS).
	announceBuffer = 1 << 20
	// announceStep is after which time it is looked whether the context has ended.
	announceStep = 500 * time.Millisecond
	// announceRetry is the pause before another socket is opened where one has failed.
	announceRetry = 10 * time.Second
)

// listen receives the notifications of nf_tables in this process's network namespace until the context ends. heard is
// called for each change of the rules, with lost where the kernel has discarded some notifications; failed for an
// error, after which it begins anew. It waits for a kernel that has nf_tables.
func listen(ctx context.Context, works func(bool), heard func(lost bool), failed func(error)) {
	for again := false; ctx.Err() == nil; again = true {
		// To subscribe to what the kernel does not have would load it (nfnetlink_bind in net/netfilter/nfnetlink.c).
		if has, err := collect.HasNFTables(); err == nil && !has {
			works(false)
			if pause(ctx, announceRetry) != nil {
				return
			}
			continue
		}
		err := receive(ctx, func(on bool) {
			works(on)
			if again { // what was announced during the pause is not known, either
				heard(true)
			}
		}, heard)
		if ctx.Err() != nil {
			return
		}
		works(false)
		failed(fmt.Errorf(notifications+": %w", err))
		heard(true) // what was announced meanwhile is not known
		select {
		case <-time.After(announceRetry):
		case <-ctx.Done():
		}
	}
}

// receive receives notifications from one socket.
func receive(ctx context.Context, works func(bool), heard func(lost bool)) error {
	conn, err := netlink.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetReceiveBuffer(announceBuffer); err != nil {
		return err
	}
	// Each change ends with a new generation (nf_tables_gen_notify in net/netfilter/nf_tables_api.c). What was changed is
	// read anyway, and is thousands of rules at each sync of kube-proxy with iptables-nft.
	if err := conn.Only(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_NEWGEN); err != nil {
		return err
	}
	if err := conn.Subscribe(unix.NFNLGRP_NFTABLES); err != nil {
		return err
	}
	asks, err := netlink.Dial()
	if err != nil {
		return err
	}
	defer asks.Close()
	works(true)
	return hear(ctx, conn, asks, heard)
}

// hear receives the notifications of a socket that has subscribed to them. asks is another one, for requests.
func hear(ctx context.Context, conn, asks *netlink.Conn, heard func(lost bool)) error {
	var d deafness
	for ctx.Err() == nil {
		switch _, err := conn.Receive(announceStep); {
		case err == nil:
			d.hears()
			heard(false)
		case errors.Is(err, os.ErrDeadlineExceeded):
			// A kernel without nf_tables refuses to tell a generation, and announces none.
			if now, err := asks.Generation(); err == nil && d.deaf(now) {
				return errDeaf
			}
		case errors.Is(err, unix.ENOBUFS):
			d.hears()
			heard(true)
		default:
			return err
		}
	}
	return nil
}

// errDeaf is why another socket is opened.
var errDeaf = errors.New("the rules have changed, and nothing was announced")

// processorTime returns what this process and the programs that it has run have used.
func processorTime() time.Duration {
	var sum time.Duration
	for _, of := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if unix.Getrusage(of, &u) == nil { // it fails for another number only
			sum += time.Duration(unix.TimevalToNsec(u.Utime) + unix.TimevalToNsec(u.Stime))
		}
	}
	return sum
}

// notWatched is why an agent does not read the connection table.
const notWatched = "an agent does not read it: reading takes longer the more traffic there is"

// lockFile is the file of the xtables lock on the node (XT_LOCK_NAME in iptables/xshared.h).
const lockFile = "run/xtables.lock"

// NodeLooker returns what looks at the node of this process's network namespace, for one goroutine. It needs the PIDs
// of the node: the lock of a process that this one cannot see is not shown (locks_show in fs/locks.c). root is where
// the node's file system is.
func NodeLooker(root string) func() Moment {
	proxy := collect.ProxyLooker()
	return func() Moment {
		now := Moment{Proxy: proxy()}
		var s unix.Stat_t
		if unix.Stat(filepath.Join(root, lockFile), &s) == nil {
			if locks, err := os.ReadFile("/proc/locks"); err == nil {
				now.Lock = lockOf(string(locks), unix.Major(s.Dev), unix.Minor(s.Dev), s.Ino)
			}
		}
		return now
	}
}

// NodeReader returns what reads the files of the node of this process's network namespace, but for its connection
// table. root is where the node's file system is. It is for one goroutine.
func NodeReader(node, root string) func(context.Context) (*snapshot.Node, error) {
	memory := &collect.Memory{}
	return func(ctx context.Context) (*snapshot.Node, error) { return readNode(ctx, node, root, memory) }
}

func readNode(ctx context.Context, node, root string, memory *collect.Memory) (*snapshot.Node, error) {
	want := slices.DeleteFunc(slices.Clone(snapshot.NodeFiles), func(f string) bool { return f == snapshot.ConntrackFile })
	files, unread := map[string][]byte{}, map[string]string{snapshot.ConntrackFile: notWatched}
	err := collect.Collect(ctx, collect.Options{Root: root, Files: want, Memory: memory}, func(f collect.File) error {
		if f.Unread != "" {
			unread[f.Name] = f.Unread
		} else {
			files[f.Name] = f.Data
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	files[snapshot.UnreadFile] = snapshot.EncodeUnread(unread)
	return snapshot.NewNode(node, files), nil
}
