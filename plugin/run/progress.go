// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"slices"
	"sync"

	"github.com/maruel/natural"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
)

// Progress shows the progress on a terminal: a line for the run, and one for each node that is being read. The lines
// are cleared before the result. In a pipe it only writes notes. It is safe for concurrent use.
type Progress struct {
	out *terminal.Stream

	mu    sync.Mutex
	whole string
	nodes []nodeLine
	drawn int // lines on the terminal now
}

type nodeLine struct{ name, what string }

// manyLines is how many nodes get a line of their own.
const manyLines = 8

// NewProgress makes a Progress that writes to out.
func NewProgress(out *terminal.Stream) *Progress { return &Progress{out: out} }

// Say sets the line of the run.
func (p *Progress) Say(format string, args ...any) {
	p.update(func() { p.whole = fmt.Sprintf(format, args...) })
}

// Node sets the line of a node.
func (p *Progress) Node(name, what string) {
	p.update(func() {
		if i := p.find(name); i >= 0 {
			p.nodes[i].what = what
			return
		}
		p.nodes = append(p.nodes, nodeLine{name, what})
		slices.SortFunc(p.nodes, func(a, b nodeLine) int { return natural.Compare(a.name, b.name) })
	})
}

// NodeDone removes the line of a node.
func (p *Progress) NodeDone(name string) {
	p.update(func() {
		if i := p.find(name); i >= 0 {
			p.nodes = slices.Delete(p.nodes, i, i+1)
		}
	})
}

func (p *Progress) find(name string) int {
	return slices.IndexFunc(p.nodes, func(l nodeLine) bool { return l.name == name })
}

// Note writes a line that stays, also in a pipe. It is one line, whatever the arguments contain.
func (p *Progress) Note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	p.out.Sentence("note: "+format, args...)
	p.draw()
}

// Done clears all lines.
func (p *Progress) Done() {
	p.update(func() { p.whole, p.nodes = "", nil })
}

func (p *Progress) update(change func()) {
	if !p.out.IsLive() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.clear()
	p.draw()
}

// clear clears the lines, and moves the cursor back to their beginning.
func (p *Progress) clear() {
	p.out.Erase(p.drawn)
	p.drawn = 0
}

func (p *Progress) draw() {
	if !p.out.IsLive() {
		return
	}
	var lines []string
	if p.whole != "" {
		lines = append(lines, p.whole+" …")
	}
	for i, n := range p.nodes {
		if i == manyLines {
			lines = append(lines, fmt.Sprintf("… and %d nodes more", len(p.nodes)-i))
			break
		}
		lines = append(lines, n.name+"  "+n.what+" …")
	}
	for _, l := range lines {
		l = plaintext.Clean(l)
		if width := p.out.Style().Width; width > 1 {
			l = plaintext.Start(l, width-1) // a line that wraps would be two to take away
		}
		p.out.Line("%s", l)
	}
	p.drawn = len(lines)
}
