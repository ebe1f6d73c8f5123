// SPDX-License-Identifier: Apache-2.0

package docs

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
)

//go:embed symptoms.md
var symptoms string

// Symptom is a line of the table in docs/symptoms.md.
type Symptom struct {
	Text  string   // what people report
	Codes []string // the findings that often follow
}

// findingLink is a link to the section of a finding.
var findingLink = lazyregexp.New(`\[([A-Za-z]+)\]\(findings\.md#`)

// Symptoms returns the lines of the table.
var Symptoms = sync.OnceValue(func() (out []Symptom) {
	for line := range strings.Lines(symptoms) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			continue
		}
		s := Symptom{Text: strings.TrimSpace(cells[1])}
		for _, m := range findingLink().FindAllStringSubmatch(cells[3], -1) {
			s.Codes = append(s.Codes, m[1])
		}
		if s.Codes != nil {
			out = append(out, s)
		}
	}
	return out
})

// reported are words of reports, by the words that the table has for the same.
var reported = map[string]string{
	"hang":       "timeout timed etimedout stuck unreachable ehostunreach route unresponsive blackhole 504",
	"refused":    "reject econnrefused 502 503",
	"break":      "rst reset econnreset disconnect",
	"one":        "intermittent flaky sometimes sporadic random half third",
	"load":       "unbalanced balance skew",
	"resolve":    "dns lookup nxdomain resolution servfail enotfound such",
	"own":        "hairpin",
	"large":      "mtu big fragment",
	"address":    "snat source",
	"stay":       "sticky affinity session",
	"deployment": "deploy rollout rolled release upgrade restart",
	"deleted":    "stale gone",
	"ipv6":       "ipv4",
	"outside":    "external balancer loadbalancer health healthz healthcheck",
}

// meanings are the words of the table by those of reports, all of them without their endings.
var meanings = sync.OnceValue(func() map[string]string {
	out := map[string]string{}
	for meaning, words := range reported {
		for word := range strings.FieldsSeq(words) {
			out[stem(word)] = stem(meaning)
		}
	}
	return out
})

// SymptomsOf returns the symptoms that have most of the words of a report; none where no word of it tells.
func SymptomsOf(report string) (found []Symptom) {
	most := 0
	for _, s := range Symptoms() {
		words, n := stems(s.Text), 0
		for _, word := range stems(report) {
			if slices.Contains(words, word) || slices.Contains(words, meanings()[word]) {
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
const unsaid = " a an and are at but each every from have host i in is it my no not of on only or the their there " +
	"through time to two was when where which with connection service pod node nothing something does do fail "

// stems returns the words of a text, without their endings, and without those that tell nothing.
func stems(text string) (out []string) {
	text = strings.ReplaceAll(strings.ToLower(text), "one node", "onenode") // is not one of the connections
	for _, word := range strings.FieldsFunc(text, func(c rune) bool {
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
