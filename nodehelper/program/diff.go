// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"strings"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// difference returns the lines that only one of two texts has.
func difference(before, now string) (added, removed []string) {
	count := func(text string) map[string]int {
		out := map[string]int{}
		for line := range strings.Lines(text) {
			out[line]++
		}
		return out
	}
	only := func(text string, other map[string]int) (out []string) {
		for line := range strings.Lines(text) {
			other[line]--
			if other[line] < 0 {
				out = append(out, strings.TrimSuffix(line, "\n"))
			}
		}
		return out
	}
	return only(now, count(before)), only(before, count(now))
}

// diff returns the lines that iptables-save shows after applying a record and not before, and those that it shows
// before and not after. Both are of the same time: an update does not extend it.
func (write iptWriter) diff(r *Record, v6 bool, until time.Time) (added, removed []string) {
	state := func(p *plan.Plan) string {
		if !p.Has(v6) {
			return ""
		}
		var out bytes.Buffer
		for _, t := range write(p, v6, until, func(*hook) bool { return false }).tables {
			for _, c := range t.chains {
				out.WriteString(t.name + " :" + c + " - [0:0]\n")
			}
			for line := range strings.Lines(t.rules.String()) {
				out.WriteString(t.name + " " + strings.Replace(line, "-I ", "-A ", 1))
			}
		}
		return out.String()
	}
	return difference(state(r.Earlier), state(&r.Plan))
}
