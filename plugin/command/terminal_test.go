// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
)

// A plan is there to be pasted into a shell: what the node says of a command makes no second one, and its input does
// not end before its end.
func TestAPlanHasNoForgedCommand(t *testing.T) {
	text := terminal.NewText(false)
	for _, c := range []wire.Command{
		{Line: "ip link\nreboot\x1b[1A\u202e"},
		{Line: "nft -f -", Input: "table ip x {\n}\nEOF\nreboot\n"},
		{Line: "nft -f -", Input: "a\r\nEOF_\nEOF\x1b\nEOF"},
	} {
		commandText(text, &c)
	}
	var b bytes.Buffer
	if err := terminal.NewStream(&b, os.Getenv).Text(text); err != nil {
		t.Fatal(err)
	}
	want := "ip link reboot\uFFFD[1A\uFFFD\n" +
		"nft -f - <<'EOF_'\ntable ip x {\n}\nEOF\nreboot\nEOF_\n" +
		"nft -f - <<'EOF__'\na \nEOF_\nEOF\uFFFD\nEOF\nEOF__\n"
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The Go runtime would print the value of a panic as it is.
func TestACrashIsPrintedClean(t *testing.T) {
	var b bytes.Buffer
	code := crashed(terminal.NewStream(&b, os.Getenv), "no \x1b[2J\nerror: forged")
	const want = "error: this is a defect of kubectl svcproxy, please report it: no \uFFFD[2J error: "
	if code != run.ExitNotInspected || wrongWith(b.String(), false) != nil || !strings.HasPrefix(b.String(), want) {
		t.Errorf("got %d and %q", code, b.String())
	}
}

func TestANameThatBeginsWithADashIsNoFlag(t *testing.T) {
	for in, want := range map[string]string{
		"web": "web", "-A": "service/-A", "--image=x": "service/--image=x", "a b": "a b",
	} {
		if got := nameArgument(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}
