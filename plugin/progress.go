// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"io"

	"github.com/svcproxy/kubectl-svcproxy/plugin/report"
)

// progress is a line on the terminal that says what is going on, and that goes away with the result. In a pipe it says nothing.
type progress struct {
	out  io.Writer // nil: not a terminal
	said bool
}

func newProgress(errOut io.Writer, getenv func(string) string) *progress {
	// Moving the cursor asks as much of a terminal as colour does; only NO_COLOR does not mean it.
	if report.StyleOf(errOut, func(key string) string {
		if key == "NO_COLOR" {
			return ""
		}
		return getenv(key)
	}).Color {
		return &progress{out: errOut}
	}
	return &progress{}
}

func (p *progress) say(format string, args ...any) {
	if p.out != nil {
		fmt.Fprintf(p.out, "\r\x1b[K"+format+" …", args...)
		p.said = true
	}
}

// done takes the line away.
func (p *progress) done() {
	if p.said {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.said = false
	}
}
