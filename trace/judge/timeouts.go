// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// ConnectionForgotten says that connection tracking forgets connections at once.
const ConnectionForgotten = "ConnectionForgotten"

var _ = register(kind{code: ConnectionForgotten, severity: mismatch, scope: onPath, by: misplaced(
	ConnectionForgotten, "the answer does not come back",
	"connection tracking forgets the connection at once, so that nothing translates the packets behind the first one",
	"set it back to the kernel's default, and find what has set it (/etc/sysctl.d, kube-proxy's conntrack settings)",
	func(p *pathCase, end *netfilter.Outcome) (evidence []string, fix []report.Command) {
		if !end.Packet.DNAT || end.Packet.Untracked {
			return nil, nil
		}
		for _, t := range timeouts {
			if t.proto == end.Packet.Proto && p.isOff(t.key) && (!t.anew || p.chosenAnew(end)) {
				evidence = append(evidence, t.key+"=0")
				fix = append(fix, p.onNode("", "sysctl", "-w", fmt.Sprintf("%s=%d", t.key, t.usual)))
			}
		}
		return evidence, fix
	},
)})

// timeouts are how long connection tracking keeps what a connection begins with, in seconds: a state with 0 is over
// before the next packet comes (nf_ct_is_expired in include/net/netfilter/nf_conntrack.h; tcp_timeouts and udp_timeouts
// in net/netfilter/nf_conntrack_proto_tcp.c and nf_conntrack_proto_udp.c have the defaults). Those of retransmitted and
// of unacknowledged packets take the place of a state's own where they are shorter (nf_conntrack_tcp_packet).
var timeouts = []struct {
	proto uint8
	key   string
	usual int
	anew  bool // what comes next is the client's, and makes a new entry
}{
	{netfilter.TCP, "net/netfilter/nf_conntrack_tcp_timeout_syn_sent", 120, false},
	{netfilter.TCP, "net/netfilter/nf_conntrack_tcp_timeout_syn_recv", 60, true},
	{netfilter.TCP, "net/netfilter/nf_conntrack_tcp_timeout_established", 432000, false},
	{netfilter.TCP, "net/netfilter/nf_conntrack_tcp_timeout_max_retrans", 300, false},
	{netfilter.TCP, "net/netfilter/nf_conntrack_tcp_timeout_unacknowledged", 300, false},
	{netfilter.UDP, "net/netfilter/nf_conntrack_udp_timeout", 30, false},
}

// chosenAnew tells whether a new entry in the middle of a connection may lead to another endpoint, or have another
// source than the first: of several endpoints one is chosen again, and a masquerade to a random port takes another one
// (get_unique_tuple in net/netfilter/nf_nat_core.c).
func (p *pathCase) chosenAnew(end *netfilter.Outcome) bool {
	if by := end.Packet.SNATBy.Rule; end.Packet.SNAT && by != nil && strings.Contains(by.Text, "random") {
		return true
	}
	return p.want.AffinitySeconds == 0 && len(p.got.translated()) > 1
}
