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

// winners are the sockets that the kernel chooses from, of those that take a packet: one, or several of one group
// (SO_REUSEPORT), of which one gets each connection by its hash, whatever the queues (reuseport_select_sock in
// net/core/sock_reuseport.c). Those of the very address are looked up first (inet_lhash2_lookup and udp4_lib_lookup2
// ask for the address, then for any). The list is in the order in which sock_diag goes through the kernel's own: of
// sockets at one port, of IPv4 the one that was bound last comes first, and of IPv6 with SO_REUSEPORT the one that was
// bound first (__inet_hash, udp_lib_get_port).
//
// other are those which it chooses from if sockets of UDP share the port by SO_REUSEADDR, which nobody is told; nil
// where that is the same.
func winners(list []*host.Socket, to netip.Addr) (chosen, other []*host.Socket) {
	own := slices.DeleteFunc(slices.Clone(list), func(s *host.Socket) bool {
		return !s.Address.IsValid() || s.Address.IsUnspecified()
	})
	if len(own) > 0 {
		list = own
	}
	chosen = group(list, to)
	if list[0].Protocol != "udp" {
		return chosen, nil
	}
	best := list[0]
	for _, s := range list {
		if score(s, to) > score(best, to) {
			best = s
		}
	}
	if len(chosen) > 1 || chosen[0] != best {
		other = []*host.Socket{best}
	}
	return chosen, other
}

// group are the sockets that the lookup ends at where all have SO_REUSEPORT, as sockets of TCP at one port must: it
// ends at the first that takes the packet, whatever those behind it are bound to (inet_lookup_reuseport in
// net/ipv4/inet_hashtables.c), with all of its group (inet_reuseport_add_sock, udp_reuseport_add_sock). Those of IPv6
// are behind those of IPv4 (__inet_hash, udp_lib_get_port), and those of UDP there in the order in which they were
// bound.
func group(list []*host.Socket, to netip.Addr) (out []*host.Socket) {
	first := list[0]
	if i := slices.IndexFunc(list, (*host.Socket).IsIPv4); to.Is4() && i >= 0 {
		first = list[i]
	} else if first.Protocol == "udp" {
		first = list[len(list)-1]
	}
	for _, s := range list {
		if s.Address == first.Address && s.Mapped == first.Mapped && s.Device == first.Device {
			out = append(out, s)
		}
	}
	return out
}

// score is compute_score in net/ipv4/udp.c: of sockets without SO_REUSEPORT the first with the most gets all packets.
func score(s *host.Socket, to netip.Addr) (sum int) {
	if s.Device != "" {
		sum += 4
	}
	if to.Is4() && s.IsIPv4() {
		sum++
	}
	return sum
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
		BacklogFull, func(s *host.Socket) bool { return s.Protocol == "tcp" && s.Full() },
		"the queue of the socket that listens at %[1]s is full", "have a full queue",
		"the process does not accept connections",
	},
	{
		BacklogFull, func(s *host.Socket) bool { return s.Protocol == "udp" && s.Full() },
		"the buffer of the socket that listens at %[1]s is full", "have a full buffer",
		"the process does not read what comes, and the kernel discards more",
	},
}

// queued judges the sockets that take the packet: a listening socket of TCP whose queue is full drops the last packet
// of the handshake, and SYNs (sk_acceptq_is_full in include/net/sock.h, tcp_conn_request in net/ipv4/tcp_input.c).
func (f *follower) queued(s *nodestate.State, l *listeners, at netip.AddrPort, place string) report.Segment {
	const segment = report.SegmentEndpointPod
	list, other := winners(l.taking, at.Addr())
	texts := textsOf(list)
	f.socket = list[0]
	command := enter("ss -ltnup")
	if f.to.HostNetwork {
		command = "ss -ltnup"
	}
	for _, m := range l.maybe {
		alike, alone := winners(l.and(m), at.Addr())
		differs := func(won []*host.Socket) bool { return slices.Contains(won, m) && unserved(won) != unserved(list) }
		if differs(alike) || differs(alone) {
			return with(unknown(segment, place, f.to.Node, command, "whether the socket at %s takes the packet in place of "+
				"that at %s is not known", socketText(m), socketText(list[0])), texts...)
		}
	}
	if other != nil && (unserved(other) == 0) != (unserved(list) == 0) {
		return with(unknown(segment, place, f.to.Node, command, "%d sockets have the port: with SO_REUSEPORT each may get "+
			"packets, with SO_REUSEADDR alone that at %s, which was bound last or is the most specific one, gets all; not all "+
			"of them serve what they get", len(l.taking), socketText(other[0])), textsOf(l.taking)...)
	}
	if lost := notServed(list, at, place); lost.Segment != "" {
		return with(lost, texts...)
	}
	for _, x := range list {
		if x.Protocol == "tcp" && !x.Diagnosed && x.Queue > 0 {
			return with(unknown(segment, place, f.to.Node, command, "%d connections wait at the socket that listens at %s, and "+
				"how many may is not known", x.Queue, at), texts...)
		}
		if s, crowded := f.crowded(x, at, place, command); crowded {
			return with(s, texts...)
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

// crowded judges a socket of UDP at which much waits to be read.
func (f *follower) crowded(x *host.Socket, at netip.AddrPort, place, command string) (s report.Segment, crowded bool) {
	const segment = report.SegmentEndpointPod
	command = strings.Replace(command, "ss -ltnup", "ss -lunpm", 1)
	switch {
	case !x.Crowded():
		return s, false
	case x.Buffer > 0:
		return unknown(segment, place, f.to.Node, command, "the buffer of the socket that listens at %s is more than half "+
			"full (%d of %d bytes are taken): a large datagram may be discarded", at, max(x.Queue, x.Held), x.Buffer), true
	}
	return unknown(segment, place, f.to.Node, command, "%d bytes wait to be read at the socket that listens at %s, and "+
		"how many may is not known: a process that does not read loses what comes", x.Queue, at), true
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

// unserved is how many of some sockets have one of the faults, as a share.
func unserved(list []*host.Socket) float64 {
	lost := 0
	for _, s := range list {
		if bad(s) {
			lost++
		}
	}
	return float64(lost) / float64(len(list))
}

// notServed is the segment where sockets that take the packet do not serve it; the zero Segment where all do.
func notServed(list []*host.Socket, at netip.AddrPort, place string) (s report.Segment) {
	code, said, effect := "", []string{}, ""
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
		100*unserved(list))
}
