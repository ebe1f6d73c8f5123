// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// errStopped says that the caller needs no more nodes.
var errStopped = errors.New("no more nodes are needed")

// read reads nodes of the archive, each once, and yields each as soon as its last member was read. Where the members
// of nodes are mixed, nodes are put together side by side up to bounds.Kept bytes, and the others by reading the
// archive again.
func (a *archive) read(wanted map[string]bool) iter.Seq2[*Node, error] {
	return func(yield func(*Node, error) bool) {
		for pass := 2; len(wanted) > 0; pass++ {
			if pass > bounds.Passes {
				yield(nil, bounds.Errorf("%s has the files of its nodes mixed, so that it has to be read more than %d times: "+
					"an archive with the files of each node together was expected", a.path, bounds.Passes))
				return
			}
			err := a.pass(wanted, func(n *Node) bool { return yield(n, nil) })
			if errors.Is(err, errStopped) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// pass reads the archive once, and removes from wanted the nodes that it yields: one at least.
func (a *archive) pass(wanted map[string]bool, yield func(*Node) bool) error {
	f, err := os.Open(a.path)
	if err != nil {
		return fmt.Errorf("cannot read the snapshot: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !os.SameFile(info, a.info) || info.Size() != a.info.Size() ||
		!info.ModTime().Equal(a.info.ModTime()) {
		return a.changed()
	}
	p := &pass{archive: a, wanted: wanted, open: map[string]*Node{}, yield: yield}
	for n := range wanted {
		p.end = max(p.end, a.nodes[n].last)
	}
	if err := readTar(a.path, f, p.member); err != nil {
		return err
	}
	if len(p.open) > 0 || p.next <= p.end && !p.stopped {
		return a.changed()
	}
	if p.stopped {
		return errStopped
	}
	return nil
}

func (a *archive) changed() error {
	return fmt.Errorf("%s changed while it was read", a.path)
}

// pass is one reading of an archive.
type pass struct {
	*archive

	wanted  map[string]bool
	open    map[string]*Node // of which files were read
	held    int64            // bytes of open
	next    int              // in members
	end     int              // the last member that is needed
	yield   func(*Node) bool
	stopped bool
}

func (p *pass) member(h *tar.Header, r io.Reader) error {
	name, err := memberName(p.path, h)
	if err != nil {
		return err
	}
	root, ok := rootOf(name)
	if !ok || h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeGNUSparse {
		return nil
	}
	file := name[len(root):]
	node, ok := nodeOf(file)
	if !ok {
		return nil
	}
	at := p.next
	p.next++
	if at >= len(p.members) || p.members[at].node != node || p.members[at].size != h.Size {
		return bounds.Errorf("%s changed while it was read", p.path)
	}
	if err := p.take(at, p.path+" "+name, r); err != nil {
		return err
	}
	if p.stopped || at == p.end {
		return errStop
	}
	return nil
}

// take reads a file if its node is read in this pass.
func (p *pass) take(at int, full string, r io.Reader) error {
	m := p.members[at]
	all := p.nodes[m.node]
	n := p.open[m.node]
	if n == nil {
		fits := len(p.open) == 0 || p.held+all.size <= bounds.Kept
		if !p.wanted[m.node] || at != all.first || !fits {
			return nil
		}
		n = newNode(m.node)
		p.open[m.node] = n
		p.held += all.size
	}
	data, err := readUpTo(full, r, bounds.File, m.size)
	if err != nil {
		return err
	}
	n.files[m.file] = memory(full, data)
	if at == all.last {
		delete(p.open, m.node)
		delete(p.wanted, m.node)
		p.held -= all.size
		p.stopped = !p.yield(n)
	}
	return nil
}
