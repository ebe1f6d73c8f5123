// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"runtime/debug"

	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
	"github.com/svcproxy/kubectl-svcproxy/plugin/print"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// maxError is how many bytes of an error are printed: an API server may answer with a page.
const maxError = 16 << 10

// exit prints an error, in one line but where a terminal wraps it, and returns the exit code. What goes wrong without a
// code of its own is input that cannot be read: what a node withholds is in its report.
func exit(ctx context.Context, err error, errOut *terminal.Stream) int {
	if err == nil {
		return run.ExitRight
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		errOut.Line("error: interrupted")
		return run.ExitInterrupted
	}
	code := run.ExitUsage
	if e, ok := errors.AsType[*run.ExitError](err); ok {
		if e.Err == nil {
			return e.Code
		}
		code = e.Code
	}
	errOut.Sentence("error: %s", safetext.Line(err.Error(), maxError))
	return code
}

// style is what a printer prints for. Whoever asks for colours in a pipe has a pager behind it, which shows what is
// printed on the terminal of standard error.
func (e *environment) style(p *print.Printer) terminal.Style {
	s := e.out.Style()
	if s.Width == 0 && p.Color == print.ColorAlways {
		s.Width = e.errOut.Style().Width
	}
	return s
}

// conclude prints a report and makes its exit code. Which nodes could not be inspected it tells on stderr, too, as in
// json or a pipe they are easily overlooked; and first, so that on a terminal the verdict stays the last line.
func conclude(env *environment, p *print.Printer, r *report.Report, v print.View) error {
	for _, line := range print.Uninspected(r) {
		env.errOut.Sentence("error: %s", safetext.Line(line, maxError))
	}
	v.Style = env.style(p)
	if code := r.Worst(); code != "" {
		v.Explain = name + " explain " + report.ShellWord(code)
	}
	r.LinkPages()
	if err := p.Report(env.out, r, v); err != nil {
		return run.Usagef("%w", err)
	}
	return exitOf(r.Verdict)
}

// exitOf makes the exit code of a verdict, as an error; nil where nothing is wrong.
func exitOf(v report.Verdict) error {
	switch v {
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

// crashed tells of a defect of this program, and returns the exit code: nothing is claimed. The Go runtime would print
// the value of the panic as it is.
func crashed(errOut *terminal.Stream, bug any) int {
	errOut.Line("error: this is a defect of %s, please report it: %v", name, bug)
	_ = errOut.Document(debug.Stack())
	return run.ExitNotInspected
}
