// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// findingsText is how findings of one path are printed, without empty lines.
func findingsText(t *testing.T, findings ...report.Finding) string {
	t.Helper()
	n := report.NodeReport{Node: "n1", Verdict: report.Mismatch, Paths: []report.Path{{
		Frontend: report.Frontend{Kind: "ClusterIP", Address: "10.96.0.1", Port: 80}, Verdict: report.Mismatch,
		Findings: findings,
	}}}
	r := report.Combine(report.KindTrace, nil, []report.NodeReport{n})
	var out []string
	for line := range strings.Lines(render(t, "table", r, view(0))) {
		if f := strings.TrimSpace(line); strings.HasPrefix(f, "MISMATCH  ") || strings.HasPrefix(f, "why") {
			out = append(out, strings.Join(strings.Fields(f), " "))
		}
	}
	return strings.Join(out, "\n")
}

func wrong(subject, message string) report.Finding {
	return report.Finding{Code: "Code", Severity: report.Error, Subject: subject, Message: message}
}

// Findings are one where they say the same, whatever words their subjects and messages are made of.
func TestFindingsThatSayTheSame(t *testing.T) {
	for _, tt := range []struct {
		name     string
		findings []report.Finding
		want     string
	}{
		{
			"subjects that are words of the message",
			[]report.Finding{wrong("in", "a rule in the chain"), wrong("rule", "a rule in the chain")},
			"MISMATCH Code in, rule\nwhy a rule in the chain",
		},
		{
			"messages that differ by what is not a name of the subject",
			[]report.Finding{wrong("1", "1 rule is missing"), wrong("2", "2 rule is missing")},
			"MISMATCH Code 1\nwhy 1 rule is missing\nMISMATCH Code 2\nwhy 2 rule is missing",
		},
	} {
		if got := findingsText(t, tt.findings...); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

// Findings that say the same of their subjects are one, which says it of each.
func TestFindingsOfSeveralSubjects(t *testing.T) {
	stale := func(subject string) report.Finding {
		f := wrong(subject, subject+" is a name")
		f.Predicate = "is a name"
		return f
	}
	if got := findingsText(t, stale("a")); got != "MISMATCH Code a\nwhy a is a name" {
		t.Error(got)
	}
	got := findingsText(t, stale("a"), stale("is"), stale("each"))
	if got != "MISMATCH Code a, is, each\nwhy each is a name" {
		t.Error(got)
	}
	other := stale("b")
	other.Actual, other.Expected = "1", "2"
	if got := findingsText(t, stale("a"), other); strings.Count(got, "MISMATCH") != 2 {
		t.Error(got)
	}
}

// A remedy of several nodes is said once, with its commands for each, and where several are run is said once.
func TestRemedyOfSeveralNodesIsPrintedOnce(t *testing.T) {
	var b block
	for _, node := range []string{"a", "b"} {
		b.addFix(report.Remedy{Text: "load it", Commands: []report.Command{
			{Line: "modprobe x", Node: node}, {Line: "sysctl x", Node: node}, {Line: "reboot", Node: node, When: "at last"},
		}})
	}
	if len(b.fixes) != 1 {
		t.Fatalf("%d remedies: %v", len(b.fixes), b.fixes)
	}
	want := []pasted{
		{"on a", "modprobe x"},
		{"", "sysctl x"},
		{"on a, at last", "reboot"},
		{"on b", "modprobe x"},
		{"", "sysctl x"},
		{"on b, at last", "reboot"},
	}
	if got := led(b.fixes[0].Commands); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	got := led([]report.Command{{Line: "x"}, {Line: "y", Node: "a"}, {Line: "z"}, {Line: "w"}})
	if want := []pasted{{"", "x"}, {"on a", "y"}, {"then", "z"}, {"", "w"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The rules of one chain that cannot be evaluated have one remedy, whose first command is the same for all.
func TestCommandOfSeveralFindingsIsPrintedOnce(t *testing.T) {
	fix := func(lines ...string) report.Remedy {
		out := report.Remedy{Text: "real connections show what happens to them"}
		for _, line := range lines {
			out.Commands = append(out.Commands, report.Command{Line: line})
		}
		return out
	}
	var b block
	for _, r := range []report.Remedy{fix("live", "a"), fix("live", "b"), fix("live", "a"), fix("other", "a"), {}} {
		b.addFix(r)
	}
	if want := []report.Remedy{fix("live", "a", "b"), fix("other", "a")}; !reflect.DeepEqual(b.fixes, want) {
		t.Errorf("got %v, want %v", b.fixes, want)
	}
	for i := range 3 * fixCommands {
		b.addFix(fix("live", fmt.Sprint(i)))
	}
	if n := len(b.fixes[0].Commands); n != fixCommands {
		t.Errorf("%d commands in one remedy, want %d", n, fixCommands)
	}
	if want := 2 + 3*fixCommands - (fixCommands - 3); len(b.fixes) != want {
		t.Errorf("%d remedies, want %d: none is lost", len(b.fixes), want)
	}
}

// An endpoint that a finding names on several paths, alone and among others, is named once.
func TestEndpointsOfSeveralPathsAreNamedOnce(t *testing.T) {
	of := func(endpoints ...string) report.Finding {
		f := wrong(strings.Join(endpoints, ", "), "a rule drops it")
		f.Endpoints = endpoints
		return f
	}
	const want = "MISMATCH Code a:1, b:1, c:1\nwhy a rule drops it"
	if got := findingsText(t, of("a:1", "b:1"), of("b:1"), of("b:1", "c:1")); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Findings of two families with the same advice and other commands.
func TestAdviceOfSeveralRemediesIsSaidOnce(t *testing.T) {
	fix := func(text, line string) report.Remedy {
		return report.Remedy{Text: text, Commands: []report.Command{{Line: line}}}
	}
	got := fixesOf([]*block{
		{fixes: []report.Remedy{fix("look there", "a"), fix("or there", "b")}},
		{fixes: []report.Remedy{fix("look there", "c")}},
	})
	want := []report.Remedy{fix("look there", "a"), fix("", "c"), fix("or there", "b")}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
