// SPDX-License-Identifier: Apache-2.0

// Package program puts the paths of a plan on a node, and takes them away again.
//
// What it does it first writes into a journal on the node (see [Record]), so that it can be undone however it ends: by
// whoever did it, at its time or before, or by anybody else once that one is gone. Undoing looks at what is there, and
// may be repeated; how far doing got it asks of virtual servers alone, to tell its own from those that somebody else
// has changed since. One at a time may change a node: a lock on the journal sees to that.
package program

// Options say where.
type Options struct {
	// Root is where the node's file system is.
	Root string
	// Roots lists the file systems whose iptables is run, the first that has it; nil: this process's own. Who wrote the
	// rules that are there has to understand those that come to stand beside them: a newer iptables-nft writes what an
	// older one cannot read.
	Roots func() []string
}

// RefusalError is why a request is not done, in one sentence: it would not be safe.
type RefusalError string

func (r RefusalError) Error() string { return string(r) }
