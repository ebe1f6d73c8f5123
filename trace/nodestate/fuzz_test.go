// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// FuzzLoad feeds one file of a node, whichever it is, beside none: every parser behind its limits.
func FuzzLoad(f *testing.F) {
	for i, name := range snapshot.NodeFiles {
		for n, data := range testutil.Files(f, "../../testdata/snapshots/[in]*/nodes/node1/*") {
			if n < 40 && len(data) < 20_000 && n%len(snapshot.NodeFiles) == i {
				f.Add(uint8(i), data)
			}
		}
		for _, text := range []string{
			"", "\n", "\x00", strings.Repeat("\n", 5000), strings.Repeat("[", 5000), strings.Repeat(`{"a":`, 5000),
			strings.Repeat("a ", 5000), "\x1f\x8b", name,
		} {
			f.Add(uint8(i), []byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		name := snapshot.NodeFiles[int(which)%len(snapshot.NodeFiles)]
		testutil.Promptly(t, func() {
			s, err := Load(snapshot.NewNode("n", map[string][]byte{name: data}))
			if s == nil {
				t.Fatal("no state")
			}
			if err != nil && !strings.HasPrefix(err.Error(), "node n: ") {
				t.Errorf("the error does not name the node: %v", err)
			}
		})
	})
}
