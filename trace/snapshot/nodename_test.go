// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"io"
	"strings"
	"testing"
)

// The API of a cluster may be anybody's: a node's name must not lead out of the archive.
func TestANodeNameIsNoPath(t *testing.T) {
	for _, name := range []string{
		"", ".", "..", "../../etc", "a/b", `a\b`, "/etc", "a\x00b", "a\nb", "\x1b[2J", "a\u202eb", "-rf", "node.", "C:x",
		"CON", "nul.example.org", "Com1", strings.Repeat("a", 254),
	} {
		if err := CheckNodeName(name); err == nil {
			t.Errorf("%q is taken for the name of a folder", name)
		} else if strings.ContainsAny(err.Error(), "\x1b\n\x00\u202e") {
			t.Errorf("%q: the error repeats it as it is: %q", name, err)
		}
		node := NewNode(name, map[string][]byte{IPTablesFile: nil})
		if err := Write(io.Discard, Meta{Version: Version}, &Cluster{}, []*Node{node}); err == nil {
			t.Errorf("%q is written into an archive", name)
		}
	}
	for _, name := range []string{"n", "worker-1", "ip-10-0-0-1.eu-west-1.compute.internal", "Node_1", "connie", "com10"} {
		if err := CheckNodeName(name); err != nil {
			t.Error(err)
		}
	}
}
