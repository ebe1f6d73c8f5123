// SPDX-License-Identifier: Apache-2.0

package docs

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
)

//go:embed symptoms.md
var symptoms string

// Symptom is a line of the table in docs/symptoms.md.
type Symptom struct {
	Text  string   // what people report
	Codes []string // the findings that often follow
}

// findingLink is a link to the section of a finding.
var findingLink = regexp.MustCompile(`\[([A-Za-z]+)\]\(findings\.md#`)

// Symptoms returns the lines of the table.
var Symptoms = sync.OnceValue(func() (out []Symptom) {
	for line := range strings.Lines(symptoms) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			continue
		}
		s := Symptom{Text: strings.TrimSpace(cells[1])}
		for _, m := range findingLink.FindAllStringSubmatch(cells[3], -1) {
			s.Codes = append(s.Codes, m[1])
		}
		if s.Codes != nil {
			out = append(out, s)
		}
	}
	return out
})

// reported are words of reports, with the ones that the table has for the same.
var reported = map[string]string{
	"timeout": "hang", "timed": "hang", "stuck": "hang", "unreachable": "hang", "unresponsive": "hang",
	"blackhole": "hang", "reject": "refused", "rst": "break", "reset": "break", "disconnect": "break",
	"intermittent": "one", "flaky": "one", "sometimes": "one", "sporadic": "one", "random": "one", "half": "one",
	"third": "one", "unbalanced": "load", "balance": "load", "skew": "load", "nxdomain": "resolve",
	"dns": "resolve", "lookup": "resolve", "hairpin": "own", "mtu": "large", "big": "large", "fragment": "large",
	"snat": "address", "source": "address", "sticky": "stay", "affinity": "stay", "session": "stay",
	"stale": "deleted", "gone": "deleted", "ipv4": "ipv6", "external": "outside",
}

// SymptomsOf returns the symptoms that have most of the words of a report; none where no word of it tells.
func SymptomsOf(report string) (found []Symptom) {
	most := 0
	for _, s := range Symptoms() {
		words, n := stems(s.Text), 0
		for _, word := range stems(report) {
			if slices.Contains(words, word) || slices.Contains(words, stem(reported[word])) {
				n++
			}
		}
		if n > most {
			most, found = n, nil
		}
		if n == most && n > 0 {
			found = append(found, s)
		}
	}
	return found
}

// unsaid are words that tell nothing: most symptoms are about these.
const unsaid = " a an and at but each every from have i in is it my not of on only or the their there through time " +
	"to two was when where which with connection service pod node nothing something does do "

// stems returns the words of a text, without their endings, and without those that tell nothing.
func stems(text string) (out []string) {
	for _, word := range strings.FieldsFunc(strings.ToLower(text), func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsDigit(c)
	}) {
		if s := stem(word); !strings.Contains(unsaid, " "+word+" ") && !strings.Contains(unsaid, " "+s+" ") {
			out = append(out, s)
		}
	}
	return out
}

// stem takes the ending off a word.
func stem(word string) string {
	for _, ending := range []string{"ing", "ed", "es", "s"} {
		if rest, ok := strings.CutSuffix(word, ending); ok && len(rest) >= 3 {
			return rest
		}
	}
	return word
}
