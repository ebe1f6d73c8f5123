// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// weight is what makes a socket win over others that take a packet, too: one of the very address is looked up first
// (inet_lhash2_lookup and __udp4_lib_lookup ask for the address, then for any); among those of one kind counts
// compute_score, of net/ipv4/inet_hashtables.c for TCP and of net/ipv4/udp.c for UDP, and of their namesakes in
// net/ipv6.
type weight struct{ address, device, family int }

// weights are by protocol.
var weights = map[string]weight{"tcp": {8, 1, 1}, "udp": {16, 4, 1}}

// of is a socket's weight for packets to an address. A socket of IPv6 that takes IPv4, too, has no address of its own.
func (w weight) of(s *host.Socket, to netip.Addr) (sum int) {
	if s.Address.IsValid() && !s.Address.IsUnspecified() {
		sum += w.address
	}
	if s.Device != "" {
		sum += w.device
	}
	if to.Is4() && s.Address.Is4() {
		sum += w.family
	}
	return sum
}

// winners are the sockets that the kernel chooses from: of those that take a packet the ones with the most weight.
// Several are of one group (SO_REUSEPORT), of which one gets each connection by its hash, whatever the queues
// (reuseport_select_sock in net/core/sock_reuseport.c).
func (w weight) winners(list []*host.Socket, to netip.Addr) (out []*host.Socket, most int) {
	for _, s := range list {
		most = max(most, w.of(s, to))
	}
	return slices.DeleteFunc(slices.Clone(list), func(s *host.Socket) bool { return w.of(s, to) < most }), most
}

// faults are why a socket that takes a packet does not serve it: a cause before what it leads to, as the queue of a
// process that does not go on is full soon.
var faults = []struct {
	code   string
	has    func(*host.Socket) bool
	one    string // what is said where all sockets are so, of their address and process
	some   string // what some of several are
	effect string
}{
	{
		ProcessStopped, func(s *host.Socket) bool { return s.Frozen },
		"%[2]s, which listens at %[1]s, is frozen with its control group (a container that is paused)",
		"are of a process that is frozen with its control group",
		"the kernel accepts connections until its queue is full, and nothing answers",
	},
	{
		ProcessStopped, func(s *host.Socket) bool { return s.Stopped }, "%[2]s, which listens at %[1]s, is stopped",
		"are of a process that is stopped",
		"the kernel accepts connections until its queue is full, and nothing answers",
	},
	{
		BacklogFull, (*host.Socket).Full, "the queue of the socket that listens at %[1]s is full", "have a full queue",
		"the process does not accept connections",
	},
}

// queued judges the sockets that take the packet: a listening socket of TCP whose queue is full drops the last packet
// of the handshake, and SYNs (sk_acceptq_is_full in include/net/sock.h, tcp_conn_request in net/ipv4/tcp_input.c).
func (f *follower) queued(s *nodestate.State, l *listeners, at netip.AddrPort, place string) report.Segment {
	const segment = report.SegmentEndpointPod
	w := weights[l.taking[0].Protocol]
	list, most := w.winners(l.taking, at.Addr())
	texts := textsOf(list)
	f.socket = list[0]
	command := enter("ss -ltnup")
	if f.to.HostNetwork {
		command = "ss -ltnup"
	}
	for _, m := range l.maybe {
		if w.of(m, at.Addr()) >= most && bad(m) != bad(list[0]) {
			return with(unknown(segment, place, f.to.Node, command, "whether the socket at %s takes the packet in place of "+
				"that at %s is not known", socketText(m), socketText(list[0])), texts...)
		}
	}
	if lost := notServed(list, at, place); lost.Segment != "" {
		return with(lost, texts...)
	}
	for _, x := range list {
		if x.Protocol == "tcp" && x.Backlog == 0 && x.Queue > 0 {
			return with(unknown(segment, place, f.to.Node, command, "%d connections wait at the socket that listens at %s, and "+
				"how many may is not known", x.Queue, at), texts...)
		}
		if x.Crowded() {
			return with(unknown(segment, place, f.to.Node, strings.Replace(command, "ss -ltnup", "ss -lunpm", 1), "%d bytes "+
				"wait to be read at the socket that listens at %s, and how many may is not known: a process that does not read "+
				"loses what comes", x.Queue, at), texts...)
		}
	}
	if n, why := f.unread(s, f.Start.Packet.Family, bySockets); n != nil {
		return unknown(segment, place, f.to.Node, n.command, "%s", why)
	}
	seg := right(segment, place, "%s listens at %s", processOf(list[0]), at)
	if list[0].Protocol == "tcp" && list[0].Queue > 0 {
		seg = with(seg, texts...)
	}
	return seg
}

// bad tells whether a socket has one of the faults.
func bad(s *host.Socket) bool {
	for i := range faults {
		if faults[i].has(s) {
			return true
		}
	}
	return false
}

// notServed is the segment where sockets that take the packet do not serve it; the zero Segment where all do.
func notServed(list []*host.Socket, at netip.AddrPort, place string) (s report.Segment) {
	code, said, effect, lost := "", []string{}, "", 0
	for _, x := range list {
		if bad(x) {
			lost++
		}
	}
	for i := range faults {
		c, count := &faults[i], 0
		for _, x := range list {
			if c.has(x) {
				count++
			}
		}
		switch {
		case count == 0:
			continue
		case count == len(list):
			return wrong(c.code, report.SegmentEndpointPod, place, "the workload", c.one+": "+c.effect, at,
				processOf(list[0]))
		case code == "":
			code, effect = c.code, c.effect
		}
		said = append(said, fmt.Sprintf("%d %s", count, c.some))
	}
	if code == "" {
		return s
	}
	return wrong(code, report.SegmentEndpointPod, place, "the workload",
		"of the %d sockets that listen at %s (SO_REUSEPORT) %s: %s. The kernel gives each connection to one of them, by its "+
			"hash: about %.0f%% are lost", len(list), at, strings.Join(said, ", "), effect,
		100*float64(lost)/float64(len(list)))
}
