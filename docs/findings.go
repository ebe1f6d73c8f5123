// SPDX-License-Identifier: Apache-2.0

// Package docs has the pages of the documentation that the program prints.
package docs

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
)

//go:embed findings.md
var findings string

// Finding is the section of a finding.
type Finding struct {
	Code     string
	Group    string // the heading above it
	Severity string
	Summary  string // its first sentence
	Text     string // the section, without its heading, as plain text
}

var (
	heading = lazyregexp.New(`^(###?) (.+)$`)
	// begins is how the section of a finding begins, beside other sections: "*error* · ", "*warning*, *info* where … · ".
	begins = lazyregexp.New(`^\*(error|warning|info)\*[^·]* · `)
	link   = lazyregexp.New(`\[([^\]]*)\]\(([^)]+)\)`)
)

// marks are those of Markdown, and what stands in their place.
var marks = strings.NewReplacer("**", "", "*error*", "error", "*warning*", "warning", "*info*", "info", "`", "")

// Findings returns the sections of docs/findings.md, in the order of the page.
var Findings = sync.OnceValue(func() []Finding {
	var out []Finding
	var group, code string
	var body []string
	end := func() {
		text := strings.TrimSpace(strings.Join(body, "\n"))
		if m := begins().FindString(text); m != "" && code != "" {
			out = append(out, Finding{
				Code: code, Group: group, Severity: begins().FindStringSubmatch(text)[1],
				Summary: sentence(plain(strings.TrimPrefix(text, m))), Text: plain(text),
			})
		}
		code, body = "", nil
	}
	for line := range strings.Lines(findings) {
		line = strings.TrimSuffix(line, "\n")
		m := heading().FindStringSubmatch(line)
		switch {
		case m == nil:
			body = append(body, line)
		case m[1] == "##":
			end()
			group = m[2]
		default:
			end()
			code = m[2]
		}
	}
	end()
	return out
})

// FindingOf returns the section of a code, in upper or lower case, and whatever stands between its words or around it;
// also of a line with one code in it, as tables have them.
func FindingOf(code string) (Finding, bool) {
	if f, ok := findingOf(code); ok {
		return f, true
	}
	var found []Finding
	for word := range strings.FieldsSeq(code) {
		if f, ok := findingOf(word); ok && !slices.ContainsFunc(found, func(g Finding) bool { return g.Code == f.Code }) {
			found = append(found, f)
		}
	}
	if len(found) != 1 {
		return Finding{}, false
	}
	return found[0], true
}

// findingOf returns the section that a word names, as a code or as a link to it.
func findingOf(code string) (Finding, bool) {
	if i := strings.LastIndexByte(code, '#'); i >= 0 {
		code = code[i+1:]
	}
	code = strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) {
			return r
		}
		return -1
	}, code)
	for _, f := range Findings() {
		if strings.EqualFold(f.Code, code) {
			return f, true
		}
	}
	return Finding{}, false
}

// plain takes the marks of Markdown out of a text. Of a link to another page the address stays, of one within the page
// the text.
func plain(text string) string {
	text = link().ReplaceAllStringFunc(text, func(l string) string {
		m := link().FindStringSubmatch(l)
		if strings.Contains(m[2], "://") {
			return m[2]
		}
		return m[1]
	})
	return marks.Replace(text)
}

// unsure is how the sections of findings begin that make a path Unknown: in a list, what follows tells them apart.
const unsure = "The path is Unknown: "

// condition is what stands before the first sentence of findings that not every run has.
var condition = lazyregexp.New(`^With --[^:]*: `)

// sentence is the first sentence of a text, or what stands before its colon, in one line.
func sentence(text string) string {
	text, _, _ = strings.Cut(text, "\n\n")
	text = strings.Join(strings.Fields(text), " ")
	with := condition().FindString(text)
	text = text[len(with):]
	ends := []string{". ", ": "}
	if rest, ok := strings.CutPrefix(text, unsure); ok {
		text, ends = strings.ToUpper(rest[:1])+rest[1:], append(ends, "; ")
	}
	for _, end := range ends {
		for from := 0; ; {
			i := strings.Index(text[from:], end)
			if i < 0 {
				break
			}
			from += i
			if strings.Count(text[:from], "(") == strings.Count(text[:from], ")") {
				text = text[:from]
				break
			}
			from += len(end)
		}
	}
	return with + strings.TrimSuffix(text, ".")
}
