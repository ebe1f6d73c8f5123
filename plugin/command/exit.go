// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/plugin/print"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// exit prints an error, in one line, and returns the exit code. What goes wrong without a code of its own is input that
// cannot be read: what a node withholds is in its report.
func exit(ctx context.Context, err error, errOut io.Writer) int {
	if err == nil {
		return run.ExitRight
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		fmt.Fprintln(errOut, "error: interrupted")
		return run.ExitInterrupted
	}
	code := run.ExitUsage
	if e, ok := errors.AsType[*run.ExitError](err); ok {
		if e.Err == nil {
			return e.Code
		}
		code = e.Code
	}
	fmt.Fprintln(errOut, "error: "+strings.Join(strings.Fields(err.Error()), " "))
	return code
}

// conclude prints a report and makes its exit code. Which nodes could not be inspected it tells on stderr, too, as in
// json or a pipe they are easily overlooked; and first, so that on a terminal the verdict stays the last line.
func conclude(env *environment, p *print.Printer, r *report.Report, v print.View) error {
	for i := range r.Nodes {
		if n := &r.Nodes[i]; n.Error != "" {
			fmt.Fprintf(env.ErrOut, "error: node %s was not inspected: %s\n", n.Node, n.Error)
		}
	}
	v.Style = print.StyleOf(env.Out, env.getenv)
	if err := p.Report(env.Out, r, v); err != nil {
		return run.Usagef("%w", err)
	}
	switch r.Verdict {
	case report.Mismatch:
		return &run.ExitError{Code: run.ExitMismatch}
	case report.Unknown:
		return &run.ExitError{Code: run.ExitNotInspected}
	case report.Warning:
		return &run.ExitError{Code: run.ExitWarning}
	case report.Match, report.ByDesign:
		return nil
	}
	return &run.ExitError{Code: run.ExitNotInspected}
}
