// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/svcproxy/kubectl-svcproxy/docs"
	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

func newExplainCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:        "explain [CODE]",
		SuggestFor: []string{"finding", "findings", "man"},
		Short:      "Explain a finding: what it means, its usual cause and its remedy",
		Long: `Explain a finding: what it means, the evidence for it, its usual cause, its
remedy, and related upstream issues. Without a code, list all codes with one line
each. No cluster is contacted: the text is that of docs/findings.md of this
version.`,
		Example: `  # What does MissingEndpoint mean?
  kubectl svcproxy explain MissingEndpoint

  # All findings
  kubectl svcproxy explain`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeFirst(func(*cobra.Command) []string { return codes() }),
		RunE:                  func(_ *cobra.Command, args []string) error { return explain(env, args) },
	}
}

// codes returns the codes of all findings.
func codes() []string {
	all := docs.Findings()
	out := make([]string, len(all))
	for i := range all {
		out[i] = all[i].Code
	}
	return out
}

// explain prints a section of docs/findings.md, or their list.
func explain(env *environment, args []string) error {
	if last := len(args) - 1; last == 1 && strings.HasPrefix(args[last], "+") { // "MissingEndpoint +1", of a table
		args = args[:last]
	}
	switch len(args) {
	case 0:
		return env.out.Document([]byte(listOfFindings(env.out.Style().Width)))
	case 1:
	default:
		if _, ok := docs.FindingOf(strings.Join(args, "")); ok { // Missing Endpoint
			return explain(env, []string{strings.Join(args, "")})
		}
		if symptoms := meantSymptoms(strings.Join(args, " ")); symptoms != "" {
			return run.Usagef("explain takes one code, and %d words were given%s", len(args), symptoms)
		}
		return run.Usagef("explain takes one code, and %d were given (%s)", len(args), run.Shorten(args))
	}
	f, ok := docs.FindingOf(args[0])
	if !ok {
		similar := similarCodes(args[0])
		if lower := strings.ToLower(args[0]); similar == "" || lower == args[0] { // of codes, words begin in upper case
			similar += meantSymptoms(args[0])
		}
		similar = strings.ReplaceAll(similar, "?; ", "? ")
		return run.Usagef("there is no finding %q%s (%s explain lists all)", args[0], similar, name)
	}
	text := f.Code + "\n\n" + reflow(f.Text, env.out.Style().Width) + "\n\n" + report.PageOf(f.Code) + "\n"
	return env.out.Document([]byte(text))
}

// similarCodes ends an error about a code that there is not: with what a verdict is, or the codes that are similar or
// have the word in them.
func similarCodes(word string) string {
	for _, v := range []report.Verdict{report.Mismatch, report.Match, report.Warning, report.Unknown, report.ByDesign} {
		if strings.EqualFold(strings.ReplaceAll(word, " ", ""), string(v)) {
			return ": it is a verdict, and the finding is the word behind it"
		}
	}
	var within []string
	for _, code := range codes() {
		if len(word) >= 4 && strings.Contains(strings.ToLower(code), strings.ToLower(word)) {
			within = append(within, code)
		}
	}
	if len(within) > 0 {
		return "; did you mean " + strings.Join(within[:min(3, len(within))], " or ") + "?"
	}
	return cluster.DidYouMean(word, codes())
}

// meantSymptoms ends an error about words that are no code but those of a symptom, with the findings that often follow
// from it; "" where they are not.
func meantSymptoms(words string) string {
	const shown = 2 // more, and the page is easier to read
	symptoms := docs.SymptomsOf(words)
	if len(symptoms) == 0 {
		return ""
	}
	out := make([]string, 0, shown)
	for _, s := range symptoms[:min(shown, len(symptoms))] {
		out = append(out, fmt.Sprintf("%q: %s", s.Text, run.Shorten(s.Codes)))
	}
	return "; docs/symptoms.md leads from symptoms to findings: for " + strings.Join(out, ", and for ")
}

// listOfFindings has a line for each finding, below the headings of the page. Where it is wider than a terminal, the
// line is continued below itself.
func listOfFindings(width int) string {
	var b strings.Builder
	group := ""
	for _, f := range docs.Findings() {
		if f.Group != group {
			if group != "" {
				b.WriteByte('\n')
			}
			group = f.Group
			fmt.Fprintf(&b, "%s\n", group)
		}
		for _, line := range beside(fmt.Sprintf("  %-26s %-8s ", f.Code, f.Severity), f.Summary, width) {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}
