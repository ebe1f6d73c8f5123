// SPDX-License-Identifier: Apache-2.0

// Package collect reads what a node's kernel and its kube-proxy hold, and returns it as the files of the snapshot
// contract (docs/snapshots.md). It changes nothing on the node: it takes no lock, loads no kernel module, writes no
// setting. The one trace that it leaves for ten seconds are the conntrack entries of its own questions to kube-proxy on
// the loopback interface.
package collect

import (
	"context"
	"errors"
	"slices"
)

// Options are what to read, and from where.
type Options struct {
	// Root is where the node's own file system is to be found, for its binaries and configuration: "/" on the node itself,
	// "/proc/1/root" in a pod with hostPID. Empty: it cannot be had.
	Root string
	// Files are the names of the contract's files to read; nil: all of them.
	Files []string
	// Memory is what earlier readings of the same network namespace have left; nil: nothing.
	Memory *Memory
}

// wants tells whether a file is to be read.
func (o *Options) wants(file string) bool { return o.Files == nil || slices.Contains(o.Files, file) }

// File is one file of the snapshot contract, or why it was not read.
type File struct {
	Name string // as in snapshot.NodeFiles
	Data []byte
	// Unread says in one sentence why there is no Data: the node has it, or may have it, and it could not be read.
	Unread string
}

// errAbsent says that there certainly is nothing to read: a kernel without the feature, a table that does not exist.
var errAbsent = errors.New("there is none")

// Collect reads the node of this process's network namespace, and calls emit for each file, in no order. For a file
// that is not emitted the node certainly has no source. The error is that of emit, or of the context.
func Collect(ctx context.Context, o Options, emit func(File) error) error {
	return collect(ctx, o, emit)
}
