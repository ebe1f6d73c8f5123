// SPDX-License-Identifier: Apache-2.0

package print

import (
	"html/template"
	"strings"
)

// words is a rule, or a command, whose lines break at spaces: browsers break lines at hyphens, too, which rules are
// full of. A word breaks only where it is longer than a line.
func words(text string) template.HTML {
	var b strings.Builder
	for i, word := range strings.Split(text, " ") {
		if i > 0 {
			b.WriteByte(' ')
		}
		escaped := template.HTMLEscapeString(word)
		if strings.ContainsAny(strings.Trim(word, "-"), "-?/") || strings.HasPrefix(word, "-") {
			escaped = `<span class="word">` + escaped + "</span>"
		}
		b.WriteString(escaped)
	}
	return template.HTML(b.String()) //nolint:gosec // what is not of this function is escaped
}
