// SPDX-License-Identifier: Apache-2.0

package print

import (
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

const (
	plain  = terminal.Plain
	bold   = terminal.Bold
	red    = terminal.Red
	green  = terminal.Green
	yellow = terminal.Yellow
	cyan   = terminal.Cyan
)

func colorOf(v report.Verdict) terminal.Color {
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
