// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"bytes"
	"fmt"

	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
)

// Color is a colour or a face of text: the parameters of ECMA-48's SGR.
type Color string

// The colours.
const (
	Plain  Color = ""
	Bold   Color = "1"
	Red    Color = "31;1"
	Green  Color = "32"
	Yellow Color = "33"
	Cyan   Color = "36"
)

// Text is lines for people, in colour. Every piece is cleaned before it gets its colour, so that no escape sequence can
// come from one, and no newline.
type Text struct {
	color  bool
	buffer bytes.Buffer
	open   bool // something stands on the last line
}

// NewText makes an empty Text, with colour or without.
func NewText(color bool) *Text { return &Text{color: color} }

// Add adds a piece to the current line.
func (t *Text) Add(c Color, piece string) {
	if piece == "" {
		return
	}
	piece, t.open = safetext.Clean(piece), true
	if !t.color || c == Plain {
		t.buffer.WriteString(piece)
		return
	}
	t.buffer.WriteString("\x1b[" + string(c) + "m" + piece + "\x1b[0m")
}

// Addf adds a piece without colour to the current line.
func (t *Text) Addf(format string, args ...any) { t.Add(Plain, fmt.Sprintf(format, args...)) }

// End ends the current line.
func (t *Text) End() {
	t.buffer.WriteByte('\n')
	t.open = false
}

// Linef adds a piece without colour to the current line, and ends it.
func (t *Text) Linef(format string, args ...any) {
	t.Addf(format, args...)
	t.End()
}

// Blank adds an empty line, unless there is one already, or nothing else.
func (t *Text) Blank() {
	if t.open {
		t.End()
	}
	if t.buffer.Len() > 0 && !bytes.HasSuffix(t.buffer.Bytes(), []byte("\n\n")) {
		t.End()
	}
}
