// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// What is said of sockets of UDP whose limits are not told, or of which one may take what another one would serve.
func TestSocketsOfUDP(t *testing.T) {
	at := netip.MustParseAddrPort("10.0.0.1:53")
	for _, c := range []struct{ list, stopped, want, evidence string }{
		{
			"udp UNCONN 150000 0 0.0.0.0:53 0.0.0.0:*\n", "", "150000 bytes wait to be read",
			"udp 0.0.0.0:53 (150000 bytes are taken)",
		},
		{
			"udp UNCONN 0 0 0.0.0.0:53 0.0.0.0:* skmem:(r150000,rb212992,t0)\n", "",
			"is more than half full (150000 of 212992 bytes are taken)", "udp 0.0.0.0:53 (150000 of 212992 bytes are taken)",
		},
		{ // the first of two that are alike gets all packets, if they share the port by SO_REUSEADDR
			"udp UNCONN 0 0 [::]:53 *:* users:((\"a\",pid=7,fd=3))\nudp UNCONN 0 0 *:53 *:* users:((\"b\",pid=8,fd=3))\n",
			"7 T a\n", "whether the socket at udp [::]:53", "udp *:53",
		},
	} {
		sockets, err := host.ParseListen([]byte(c.list))
		if err == nil && c.stopped != "" {
			err = host.MarkStopped(sockets, []byte(c.stopped))
		}
		if err != nil {
			t.Fatal(err)
		}
		s := &nodestate.State{Sockets: sockets}
		l := listenersAt(s, "udp", at, "eth0")
		f := &follower{Connection: &Connection{}, to: &Endpoint{Node: "node1", At: at}}
		got := f.queued(s, &l, at, "pod shop/web")
		if got.Verdict != report.SegmentUnknown || !strings.Contains(got.Message, c.want) || len(got.Evidence) == 0 ||
			!strings.Contains(got.Evidence[0].Text, c.evidence) {
			t.Errorf("%s: %+v", c.list, got)
		}
	}
}
