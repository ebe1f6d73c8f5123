// SPDX-License-Identifier: Apache-2.0

package watch

import "testing"

// An agent that was killed and began again received no notification at all, once in some thirty times, while kube-proxy
// changed the rules: what it had found stayed for ever.
func TestDeafness(t *testing.T) {
	type moment struct {
		told       bool
		generation uint32
		deaf       bool
	}
	for _, tt := range []struct {
		name    string
		moments []moment
	}{
		{"nothing changes", []moment{{false, 7, false}, {false, 7, false}, {false, 7, false}}},
		{"changes are announced", []moment{{false, 7, false}, {true, 8, false}, {true, 11, false}, {false, 11, false}}},
		{"nothing is announced", []moment{{false, 7, false}, {false, 8, false}, {false, 8, true}}},
		{"nothing is announced of many", []moment{{false, 7, false}, {false, 8, false}, {false, 9, true}}},
		{"announced a moment later", []moment{{false, 7, false}, {false, 8, false}, {true, 8, false}, {false, 8, false}}},
		{"again", []moment{{false, 7, false}, {false, 8, false}, {true, 8, false}, {false, 9, false}, {false, 9, true}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var d deafness
			for i, m := range tt.moments {
				if m.told {
					d.hears()
				}
				if got := d.deaf(m.generation); got != m.deaf {
					t.Fatalf("moment %d: %v", i, got)
				}
			}
		})
	}
}
