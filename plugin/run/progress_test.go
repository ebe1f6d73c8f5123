// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
)

// screen shows what a terminal would, of the few sequences that progress uses.
func screen(t *testing.T, text string) string {
	t.Helper()
	lines := []string{""}
	for text != "" {
		switch {
		case strings.HasPrefix(text, "\x1b[1A"):
			if lines = lines[:len(lines)-1]; len(lines) == 0 {
				t.Fatal("the cursor leaves the lines that were drawn")
			}
			text = text[len("\x1b[1A"):]
		case strings.HasPrefix(text, "\x1b[2K"):
			lines[len(lines)-1] = ""
			text = text[len("\x1b[2K"):]
		case text[0] == '\n':
			lines = append(lines, "")
			text = text[1:]
		case text[0] == '\r':
			text = text[1:]
		case text[0] == '\x1b':
			t.Fatalf("an unknown sequence: %q", text[:min(10, len(text))])
		default:
			lines[len(lines)-1] += text[:1]
			text = text[1:]
		}
	}
	return strings.Join(lines, "\n")
}

func TestProgress(t *testing.T) {
	var b bytes.Buffer
	p := NewProgress(terminal.Live(&b, terminal.Style{Width: 24}))
	shows := func(want string) {
		t.Helper()
		if got := screen(t, b.String()); got != want {
			t.Errorf("the terminal shows\n%s\nwant\n%s", got, want)
		}
	}
	p.Say("reading %s", "it")
	shows("reading it …\n")
	p.Node("n2", "pulling")
	p.Node("n1", "collecting")
	p.Node("n2", "starting")
	shows("reading it …\nn1  collecting …\nn2  starting …\n")
	p.Note("%s stays", "this")
	shows("note: this stays\nreading it …\nn1  collecting …\nn2  starting …\n")
	p.NodeDone("n1")
	p.Node("n2", "a line that is far too long for it")
	shows("note: this stays\nreading it …\nn2  a line that is far \n")
	p.Done()
	shows("note: this stays\n")
	for i := range manyLines + 3 {
		p.Node(fmt.Sprintf("m%02d", i), "x")
	}
	shows("note: this stays\nm00  x …\nm01  x …\nm02  x …\nm03  x …\nm04  x …\nm05  x …\nm06  x …\nm07  " +
		"x …\n… and 3 nodes more\n")
}

func TestProgressInAPipeSaysNothingButNotes(t *testing.T) {
	var b bytes.Buffer
	p := NewProgress(terminal.NewStream(&b, os.Getenv))
	p.Say("reading")
	p.Node("n", "x")
	p.Note("this stays")
	p.NodeDone("n")
	p.Done()
	if got := b.String(); got != "note: this stays\n" {
		t.Errorf("got %q", got)
	}
}
