// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
)

// Socket is a listening or unconnected socket of the node.
type Socket struct {
	Protocol string     // tcp, udp, sctp, …, as ss calls it
	Address  netip.Addr // the zero Addr for both families' any address ("*")
	Mapped   bool       // it is of IPv6, and bound to an address of IPv4 (::ffff:10.0.0.1)
	Port     uint16
	Device   string // the interface that it is bound to; "" for none, and where that is not told
	Process  string // the name of the first process that has it; "" where ss does not show it
	PID      int
	Others   []int // further processes that have it
	Stopped  bool  // all processes that have it are stopped (SIGSTOP), or frozen
	Frozen   bool  // the control group of one of these is frozen
	// Queue is how many connections wait to be accepted at a listening socket of TCP (of others, bytes), and Backlog how
	// many may, where that is told; else 0.
	Queue, Backlog int64
	// Diagnosed: it was listed over sock_diag, and not from /proc, which has no limits of queues, and does not tell which
	// sockets of IPv6 take IPv4, too.
	Diagnosed bool
	// Buffer is the size of the buffer of what it receives, and Held how much of that is taken; 0 where it is not told.
	Held, Buffer int64
}

// IsIPv4 tells whether it is a socket of IPv4: one of IPv6 may take IPv4, too.
func (s *Socket) IsIPv4() bool { return s.Address.Is4() && !s.Mapped }

// Bound is the address that it is bound to, as ss prints it.
func (s *Socket) Bound() string {
	switch {
	case !s.Address.IsValid():
		return "*"
	case s.Mapped:
		return "[::ffff:" + s.Address.String() + "]"
	case s.Address.Is6():
		return "[" + s.Address.String() + "]"
	}
	return s.Address.String()
}

// Accepts tells whether the socket receives packets of a protocol to an address and port. A socket that is bound to the
// unspecified address of IPv6 and receives IPv4, too, is shown as "*" by ss; one that is shown as [::] does not.
func (s *Socket) Accepts(protocol string, to netip.AddrPort) bool {
	if s.Protocol != protocol || s.Port != to.Port() {
		return false
	}
	return !s.Address.IsValid() || s.Address == to.Addr() ||
		s.Address.IsUnspecified() && s.Address.Is4() == to.Addr().Is4()
}

// MayAccept tells of a socket that does not accept packets to an address and port by [Socket.Accepts] that it may all
// the same: it has any address of IPv6, and was not listed over sock_diag.
func (s *Socket) MayAccept(protocol string, to netip.AddrPort) bool {
	return s.Protocol == protocol && s.Port == to.Port() && to.Addr().Is4() && s.Address == netip.IPv6Unspecified() &&
		!s.Diagnosed
}

// smallest is how much room a small datagram takes, with what the kernel needs beside (skb->truesize).
const smallest = 768

// Full tells whether more connections wait at a listening socket of TCP than may: the kernel drops further ones
// (sk_acceptq_is_full in include/net/sock.h). Of UDP, whether no datagram fits in any more
// (__udp_enqueue_schedule_skb in net/ipv4/udp.c).
func (s *Socket) Full() bool {
	switch s.Protocol {
	case "tcp":
		return s.Diagnosed && s.Queue > s.Backlog
	case "udp":
		return s.Buffer > 0 && s.Held > 0 && s.Held+smallest > s.Buffer
	}
	return false
}

// usualBuffer is how many bytes wait at most at a socket of UDP that asks for no other size (net.core.rmem_default).
const usualBuffer = 212992

// Crowded tells whether so much waits to be read at a socket of UDP that the kernel may drop what comes; where its room
// is not told, unless the process has asked for more: what no datagram fits into any more, and what the reader has yet
// to give back, are less than half (__udp_enqueue_schedule_skb and udp_rqueue_get in net/ipv4/udp.c).
func (s *Socket) Crowded() bool {
	return s.Protocol == "udp" && max(s.Queue, s.Held) > cmp.Or(s.Buffer, usualBuffer)/2
}

// Of a line of ss, what -e and -m add, which it has of sock_diag alone.
var (
	v6only = lazyregexp.New(` v6only:[01](?:\s|$)`)
	skmem  = lazyregexp.New(` skmem:\(r(\d+),rb(\d+)[,)]`)
)

// users is how ss names a socket's processes: users:(("kube-proxy",pid=29133,fd=11)). A process may choose a name that
// looks like more of this: allUsers is all of it, in a line without such names.
var (
	users    = lazyregexp.New(`\("([^"]*)",pid=(\d+)`)
	allUsers = lazyregexp.New(` users:\((\("[^"]*",pid=\d+,fd=\d+\),?)+\)(?:\s|$)`)
)

// ParseListen reads what ss -Hltunp prints. The error names the line, or says that the text ends within one: only of a
// whole list it follows that nobody listens somewhere.
func ParseListen(data []byte) ([]Socket, error) {
	var out []Socket
	if Unterminated(data) {
		return nil, fmt.Errorf("it is cut off in line %d", bytes.Count(data, []byte("\n"))+1)
	}
	number, diagnosed := 0, map[string]bool{}
	for line := range bytes.Lines(data) {
		number++
		f := strings.Fields(string(line))
		if len(f) == 0 || f[0] == "Netid" {
			continue
		}
		const local = 4 // Netid State Recv-Q Send-Q Local Peer
		if len(f) <= local || !Printable(line) {
			return nil, fmt.Errorf("line %d: %q is not a socket as ss -Hltunp prints it", number, bytes.TrimSpace(line))
		}
		s := Socket{Protocol: f[0]}
		var err error
		if err = s.parse(f[local]); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		s.Queue, s.Backlog = count(f[2]), count(f[3])
		more := line[bytes.LastIndex(line, []byte("))"))+1:] // behind the names of processes
		if m := skmem().FindSubmatch(more); m != nil {
			s.Held, s.Buffer, s.Diagnosed = count(string(m[1])), count(string(m[2])), true
		}
		s.Diagnosed = s.Diagnosed || s.Protocol == "tcp" && s.Backlog > 0 || v6only().Match(more)
		diagnosed[s.Protocol] = diagnosed[s.Protocol] || s.Diagnosed
		for i, u := range users().FindAllSubmatch(allUsers().Find(line), -1) {
			pid, _ := strconv.Atoi(string(u[2])) // digits
			if i == 0 {
				s.Process, s.PID = string(u[1]), pid
			} else {
				s.Others = append(s.Others, pid)
			}
		}
		out = append(out, s)
	}
	for i := range out { // ss asks for each protocol
		out[i].Diagnosed = diagnosed[out[i].Protocol]
	}
	return slices.Clip(out), nil
}

// count reads a number; 0 where it is none.
func count(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// parse reads ADDRESS[%DEVICE]:PORT.
func (s *Socket) parse(text string) error {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return fmt.Errorf("%q is not ADDRESS:PORT", text)
	}
	number, err := strconv.ParseUint(text[i+1:], 10, 16)
	if err != nil {
		return fmt.Errorf("%q has no port number: call ss with -n", text)
	}
	address, device, _ := strings.Cut(strings.Trim(text[:i], "[]"), "%")
	address = strings.TrimSuffix(address, "]") // [fe80::1]%eth0
	s.Device, s.Port = device, uint16(number)
	if address == "*" {
		return nil
	}
	a, err := netip.ParseAddr(address)
	if err != nil {
		return fmt.Errorf("%q is not ADDRESS:PORT: %w", text, err)
	}
	s.Address, s.Mapped = a.Unmap(), a.Is4In6()
	return nil
}

// Frozen is the state of a process whose control group is frozen. ps has no letter for it, and shows it as asleep.
const Frozen = "F"

// MarkStopped marks the sockets of which all processes are stopped, by what ps -e -o pid=,stat=,comm= prints, or
// [Frozen]. The error names the line that is none of it.
func MarkStopped(list []Socket, data []byte) error {
	if Unterminated(data) {
		return fmt.Errorf("it is cut off in line %d", bytes.Count(data, []byte("\n"))+1)
	}
	var unread error
	stopped, frozen, number := map[int]bool{}, map[int]bool{}, 0
	for line := range bytes.Lines(data) {
		number++
		f := strings.Fields(string(line))
		if len(f) == 0 {
			continue
		}
		if f[0] == "#" && Printable(line) {
			unread = errors.New(strings.Join(f[1:], " "))
			continue
		}
		pid, err := strconv.Atoi(f[0])
		if err != nil || len(f) < 2 || !isProcessState(f[1]) || !Printable(line) {
			return fmt.Errorf("line %d: %q is not a process as ps -e -o pid=,stat=,comm= prints it", number,
				bytes.TrimSpace(line))
		}
		frozen[pid] = f[1] == Frozen
		stopped[pid] = frozen[pid] || strings.ContainsAny(f[1][:1], "Tt")
	}
	for i := range list {
		s := &list[i]
		s.Stopped = s.PID != 0 && stopped[s.PID] &&
			!slices.ContainsFunc(s.Others, func(pid int) bool { return !stopped[pid] })
		s.Frozen = s.Stopped && (frozen[s.PID] || slices.ContainsFunc(s.Others, func(pid int) bool { return frozen[pid] }))
	}
	return unread
}

// isProcessState tells whether a text is a process's state as ps prints it (ps(1), PROCESS STATE CODES).
func isProcessState(text string) bool {
	return text == Frozen || strings.Trim(text[:1], "DIKPRSTtWXxZ") == "" && strings.Trim(text[1:], "<NLsl+") == ""
}
