// SPDX-License-Identifier: Apache-2.0

// Package terminal is what the plugin prints through. A [Stream] is standard output or standard error: the commands
// have no other access to them. It takes no bytes: it takes lines, texts with colour, documents, and each has its own
// method, which removes or escapes what could give orders to a terminal or pass for a line of the plugin's own
// (internal/safetext). The only escape sequences that reach a terminal are those that this package adds.
package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
)

// Style is what is printed to can show.
type Style struct {
	Color bool
	Width int // columns; 0 where nothing is to be cut (a pipe, a file)
}

// narrowest and widest are the widths that COLUMNS may set.
const (
	narrowest = 20
	widest    = 10000
)

// Stream is standard output or standard error. It is safe for concurrent use.
type Stream struct {
	mu       sync.Mutex
	out      io.Writer
	style    Style
	terminal bool
	live     bool // a terminal that can move its cursor
}

// NewStream makes a Stream of a writer, and finds out what it can show. Only a terminal has colour, and NO_COLOR
// (no-color.org) removes it. The width is that of the terminal; of anything else that of COLUMNS, which watch(1) sets
// and no shell exports by itself.
func NewStream(out io.Writer, getenv func(string) string) *Stream {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		s := &Stream{out: out}
		if w, err := strconv.Atoi(getenv("COLUMNS")); err == nil && w >= narrowest && w <= widest {
			s.style.Width = w
		}
		return s
	}
	s := &Stream{out: out, terminal: true, live: getenv("TERM") != "dumb"}
	s.style.Color = s.live && getenv("NO_COLOR") == ""
	if w, _, err := term.GetSize(int(f.Fd())); err == nil {
		s.style.Width = w
	}
	return s
}

// Live makes a Stream of a writer that is taken for a terminal of a style, one that can move its cursor.
func Live(out io.Writer, style Style) *Stream {
	return &Stream{out: out, style: style, terminal: true, live: true}
}

// Style is what the stream can show.
func (s *Stream) Style() Style { return s.style }

// IsLive tells whether the stream is a terminal that can move its cursor.
func (s *Stream) IsLive() bool { return s.live }

// Line writes one line, whatever the arguments contain. That it cannot be written is not reported: it is for notes
// and errors, of which there would be nowhere to tell it.
func (s *Stream) Line(format string, args ...any) {
	_ = s.write([]byte(safetext.Clean(fmt.Sprintf(format, args...)) + "\n"))
}

// Sentence is Line for a text of many words. A terminal breaks a line that is too wide wherever it ends, within words,
// too: there it is wrapped between them, and continued further to the right, so that nothing in it begins a line of its
// own. A command stays whole, to be copied.
func (s *Stream) Sentence(format string, args ...any) {
	text := safetext.Clean(fmt.Sprintf(format, args...))
	width := s.style.Width
	if !s.terminal || width < narrowest || plaintext.Width(text) <= width {
		_ = s.write([]byte(text + "\n"))
		return
	}
	const below = "  "
	var out strings.Builder
	line := ""
	for _, word := range wordOrCommand().FindAllString(text, -1) {
		switch {
		case line == "":
			line = word
		case plaintext.Width(line)+1+plaintext.Width(word) <= width:
			line += " " + word
		default:
			out.WriteString(line + "\n")
			line = below + word
		}
	}
	_ = s.write([]byte(out.String() + line + "\n"))
}

// wordOrCommand is what stays in one piece when a sentence is wrapped.
var wordOrCommand = lazyregexp.New(`\(?kubectl(?: [^\s():;,?]+)+\S*|\S+`)

// Prompt writes a question; the cursor stays behind it.
func (s *Stream) Prompt(format string, args ...any) {
	_ = s.write([]byte(safetext.Clean(fmt.Sprintf(format, args...)) + " "))
}

// Text writes a text with its colours.
func (s *Stream) Text(t *Text) error { return s.write(t.buffer.Bytes()) }

// Document writes a document of several lines. What composed it has cleaned the values or escaped them, as their
// newlines cannot be told from the document's own; every other unsafe character is replaced here. A terminal's prompt
// begins on a line of its own after it.
func (s *Stream) Document(text []byte) error {
	text = []byte(safetext.CleanLines(string(text)))
	if s.terminal && len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
		text = append(text, '\n')
	}
	return s.write(text)
}

// JSON writes a JSON document, with escapes in place of unsafe characters: the values stay the same.
func (s *Stream) JSON(text []byte) error { return s.Document(safetext.EscapeJSON(text)) }

// YAML writes a JSON document as YAML, as kubectl does, with escapes in place of unsafe characters: the values stay the
// same.
func (s *Stream) YAML(text []byte) error {
	// A JSON document is one of YAML, but for control characters, which it may have and YAML has as escapes only.
	text, err := yaml.JSONToYAML(safetext.EscapeYAML(text))
	if err == nil {
		text, err = quoteUnsafe(text)
	}
	if err != nil {
		return err
	}
	return s.Document(safetext.EscapeYAML(text))
}

// Erase clears the last lines, and moves the cursor to the beginning of the first of them.
func (s *Stream) Erase(lines int) {
	if s.live && lines > 0 {
		_ = s.write([]byte("\r" + strings.Repeat("\x1b[1A\x1b[2K", lines)))
	}
}

// Archive writes data that is not text, unchanged. A terminal does not take it.
func (s *Stream) Archive(data io.Reader) error {
	if s.terminal {
		return errors.New("an archive is not written to a terminal: give a file, or redirect standard output")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := io.Copy(s.out, data)
	return err
}

// Writer returns the stream for what writes texts of its own composition: the help and the completions of cobra, and
// logs. Each Write is one [Stream.Document], without a newline added.
func (s *Stream) Writer() io.Writer { return documents{s} }

type documents struct{ s *Stream }

func (d documents) Write(text []byte) (int, error) {
	if err := d.s.write([]byte(safetext.CleanLines(string(text)))); err != nil {
		return 0, err
	}
	return len(text), nil
}

func (s *Stream) write(data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.out.Write(data)
	return err
}
