// SPDX-License-Identifier: Apache-2.0

// Package program programs the paths of a plan on a node, and removes them again.
//
// Every change is first written to a journal on the node (see [Record]), so that it can be undone however it ends: by
// the process that made it, when it expires or before, or by any other process after that one has ended. Undoing reads
// the node's state, and can be repeated. Only of virtual servers it also uses how far the change got, to distinguish
// its own from those that another program has changed since. A lock on the journal ensures that one process at a time
// changes a node.
//
// A plan has a time limit, which holds also if its process is killed: see expiry.go.
package program

// Options are the file systems of a Programmer.
type Options struct {
	// Root is the path of the node's file system: "/" if empty.
	Root string
	// Roots returns the file systems from which iptables is run, the first that contains it; nil: this process's own. The
	// program that wrote the existing rules has to understand those that are added: a newer iptables-nft writes rules that
	// an older one cannot read.
	Roots func() []string
	// Log writes a line for people who read what the process says; nil: nobody does.
	Log func(line string)
	// Expirer is the command line of a process that calls [Programmer.Expire]; the flag --root, Root and the name of a
	// plan are appended. Its file descriptor 3 takes what Expire writes. Empty: what the kernel does not end by itself
	// stays until another helper undoes it, if this process is killed.
	Expirer []string
}

// RefusalError is the reason, in one sentence, why a request is refused: it would not be safe.
type RefusalError string

// Error returns the reason.
func (r RefusalError) Error() string { return string(r) }
