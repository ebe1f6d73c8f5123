// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// remedies writes those of blocks of one code, each once, and the links of the code.
func (t *text) remedies(blocks []*block) {
	fixes := fixesOf(blocks)
	if len(fixes) > 0 {
		t.keep(blocks[0].verdict)
	}
	for i, fix := range fixes {
		if i == fixLimit && !t.wide {
			t.line("", fmt.Sprintf("… and %d more of the kind", len(fixes)-fixLimit), true)
			break
		}
		label := "fix"
		if i > 0 {
			label = ""
		}
		t.fix(label, fix)
	}
	for i, link := range blocks[0].links {
		label := "links"
		if i > 0 {
			label = ""
		}
		t.line(label, link, false)
	}
}

// fixesOf are the remedies of blocks, each once. Those with the same advice follow one another, and the first has it.
func fixesOf(blocks []*block) []report.Remedy {
	var all block
	for _, b := range blocks {
		for _, fix := range b.fixes {
			all.addFix(fix)
		}
	}
	out := make([]report.Remedy, 0, len(all.fixes))
	for i, fix := range all.fixes {
		same := func(o report.Remedy) bool { return fix.Text != "" && o.Text == fix.Text }
		if slices.ContainsFunc(all.fixes[:i], same) {
			continue // it stands with the first
		}
		out = append(out, fix)
		for _, more := range all.fixes[i+1:] {
			if same(more) {
				more.Text = ""
				out = append(out, more)
			}
		}
	}
	return out
}

// fix writes a remedy: the advice, then each command in a line of its own, which is to be copied in one piece.
func (t *text) fix(label string, r report.Remedy) {
	line := func(s string, breakable bool) {
		t.line(label, s, breakable)
		label = ""
	}
	if r.Text != "" {
		line(r.Text, true)
	}
	for _, c := range led(r.Commands) {
		if c.Lead != "" {
			line(c.Lead+":", true)
		}
		if label == "" { // something stands above that it is for
			c.Line = "  " + c.Line
		}
		line(c.Line, false)
	}
}

// pasted is a command to paste, and what is said before it.
type pasted struct{ Lead, Line string }

// led says of each command where and when it is to be run.
func led(commands []report.Command) []pasted {
	out := make([]pasted, len(commands))
	above := "" // where and when the command above is run
	for i := range commands {
		lead := leadOf(&commands[i])
		out[i] = pasted{lead, commands[i].Line}
		switch lead {
		case above: // said
			out[i].Lead = ""
		case "":
			out[i].Lead = "then" // and not where and when the one above is run
		}
		above = lead
	}
	return out
}

// leadOf says where and when a command is to be run; "" where there is nothing to say.
func leadOf(c *report.Command) string {
	switch {
	case c.Node == "":
		return c.When
	case c.When == "":
		return "on " + c.Node
	}
	return "on " + c.Node + ", " + c.When
}

// keep says, once and before the first remedy, how to keep the evidence: a remedy removes it.
func (t *text) keep(v report.Verdict) {
	if t.kept || !pressing(v) {
		return
	}
	t.kept = true
	label := "keep"
	for _, c := range t.view.Keep.Commands {
		t.line(label, c.Line, false)
		label = ""
	}
}
