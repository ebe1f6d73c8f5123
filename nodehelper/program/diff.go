// SPDX-License-Identifier: Apache-2.0

package program

import (
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// difference returns the lines that only one of two lists has.
func difference(before, now []string) (added, removed []string) {
	count := func(lines []string) map[string]int {
		out := make(map[string]int, len(lines))
		for _, line := range lines {
			out[line]++
		}
		return out
	}
	only := func(lines []string, other map[string]int) (out []string) {
		for _, line := range lines {
			other[line]--
			if other[line] < 0 {
				out = append(out, line)
			}
		}
		return out
	}
	return only(now, count(before)), only(before, count(now))
}

// diff returns the lines that iptables-save shows after applying a record and not before, and those that it shows
// before and not after. Both are of the same time: an update does not extend it.
func (write iptWriter) diff(r *Record, v6 bool, until time.Time) (added, removed []string) {
	state := func(p *plan.Plan) (lines []string) {
		if !p.Has(v6) {
			return nil
		}
		for _, t := range write(p, v6, until, func(*hook) bool { return false }).tables {
			lines = append(lines, t.saved()...)
		}
		return lines
	}
	return difference(state(r.Earlier), state(&r.Plan))
}
