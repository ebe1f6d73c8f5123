// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// A client whose pod has as many sockets as the kernel has ports for them gets no port: it is not said that it
// connects.
func TestPortsInUse(t *testing.T) {
	if !isolate(t, "nft") {
		return
	}
	n := newTopology(t, false, false)
	n.run("client sysctl -qw net.ipv4.ip_local_port_range='40000 40003'")
	c := &fault{listen: ":8080"}
	n.listens(c)
	for i := range 4 {
		if !n.connects(c, 0) {
			t.Fatalf("connection %d fails", i)
		}
		n.readAll()
		s := n.segments(c)
		if last := s[len(s)-1]; i < 3 && last.Verdict != report.SegmentRight {
			t.Errorf("with %d connections: %+v", i+1, last)
		}
	}
	if n.connects(c, 0) {
		t.Fatal("a fifth connection has a port")
	}
	crowded := unknownAt("", report.SegmentClientPod).saying("the pod has 4 sockets of TCP, and the kernel has 4 ports")
	crowded.check(t, n.segments(&crowded))
}
