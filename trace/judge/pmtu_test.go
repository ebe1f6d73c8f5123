// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// On a node with a smaller MTU of its uplink, which drops the message that says so, 27 of 40 requests over UDP of 1400
// bytes failed, and its paths were a Match: Linux forbids routers to fragment datagrams, too.
func TestLargeDatagramsOfIPv4AreLost(t *testing.T) {
	w := openCaptured(t, "real-2node-iptables")
	w.flannel()
	w.first(v4, "filter", "OUTPUT", "-p icmp -j DROP")
	r := w.run()
	if r.Error != "" {
		t.Fatal(r.Error)
	}
	said := map[string]string{}
	for i := range r.Paths {
		p := &r.Paths[i]
		at := slices.IndexFunc(p.Findings, func(f report.Finding) bool { return f.Code == endtoend.PMTUBlackHole })
		if at >= 0 && p.Verdict == report.Warning {
			said[p.Frontend.Protocol] = p.Findings[at].Message
		}
	}
	for protocol, words := range map[string]string{"TCP": "connections hang", "UDP": "larger datagrams are lost"} {
		if !strings.Contains(said[protocol], words) {
			t.Errorf("%s: %q, want %q", protocol, said[protocol], words)
		}
	}
}
