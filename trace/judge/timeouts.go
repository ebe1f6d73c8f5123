// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// ConnectionForgotten says that connection tracking forgets connections at once.
const ConnectionForgotten = "ConnectionForgotten"

var _ = register(kind{code: ConnectionForgotten, severity: mismatch, scope: onPath, by: misplaced(
	ConnectionForgotten, "the answer does not come back",
	"connection tracking forgets the connection at once, so that nothing translates the packets behind the first one",
	"set it back to the kernel's default, and find what has set it (/etc/sysctl.d, kube-proxy's conntrack settings)",
	func(p *pathCase, end *netfilter.Outcome) *obstacle {
		if !end.Packet.DNAT || end.Packet.Untracked {
			return nil
		}
		var out *obstacle
		for _, t := range timeouts {
			if t.proto != end.Packet.Proto || !p.isOff(t.key) || t.anew && !p.chosenAnew(end) {
				continue
			}
			if out == nil {
				out = &obstacle{may: true}
			}
			out.may = out.may && t.only != ""
			out.doubt = cmp.Or(out.doubt, t.only)
			out.evidence = append(out.evidence, t.key+"=0")
			out.remedy.Commands = append(out.remedy.Commands,
				p.onNode("", "sysctl", "-w", fmt.Sprintf("%s=%d", t.key, t.usual)))
		}
		return out
	},
)})

// What fails if connection tracking forgets connections that it has once known.
const (
	withoutEnd = "connection tracking forgets connections as soon as one side has sent all: a client that says so " +
		"first, and reads to the end of the answer, does not get it; one that knows the answer's length is not affected"
	withoutLongTalk = "connection tracking forgets what has gone on for more than two seconds: answers to what the " +
		"client sends then are not translated back"
)

// timeout is what the keys of timeouts begin with.
const timeout = "net/netfilter/nf_conntrack_"

// timeouts are how long connection tracking keeps what a connection comes to, in seconds: a state with 0 is over
// before the next packet comes (nf_ct_is_expired in include/net/netfilter/nf_conntrack.h; tcp_timeouts and udp_timeouts
// in net/netfilter/nf_conntrack_proto_tcp.c and nf_conntrack_proto_udp.c have the defaults, and that a conversation of
// more than two seconds is a stream). Those of retransmitted and of unacknowledged packets take the place of a state's
// own where they are shorter (nf_conntrack_tcp_packet). The states behind CLOSE_WAIT need no translation of what an
// application waits for.
var timeouts = []struct {
	proto uint8
	key   string
	usual int
	anew  bool   // what comes next is the client's, and makes a new entry
	only  string // who notices, where not everybody does
}{
	{proto: netfilter.TCP, key: timeout + "tcp_timeout_syn_sent", usual: 120},
	{proto: netfilter.TCP, key: timeout + "tcp_timeout_syn_recv", usual: 60, anew: true},
	{proto: netfilter.TCP, key: timeout + "tcp_timeout_established", usual: 432000},
	{proto: netfilter.TCP, key: timeout + "tcp_timeout_fin_wait", usual: 120, only: withoutEnd},
	{proto: netfilter.TCP, key: timeout + "tcp_timeout_close_wait", usual: 60, only: withoutEnd},
	{proto: netfilter.TCP, key: timeout + "tcp_timeout_max_retrans", usual: 300},
	{proto: netfilter.TCP, key: timeout + "tcp_timeout_unacknowledged", usual: 300},
	{proto: netfilter.UDP, key: timeout + "udp_timeout", usual: 30},
	{proto: netfilter.UDP, key: timeout + "udp_timeout_stream", usual: 120, only: withoutLongTalk},
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
