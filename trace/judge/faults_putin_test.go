// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"regexp"
	"slices"
	"testing"
)

// aboutWhat is a code of a line of changes, with its subject.
var aboutWhat = regexp.MustCompile(`((?:: |; )[A-Z][A-Za-z]+) [^;]*`)

func putIn(t *testing.T, base string, list []fault, least int) {
	t.Helper()
	before := facts(openCaptured(t, base).run())
	if len(list) < least {
		t.Errorf("%d faults, at least %d were asked for", len(list), least)
	}
	for _, f := range list {
		t.Run(f.name, func(t *testing.T) {
			w := openCaptured(t, base)
			f.do(w)
			r := w.run()
			if r.Error != "" {
				t.Fatal(r.Error)
			}
			want := slices.Clone(f.want)
			if f.all != nil {
				want = f.all(before)
			}
			got := changes(before, facts(r))
			if f.codes {
				for _, lines := range [][]string{want, got} {
					for i := range lines {
						lines[i] = aboutWhat.ReplaceAllString(lines[i], "$1")
					}
				}
			}
			compareChanges(t, want, got)
		})
	}
}
