// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/svcproxy/kubectl-svcproxy/internal/parallel"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// partSize is how many bytes of rules one goroutine reads before it takes the next ones.
const partSize = 128 << 10

// part is some of the rules of a table, which one goroutine reads.
type part struct {
	from, end int // in the text
	line      int // the number of the line before it

	stop  int // where what it has read ends: at its end, or at a line that is no rule
	runs  []run
	holes string
	err   error
}

// ahead reads the rules from a place of the text on, on all processors, and returns up to where: to the end of the
// table, or to something else between its rules. Of a short table it reads nothing.
func (p *parser) ahead(text string, at int) (stop int, err error) {
	end := strings.Index(text[at:], "\nCOMMIT") + 1
	if end < 2*partSize || runtime.GOMAXPROCS(0) == 1 {
		return at, nil
	}
	parts := divided(text, at, at+end, p.line)
	var next atomic.Int64
	var readers parallel.Group
	for range min(len(parts), runtime.GOMAXPROCS(0)) {
		readers.Go(func() {
			// Chains are not declared meanwhile.
			x := parser{scope: p.scope, compiler: compiler{shared: map[string]netfilter.Op{}}}
			for n := int(next.Add(1)) - 1; n < len(parts); n = int(next.Add(1)) - 1 {
				x.readPart(text, &parts[n])
			}
		})
	}
	readers.Wait()
	all := 1
	for i := range parts {
		all += len(parts[i].runs)
	}
	p.runs = slices.Grow(p.runs, all)
	for i := range parts {
		x := &parts[i]
		if x.err != nil {
			return 0, x.err
		}
		p.runs = append(p.runs, x.runs...)
		if p.table.Holes == "" {
			p.table.Holes = x.holes
		}
		if stop = x.stop; stop < x.end {
			break
		}
	}
	p.runs = append(p.runs, run{to: p.runs[len(p.runs)-1].to}) // the rules of the last one are in the memory of its parser
	p.line += strings.Count(text[at:stop], "\n")
	return stop, nil
}

// divided divides a text into parts that begin with a rule. No such line is within a quote (begins).
func divided(text string, from, end, line int) []part {
	parts := make([]part, 0, (end-from)/partSize+1)
	for at := from; at < end; {
		next := at + partSize
		for next < end {
			next = lineEnd(text, next) + 1
			if rest := text[min(next, end):end]; strings.HasPrefix(rest, "-A ") || strings.HasPrefix(rest, "[") {
				break
			}
		}
		next = min(next, end)
		parts = append(parts, part{from: at, end: next, line: line})
		line += strings.Count(text[at:next], "\n")
		at = next
	}
	return parts
}

// readPart reads a part, in a parser of its own.
func (p *parser) readPart(text string, x *part) {
	p.line, p.runs, p.table = x.line, nil, &netfilter.Table{Name: p.scope.table}
	text = text[:x.end]
	for x.stop = x.from; x.stop < x.end; {
		if c := text[x.stop]; c != '-' && c != '[' {
			break
		}
		if x.stop, x.err = p.item(text, x.stop); x.err != nil {
			return
		}
	}
	x.runs, x.holes = p.runs, p.table.Holes
}
