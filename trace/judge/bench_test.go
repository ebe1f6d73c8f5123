// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
)

// BenchmarkNode judges every Service of a node of 5,000, as verify -A does once its files are loaded.
func BenchmarkNode(b *testing.B) {
	c, files := openSnapshot(b, "testdata/snapshots/scale-iptables", "node1")
	objects := NewCluster(c)
	state, err := nodestate.Load(files)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		Node(objects, state, Request{Backwards: true, PerPathService: true})
	}
}
