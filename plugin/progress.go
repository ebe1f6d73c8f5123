// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/svcproxy/kubectl-svcproxy/plugin/print"
)

// progress says on a terminal what is going on: a line for the whole, and one for each node at work. The lines go away with the
// result. In a pipe it says nothing but notes. It is safe for concurrent use.
type progress struct {
	out   io.Writer
	live  bool // out is a terminal that can move its cursor
	width int

	mu    sync.Mutex
	whole string
	nodes []nodeLine
	drawn int // lines on the terminal now
}

type nodeLine struct{ name, what string }

// manyLines is how many nodes get a line of their own.
const manyLines = 8

func newProgress(errOut io.Writer, getenv func(string) string) *progress {
	// Moving the cursor asks as much of a terminal as colour does; only NO_COLOR does not mean it.
	style := print.StyleOf(errOut, func(key string) string {
		if key == "NO_COLOR" {
			return ""
		}
		return getenv(key)
	})
	return &progress{out: errOut, live: style.Color, width: style.Width}
}

// say sets the line for the whole.
func (p *progress) say(format string, args ...any) {
	p.update(func() { p.whole = fmt.Sprintf(format, args...) })
}

// node sets the line of a node.
func (p *progress) node(name, what string) {
	p.update(func() {
		if i := p.find(name); i >= 0 {
			p.nodes[i].what = what
			return
		}
		p.nodes = append(p.nodes, nodeLine{name, what})
		slices.SortFunc(p.nodes, func(a, b nodeLine) int { return strings.Compare(a.name, b.name) })
	})
}

// nodeDone takes the line of a node away.
func (p *progress) nodeDone(name string) {
	p.update(func() {
		if i := p.find(name); i >= 0 {
			p.nodes = slices.Delete(p.nodes, i, i+1)
		}
	})
}

func (p *progress) find(name string) int {
	return slices.IndexFunc(p.nodes, func(l nodeLine) bool { return l.name == name })
}

// note writes a line that stays, in a pipe, too.
func (p *progress) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.out, "note: "+format+"\n", args...)
	p.draw()
}

// done takes all lines away.
func (p *progress) done() {
	p.update(func() { p.whole, p.nodes = "", nil })
}

func (p *progress) update(change func()) {
	if !p.live {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.clear()
	p.draw()
}

// clear takes what was drawn away, and leaves the cursor where it was before.
func (p *progress) clear() {
	if p.drawn > 0 {
		fmt.Fprint(p.out, "\r"+strings.Repeat("\x1b[1A\x1b[2K", p.drawn))
		p.drawn = 0
	}
}

func (p *progress) draw() {
	if !p.live {
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
		if r := []rune(l); p.width > 1 && len(r) >= p.width {
			l = string(r[:p.width-1]) // a line that wraps would be two to take away
		}
		fmt.Fprintln(p.out, l)
	}
	p.drawn = len(lines)
}
