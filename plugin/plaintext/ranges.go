// SPDX-License-Identifier: Apache-2.0

package plaintext

import (
	"slices"
	"strconv"
	"strings"

	"github.com/maruel/natural"
)

// leastRange is how many names in a row become one.
const leastRange = 3

// maxDigits is how many digits a number of a range may have.
const maxDigits = 9

// Ranges sorts names as people count (worker-2 before worker-10), and folds those in a row whose last numbers alone
// differ, each by one: worker-[2-38]. Numbers that are filled up with zeros stay so: node[01-12].
func Ranges(names []string) []string {
	names = slices.Compact(slices.SortedFunc(slices.Values(names), natural.Compare))
	var out []string
	for len(names) > 0 {
		n := 1
		head, tail, first, ok := numbered(names[0])
		for ok && n < len(names) && names[n] == head+padded(first+n, len(names[0])-len(head)-len(tail))+tail {
			n++
		}
		if n < leastRange {
			out = append(out, names[0])
			names = names[1:]
			continue
		}
		last := names[n-1][len(head) : len(names[n-1])-len(tail)]
		out = append(out, head+"["+names[0][len(head):len(names[0])-len(tail)]+"-"+last+"]"+tail)
		names = names[n:]
	}
	return out
}

// numbered splits a name at its last number.
func numbered(name string) (head, tail string, number int, ok bool) {
	isDigit := func(r rune) bool { return '0' <= r && r <= '9' }
	end := strings.LastIndexFunc(name, isDigit) + 1
	begin := end
	for begin > 0 && isDigit(rune(name[begin-1])) {
		begin--
	}
	if begin == end || end-begin > maxDigits {
		return "", "", 0, false
	}
	number, err := strconv.Atoi(name[begin:end])
	return name[:begin], name[end:], number, err == nil
}

// padded writes a number with so many digits at least as the first of its range has, if that begins with a zero; else
// as it is, which is the same.
func padded(number, width int) string {
	s := strconv.Itoa(number)
	return strings.Repeat("0", max(width-len(s), 0)) + s
}
