// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/faultdata"
	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// On a node with a smaller MTU of its uplink, which drops the message that says so, 27 of 40 requests over UDP of 1400
// bytes failed, and the path was a Match: Linux forbids routers to fragment datagrams, too.
func TestLargeDatagramsOfIPv4AreLost(t *testing.T) {
	dir := filepath.Join(recordedFaults, "iptables", "healthy")
	for service, c := range map[string]struct{ frontend, words string }{
		"faults":     {"10.97.222.255:80", "connections hang"},
		"faults-udp": {"10.97.117.2:80", "takes whole, are lost, unless"},
	} {
		f := &faultdata.Fault{Service: service, Node: "node1", From: "pod/faults-client-node1", Frontend: c.frontend}
		cl, n := openFault(t, dir, f, map[string]func(string) string{
			"ip-link.json": func(text string) string {
				before, after, _ := strings.Cut(text, `"ifname":"eth0"`)
				return before + `"ifname":"eth0"` + strings.Replace(after, `"mtu":1500`, `"mtu":1300`, 1)
			},
			"iptables-nft-save.txt": func(text string) string {
				before, after, _ := strings.Cut(text, "*filter\n")
				return before + "*filter\n" + strings.Replace(after, "\nCOMMIT",
					"\n-A OUTPUT -p icmp -m icmp --icmp-type 3/4 -j DROP\nCOMMIT", 1)
			},
		})
		r := judgeOpened(t, f, cl, n)
		if len(r.Paths) != 1 {
			t.Fatalf("%s: %d paths; %s", service, len(r.Paths), r.Error)
		}
		p := &r.Paths[0]
		at := slices.IndexFunc(p.Findings, func(f report.Finding) bool { return f.Code == endtoend.PMTUBlackHole })
		if at < 0 || !strings.Contains(p.Findings[at].Message, c.words) || p.Verdict != report.Warning {
			t.Errorf("%s: %s, %+v", service, p.Verdict, p.Findings)
		}
	}
}
