// SPDX-License-Identifier: Apache-2.0

package print

import (
	"io"
	"os"

	"golang.org/x/term"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Style is what the place printed to can show.
type Style struct {
	Color bool
	Width int // columns; 0 where nothing is to be cut (a pipe, a file)
}

// StyleOf finds out what a writer can show. Only a terminal gets colour and cut lines, and NO_COLOR (no-color.org)
// takes the colour away.
func StyleOf(out io.Writer, getenv func(string) string) Style {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return Style{}
	}
	s := Style{Color: getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
	if w, _, err := term.GetSize(int(f.Fd())); err == nil {
		s.Width = w
	}
	return s
}

func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

type color string

const (
	plain  color = ""
	bold   color = "1"
	red    color = "31;1"
	green  color = "32"
	yellow color = "33"
	cyan   color = "36"
)

func (s Style) paint(c color, text string) string {
	if !s.Color || c == plain || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

func colorOf(v report.Verdict) color {
	switch v {
	case report.Mismatch:
		return red
	case report.Unknown, report.Warning:
		return yellow
	case report.ByDesign:
		return cyan
	case report.Match:
		return green
	}
	return plain
}
