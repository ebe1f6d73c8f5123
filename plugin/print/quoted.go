// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// guiltyMark stands before what a finding is due to, and is as wide as the room for it.
const (
	guiltyMark = "> "
	noMark     = "  "
)

// evidence quotes rules. Several of one chain stand below the chain's name, as it is long, and the rule is what counts.
// What a finding is due to is marked: the rules, or what stands first where no rule is quoted. It is whole; what stands
// below a chain's name is shortened by what is the same in all rules of the kind.
func (t *text) evidence(list []report.Evidence, v report.Verdict) {
	label := "where"
	limit := evidenceLimit
	if len(list) == limit+1 {
		limit++ // a line that counts one more takes as much room as the one
	}
	if !t.wide && len(list) <= limit { // more of them joined would be a paragraph that nobody reads
		list = joinTexts(list)
	}
	for _, q := range quotesOf(list) {
		if q.of == limit && !t.wide {
			t.line("", fmt.Sprintf("%s… and %d more (-o wide)", noMark, len(list)-limit), true)
			break
		}
		rule, of := q.Text, v
		if !q.Guilty || q.rule && !pressing(v) {
			of = ""
			if t.Width > 0 && q.rule {
				rule = shortened(rule, roomBeside(t.Width, labelWidth+len(noMark)))
			}
		}
		t.quote(label, rule, of)
		label = ""
	}
}

// quotedLine is a line of evidence, or the name of the chain that the rules below it are of.
type quotedLine struct {
	Text   string
	of     int  // the number of the piece of evidence
	rule   bool // it quotes a rule, or names one
	Guilty bool // the finding is due to it, if that is one of an error or a warning
}

// quotesOf are the lines of evidence. Several rules of one chain stand below its name: that is what the finding is due
// to then.
func quotesOf(list []report.Evidence) (out []quotedLine) {
	var last report.RuleRef // of the chain whose name stands above
	for i, e := range list {
		q := quotedLine{evidenceLine(e), i, e.Where != (report.RuleRef{}), i == 0 || e.Where != (report.RuleRef{})}
		if quotesRule(e) {
			switch {
			case e.Where.InChainOf(last):
			case i+1 < len(list) && quotesRule(list[i+1]) && e.Where.InChainOf(list[i+1].Where):
				out, last = append(out, quotedLine{e.Where.ChainText(), i, false, true}), e.Where
			default:
				last = report.RuleRef{}
			}
			if last != (report.RuleRef{}) {
				q.Text, q.Guilty = fmt.Sprintf("  rule %d: %s", e.Where.Rule, plaintext.Clean(e.Short())), false
			}
		}
		out = append(out, q)
	}
	return out
}

// evidenceLine is a piece of evidence in one line. The name of a rule has its chain, which the text does not repeat.
func evidenceLine(e report.Evidence) string {
	if !quotesRule(e) {
		return plaintext.Clean(e.String())
	}
	return plaintext.Clean(e.Where.String() + ": " + e.Short())
}

// needless are the parts of a rule that tell nothing of it, with what takes their places, in the order in which they go
// where a rule has no room in a line. What a rule is for (its comment), what it matches and where it leads always stay.
var needless = []struct {
	part lazyregexp.Regexp
	by   string
}{
	{lazyregexp.New(`-m comment --comment `), ""},
	{lazyregexp.New(`(-p (tcp|udp|sctp) .*)-m (tcp|udp|sctp) `), "$1"},
	{lazyregexp.New(`--mask [0-9a-f.:]+ --rsource `), "… "},
	{lazyregexp.New(`--name KUBE-SEP-\S+ (… )?`), "… "},
	{lazyregexp.New(`-m statistic --mode random --probability (\S+?)0* `), "… --probability $1 "},
}

// shortened is a rule that fits into a width, or has nothing needless in it.
func shortened(rule string, width int) string {
	for _, n := range needless {
		if plaintext.Width(rule) <= width {
			break
		}
		rule = n.part().ReplaceAllString(rule, n.by)
	}
	return rule
}

// joinTexts makes one piece of evidence of those behind the first that quote no rule and follow one another.
func joinTexts(list []report.Evidence) []report.Evidence {
	out := make([]report.Evidence, 0, len(list))
	for i, e := range list {
		last := len(out) - 1
		if i > 1 && e.Where == (report.RuleRef{}) && out[last].Where == (report.RuleRef{}) && last > 0 {
			out[last].Text += "; " + e.Text
			continue
		}
		out = append(out, e)
	}
	return out
}

// quote writes a piece of evidence, broken between words and indented as it is: with a verdict what that is due to,
// with its mark and in the verdict's colour.
func (t *text) quote(label, s string, v report.Verdict) {
	text := strings.TrimLeft(s, " ")
	indent := s[:len(s)-len(text)]
	below := noMark + indent + "  "
	lines := []string{plaintext.Clean(text)}
	if room := t.columns - labelWidth - len(noMark+indent); t.columns > 0 && plaintext.Width(lines[0]) > room {
		lines = plaintext.WrapRule(lines[0], roomBeside(t.columns, labelWidth+len(below)))
	}
	mark := guiltyMark
	if !pressing(v) {
		mark = noMark
	}
	for _, line := range lines {
		t.Addf("%-*s", labelWidth, strings.TrimRight("  "+label, " "))
		t.Add(colorOf(v), mark+indent+line)
		t.End()
		label, mark, indent = "", below, ""
	}
}

// quotesRule tells whether a piece of evidence is a rule that is known by its chain and number.
func quotesRule(e report.Evidence) bool {
	return e.Where.Rule > 0 && e.Where.Server == "" && e.Text != ""
}
