// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"strings"

	"github.com/spf13/cobra"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
)

// narrowestText is how narrow a column of text becomes at most: a text that has less room stands below its name.
const narrowestText = 30

// belowName is how far a text is indented that stands below its name.
const belowName = 10

// fitHelps makes the help of all commands fit the terminal.
func fitHelps(env *environment, root *cobra.Command) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		var b bytes.Buffer
		c.SetOut(&b)
		help(c, args)
		c.SetOut(env.out.Writer())
		_ = env.out.Document([]byte(fitHelp(b.String(), env.out.Style().Width))) // there is nowhere else to say it
	})
}

// listed is a line of a list of commands or flags: a name, and what it means.
var listed = lazyregexp.New(`^( +\S.*?)(  +)(\S.*)$`)

// fitHelp breaks the lines of a help text at a width; 0: they stay as they are. Commands to copy stay whole.
func fitHelp(help string, width int) string {
	if width == 0 {
		return help
	}
	var out []string
	inUsage := false // behind the description
	for paragraph := range strings.SplitSeq(strings.TrimSuffix(help, "\n"), "\n\n") {
		inUsage = inUsage || strings.HasPrefix(paragraph, "Usage:\n")
		switch {
		case strings.HasPrefix(paragraph, "\t"): // a command of cobra's own texts
		case tooWide(paragraph, width) && inUsage:
			var lines []string
			for line := range strings.SplitSeq(paragraph, "\n") {
				lines = append(lines, fitUsage(line, width)...)
			}
			paragraph = strings.Join(lines, "\n")
		case tooWide(paragraph, width):
			paragraph = reflow(paragraph, width)
		}
		out = append(out, paragraph)
	}
	return strings.Join(out, "\n\n") + "\n"
}

// tooWide tells whether a text has a line that is wider than it may be.
func tooWide(text string, width int) bool {
	for line := range strings.SplitSeq(text, "\n") {
		if plaintext.Width(line) > width {
			return true
		}
	}
	return false
}

// fitUsage breaks a line of what cobra prints: of a list its second column, of an example the comment.
func fitUsage(line string, width int) []string {
	if item := listed().FindStringSubmatch(line); item != nil {
		return beside(item[1]+item[2], item[3], width)
	}
	lead := ""
	switch {
	case plaintext.Width(line) <= width:
		return []string{line}
	case strings.HasPrefix(line, "  # "):
		lead = "  # "
	case strings.HasPrefix(line, " "): // a command
		return []string{line}
	}
	lines := plaintext.Wrap(strings.TrimPrefix(line, lead), max(width-len(lead), narrowestText))
	for i := range lines {
		lines[i] = lead + lines[i]
	}
	return lines
}

// beside writes a text behind the first column of its line, and continues it below itself; below that column where
// there is no room beside it. A width of 0 is none.
func beside(first, text string, width int) []string {
	indent := plaintext.Width(first)
	if width == 0 {
		return []string{first + text}
	}
	var lines []string
	if width-indent < narrowestText {
		lines, first, indent = append(lines, strings.TrimRight(first, " ")), strings.Repeat(" ", belowName), belowName
	}
	for _, part := range plaintext.Wrap(text, max(width-indent, narrowestText)) {
		lines = append(lines, first+part)
		first = strings.Repeat(" ", indent)
	}
	return lines
}

// reflow breaks the paragraphs and list items of a page at a width; 0: they stay as they are.
func reflow(page string, width int) string {
	if width == 0 {
		return page
	}
	var out []string
	var item string // the one that is being read
	end := func() {
		if item != "" {
			text := strings.TrimLeft(item, " ")
			indent := strings.Repeat(" ", len(item)-len(text))
			below := indent
			if strings.HasPrefix(text, "- ") {
				below += "  "
			}
			lines := plaintext.Wrap(text, max(width-len(below), narrowestText))
			out = append(out, indent+lines[0])
			for _, line := range lines[1:] {
				out = append(out, below+line)
			}
		}
		item = ""
	}
	for line := range strings.SplitSeq(page, "\n") {
		text := strings.TrimSpace(line)
		switch {
		case text == "":
			end()
			out = append(out, "")
		case strings.HasPrefix(text, "- ") || item == "":
			end()
			item = line
		default:
			item += " " + text
		}
	}
	end()
	return strings.Join(out, "\n")
}
