// SPDX-License-Identifier: Apache-2.0

package print

import (
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// sampleLimit is how many samples of a kind are named.
const sampleLimit = 3

// samples says which addresses stand for others in a table of paths: nobody asked for them.
func (t *text) samples(paths []report.Path) {
	var kinds []string
	named := map[string][]string{}
	for i := range paths {
		o := &paths[i].Origin
		if !o.Sample || o.Address == "" {
			continue
		}
		if named[o.Kind] == nil {
			kinds = append(kinds, o.Kind)
		}
		s := o.Address
		if o.Pod != "" {
			s += " (" + t.podText(o.Pod) + ")"
		}
		if !slices.Contains(named[o.Kind], s) {
			named[o.Kind] = append(named[o.Kind], s)
		}
	}
	if len(kinds) == 0 {
		return
	}
	parts := make([]string, len(kinds))
	for i, k := range kinds {
		parts[i] = k + " " + t.list(named[k], sampleLimit, ", ")
	}
	t.Blank()
	t.say(plain, "Samples", strings.Join(parts, "; ")+" (choose another with --from)", true)
}
