// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// remedy is what to do about findings of a kind: advice, and commands for it, in their order. Both have placeholders:
// {node} stands for the node, {where} for the place and {subject} for the subject of the finding. In a command their
// values are quoted for the shell, and a placeholder stands where the value cannot be taken for an option.
type remedy struct {
	text     string
	commands []command
}

// command is a command of a remedy.
type command struct {
	line   string
	onNode bool   // to be run on the node, as root
	when   string // under which condition; empty: in any case

	// These are in place of all the rest: what makes kube-proxy write every rule again, and what shows why it does not
	// run. Both depend on how it runs on the node.
	restart, find bool
	// chain is in place of them, too: the command that lists the chain at which the issue is.
	chain bool
}

// advice makes a remedy.
func advice(text string, commands ...command) remedy { return remedy{text, commands} }

// restartProxy is the command that restarts kube-proxy on the node.
var restartProxy = command{restart: true}

// restart is the remedy where kube-proxy has to write its rules again.
var restart = advice("restart kube-proxy on {node}: it rewrites all its rules", restartProxy)

// advise fills in a remedy for an issue of the node.
func (n *node) advise(r remedy, i *issue) report.Remedy { return n.adviseAt(n.Name, r, i) }

// adviseAt is advise for an issue of another node, which is not judged: what is done about kube-proxy there is not
// known.
func (n *node) adviseAt(at string, r remedy, i *issue) report.Remedy {
	where := i.where.String()
	if where == "" {
		where = "the rule"
	}
	values := []string{"{node}", at, "{where}", where, "{subject}", i.subject}
	quoted := make([]string, len(values))
	for k := range values {
		if quoted[k] = values[k]; k%2 == 1 {
			quoted[k] = report.ShellWord(values[k])
		}
	}
	text, line := strings.NewReplacer(values...), strings.NewReplacer(quoted...)
	out := report.Remedy{Text: text.Replace(r.text)}
	for _, c := range r.commands {
		switch how := n.runsAs(); {
		case c.restart:
			kept, known := n.keptChain(i)
			if known {
				out.Text, out.Commands = kept.Text, append(out.Commands, kept.Commands...)
				continue
			}
			for _, x := range slices.Concat(kept.Commands, how.restart(n)) {
				if !slices.Contains(out.Commands, x) { // that which finds out how it runs
					out.Commands = append(out.Commands, x)
				}
			}
			for _, note := range []string{how.note(n), kept.Text} {
				if note != "" {
					out.Text += "; " + note
				}
			}
			continue
		case c.find:
			out.Commands = append(out.Commands, how.find(n))
			continue
		case c.chain:
			if list := listChain(i.where, familyAt(i.where)); list != "" {
				out.Commands = append(out.Commands, report.Command{Line: list, Node: n.Name})
			}
			continue
		}
		filled := report.Command{Line: line.Replace(c.line), When: c.when}
		if c.onNode {
			filled.Node = at
		}
		out.Commands = append(out.Commands, filled)
	}
	return out
}
