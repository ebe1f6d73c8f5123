// SPDX-License-Identifier: Apache-2.0

package plaintext

import (
	"slices"
	"strings"
	"testing"
)

// TestRanges: names of nodes as clouds give them, and those that only look as if they were counted.
func TestRanges(t *testing.T) {
	for _, c := range []struct{ names, want string }{
		{"", ""},
		{"worker-1", "worker-1"},
		{"worker-10 worker-2 worker-1", "worker-1 worker-2 worker-10"},
		{"worker-9 worker-10 worker-11 worker-8", "worker-[8-11]"},
		{"worker-9 worker-10", "worker-9 worker-10"},
		{"node01 node02 node03 node10", "node[01-03] node10"},
		{"node08 node09 node10 node11", "node[08-11]"},
		{"node8 node09 node10", "node8 node09 node10"},
		{"n1.zone-a n2.zone-a n3.zone-a", "n[1-3].zone-a"},
		{"n1.a n2.a n3.a n1.b", "n1.a n1.b n2.a n3.a"},
		{"ip-10-0-1-17 ip-10-0-1-18 ip-10-0-1-19 ip-10-0-2-1", "ip-10-0-1-[17-19] ip-10-0-2-1"},
		{"gke-a-1f gke-a-2f gke-a-3f", "gke-a-[1-3]f"},
		{"a b a b a", "a b"},
		{"a1 a2 a1 a3 a2", "a[1-3]"},
		{"x99999999999 x99999999998 x99999999997", "x99999999997 x99999999998 x99999999999"},
		{"v999999999 v1000000000 v1000000001", "v[999999999-1000000001]"},
	} {
		names := strings.Fields(c.names)
		given := slices.Clone(names)
		if got := strings.Join(Ranges(names), " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.names, got, c.want)
		}
		if !slices.Equal(names, given) {
			t.Errorf("%s: the names were changed", c.names)
		}
	}
}
