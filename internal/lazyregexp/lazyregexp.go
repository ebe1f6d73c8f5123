// SPDX-License-Identifier: Apache-2.0

// Package lazyregexp has regular expressions that are compiled when they are used for the first time. A command uses a
// few of those that the program has: to compile them all took longer than anything else before main, and with their
// memory the collector ran before there was garbage.
package lazyregexp

import (
	"regexp"
	"sync"
)

// Regexp returns a compiled regular expression, always the same one. Several goroutines may call it.
type Regexp func() *regexp.Regexp

// New is for a variable of a package, as [regexp.MustCompile] is: with an expression that cannot be parsed, its use
// panics.
func New(expression string) Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
