// SPDX-License-Identifier: Apache-2.0

package print

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"k8s.io/cli-runtime/pkg/printers"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// TestAReportIsWrittenInPieces compares the pieces with the text that the printer of every other object makes.
func TestAReportIsWrittenInPieces(t *testing.T) {
	all := reports()
	path := report.Path{
		Frontend: report.Frontend{Kind: `"\u0000", "\\"`, Address: "<&>\u202e"}, Verdict: report.Match,
		Findings: []report.Finding{{Code: "X", Message: `{"node": "\u0000"} "kind": "` + absent + `"`}},
	}
	all["no nodes"] = &report.Report{Kind: report.KindVerify}
	all["an empty list"] = &report.Report{Kind: report.KindVerify, Nodes: []report.NodeReport{}}
	all["nodes with many paths and with none"] = &report.Report{Kind: report.KindVerify, Nodes: []report.NodeReport{
		{Node: "a", Paths: slices.Repeat([]report.Path{path}, 5000)},
		{Node: "b"},
		{Node: "c", Error: "unreachable", Paths: []report.Path{}},
		{Node: "d", Paths: []report.Path{path}},
	}}
	for name, r := range all {
		var want, got bytes.Buffer
		if err := (&printers.JSONPrinter{}).PrintObj(&reportObject{Report: r}, &want); err != nil {
			t.Fatal(err)
		}
		longest := 0
		err := writeJSON(r, func(lines []byte) error {
			if !bytes.HasSuffix(lines, []byte("\n")) {
				t.Errorf("%s: a piece ends within a line: %q", name, lines[max(0, len(lines)-80):])
			}
			longest = max(longest, len(lines))
			got.Write(lines)
			return nil
		})
		if err != nil || !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("%s: %v, %d bytes, want %d:\n%.2000s\nwant\n%.2000s", name, err, got.Len(), want.Len(), &got, &want)
		}
		if longest > 2*jsonPiece {
			t.Errorf("%s: a piece has %d bytes of %d", name, longest, got.Len())
		}
	}
}

func TestAReportThatCannotBeWrittenIsAnError(t *testing.T) {
	r := &report.Report{Nodes: []report.NodeReport{{Node: "a", Paths: slices.Repeat([]report.Path{{}}, 10_000)}}}
	calls, errWrite := 0, errors.New("the disk is full")
	err := writeJSON(r, func([]byte) error { calls++; return errWrite })
	if !errors.Is(err, errWrite) || calls != 1 {
		t.Errorf("got %v after %d calls", err, calls)
	}
}
