// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/plugin/print"
)

// The exit codes, the same for every command.
const (
	ExitRight        = 0   // the path is right, by-design refusals included
	ExitMismatch     = 1   // at least one mismatch
	ExitUsage        = 2   // wrong usage, or input that cannot be read
	ExitNotInspected = 3   // something could not be inspected: no claim is made
	ExitWarning      = 4   // only warnings
	ExitInterrupted  = 130 // by a signal
)

// codeError ends the program with an exit code. Without a message, all there is to say has been printed.
type codeError struct {
	code int
	error
}

func (e codeError) Unwrap() error { return e.error }

// usagef makes the error of wrong usage.
func usagef(format string, args ...any) error {
	return codeError{ExitUsage, fmt.Errorf(format, args...)}
}

// exit prints an error, in one line, and returns the exit code. What goes wrong without a code of its own is input that cannot be
// read: what a node withholds is in its report.
func exit(ctx context.Context, err error, errOut io.Writer) int {
	if err == nil {
		return ExitRight
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		fmt.Fprintln(errOut, "error: interrupted")
		return ExitInterrupted
	}
	code := ExitUsage
	if c, ok := errors.AsType[codeError](err); ok {
		if c.error == nil {
			return c.code
		}
		code = c.code
	}
	fmt.Fprintln(errOut, "error: "+strings.Join(strings.Fields(err.Error()), " "))
	return code
}

// conclude prints a report and makes its exit code. Which nodes could not be inspected it tells on stderr too, as in json or a
// pipe they are easily overlooked; and first, so that on a terminal the verdict stays the last line.
func conclude(s *shared, p *print.Printer, r *report.Report, v print.View) error {
	for i := range r.Nodes {
		if n := &r.Nodes[i]; n.Error != "" {
			fmt.Fprintf(s.ErrOut, "error: node %s was not inspected: %s\n", n.Node, print.Sentence(n))
		}
	}
	v.Style = print.StyleOf(s.Out, s.getenv)
	if err := p.Report(s.Out, r, v); err != nil {
		return usagef("%w", err)
	}
	switch r.Verdict {
	case report.Mismatch:
		return codeError{code: ExitMismatch}
	case report.Unknown:
		return codeError{code: ExitNotInspected}
	case report.Warning:
		return codeError{code: ExitWarning}
	case report.Match, report.ByDesign:
		return nil
	}
	return codeError{code: ExitNotInspected}
}
