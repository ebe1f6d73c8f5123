// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/ctnetlink"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// kinds are the sockets of the protocols.
var kinds = map[string]struct {
	kind  int
	proto uint8
}{
	"TCP":  {unix.SOCK_STREAM, unix.IPPROTO_TCP},
	"UDP":  {unix.SOCK_DGRAM, unix.IPPROTO_UDP},
	"SCTP": {unix.SOCK_STREAM, unix.IPPROTO_SCTP},
}

func run(
	ctx context.Context, root string, targets []snapshot.ProbeTarget, pods []podns.Pod,
) ([]snapshot.Probes, error) {
	if len(targets) > MaxTargets {
		return nil, fmt.Errorf("%d targets are too many to probe: at most %d", len(targets), MaxTargets)
	}
	spaces := &namespaces{pods, map[netip.Addr]*namespace{}}
	defer spaces.close()
	out := make([]snapshot.Probes, len(targets))
	free, open := make(chan struct{}, atOnce), make(chan struct{}, MaxOpen)
	sent := ctnetlink.Watch()
	defer sent.Close()
	var wg sync.WaitGroup
	for i, t := range targets {
		out[i].ProbeTarget = t
		if err := check(t); err != nil {
			out[i].Error = err.Error()
			continue
		}
		space, err := spaces.of(t.From)
		if err != nil {
			out[i].Error = err.Error()
			continue
		}
		out[i].List = make([]snapshot.Probe, t.Probes)
		var own sync.WaitGroup // for the target's own ones
		for k := range out[i].List {
			for _, room := range []chan struct{}{free, open} {
				select {
				case room <- struct{}{}:
				case <-ctx.Done():
					wg.Wait()
					return nil, context.Cause(ctx)
				}
			}
			own.Add(1)
			wg.Go(func() {
				defer own.Done()
				defer func() { <-open }()
				release := sync.OnceFunc(func() { <-free })
				defer release()
				defer time.AfterFunc(slow, release).Stop()
				out[i].List[k] = space.probe(ctx, t)
			})
		}
		wg.Go(func() {
			own.Wait()
			scheduled(t, pointers(out[i].List)...)
		})
	}
	wg.Wait()
	sentTo(sent, out)
	if err := traceAll(ctx, root, spaces, out); err != nil {
		return nil, err
	}
	return out, context.Cause(ctx)
}

// sentTo notes where connections were sent of which no entry was left when it was asked for: a reset removes it.
func sentTo(sent *ctnetlink.Watcher, all []snapshot.Probes) {
	sent.Settle()
	for i := range all {
		for k := range all[i].List {
			if p := &all[i].List[k]; !p.Endpoint.IsValid() && p.Local.IsValid() {
				p.Endpoint = sent.To(kinds[all[i].Protocol].proto, p.Local, all[i].To)
			}
		}
	}
}

func pointers(list []snapshot.Probe) []*snapshot.Probe {
	out := make([]*snapshot.Probe, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

func check(t snapshot.ProbeTarget) error {
	switch _, ok := kinds[t.Protocol]; {
	case !ok:
		return fmt.Errorf("protocol %q cannot be probed: TCP, UDP and SCTP can", t.Protocol)
	case !t.To.IsValid() || t.To.Port() == 0:
		return fmt.Errorf("%s is not an address and port to connect to", t.To)
	case t.Probes < 1 || t.Probes > MaxProbes:
		return fmt.Errorf("%d probes of one target: it may be 1 to %d", t.Probes, MaxProbes)
	case len(t.Payload) > MaxPayload:
		return fmt.Errorf("%d bytes to send: at most %d", len(t.Payload), MaxPayload)
	case t.Protocol == "SCTP":
		return hasSCTP()
	}
	return nil
}

// hasSCTP tells whether the kernel has SCTP now. To ask for a socket would load the module for good (__sock_create in
// net/socket.c), where the node has one that nobody has needed yet.
func hasSCTP() error {
	data, err := os.ReadFile("/proc/thread-self/net/protocols")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "SCTP ") {
			return nil
		}
	}
	return errNoSCTP
}

// errNoSCTP says what a person can do about it.
var errNoSCTP = errors.New("the node's kernel has no SCTP, or has not loaded it (modprobe sctp)")

// probe makes one connection, and reads its endpoint from the kernel while it is open.
func (s *namespace) probe(ctx context.Context, t snapshot.ProbeTarget) (p snapshot.Probe) {
	var fd int
	var err error
	if t.Protocol == "TCP" {
		fd, err = s.socket(t) // a SYN begins a connection anew
	} else {
		fd, _, err = s.unused(t)
	}
	if err != nil {
		p.Result, p.Error = resultOf(t.Protocol, err)
		return p
	}
	defer unix.Close(fd)
	return attempt(ctx, fd, t, Patience)
}

// ports is how many ports are tried to find one that connection tracking has no entry for.
const ports = 50

// unused makes a socket whose port no recent connection to the target has used. The kernel reuses a closed socket's
// port immediately, while connection tracking keeps the entry of a UDP connection for half a minute or more: another
// packet from that port passes no rule of NAT, and is sent where the first one was. The socket is bound to one address
// because of SCTP: otherwise it offers the peer all of the node's (sctp_bind_addr_copy in net/sctp/bind_addr.c), which
// NAT does not translate, and in IPVS mode the node has one for each Service.
func (s *namespace) unused(t snapshot.ProbeTarget) (fd int, local netip.AddrPort, err error) {
	from, err := s.source(t.To)
	if err != nil {
		return -1, local, err
	}
	for range ports {
		if fd, err = s.socket(t); err != nil {
			return -1, local, err
		}
		err = unix.Bind(fd, sockaddr(netip.AddrPortFrom(from, 0)))
		var name unix.Sockaddr
		if err == nil {
			name, err = unix.Getsockname(fd)
		}
		if err != nil {
			unix.Close(fd)
			return -1, local, err
		}
		if local = addrPort(name); ctnetlink.Find(kinds[t.Protocol].proto, local, t.To) == nil {
			return fd, local, nil
		}
		unix.Close(fd)
	}
	return -1, local, fmt.Errorf("connection tracking already has an entry for each of %d source ports that the kernel "+
		"chose for %s", ports,
		t.To)
}

// attempt connects a socket, and waits for as long as patience says.
func attempt(ctx context.Context, fd int, t snapshot.ProbeTarget, patience time.Duration) (p snapshot.Probe) {
	begin := time.Now()
	err := unix.Connect(fd, sockaddr(t.To))
	if local, e := unix.Getsockname(fd); e == nil {
		p.Local = addrPort(local)
	}
	switch {
	case err == nil && t.Protocol == "UDP":
		err = datagram(ctx, fd, t.Payload)
	case errors.Is(err, unix.EINPROGRESS):
		err = await(ctx, fd, unix.POLLOUT, patience)
	}
	took := time.Since(begin)
	p.Result, p.Error = resultOf(t.Protocol, err)
	if p.Result == snapshot.ProbeConnected || p.Result == snapshot.ProbeRefused {
		p.Micros = took.Microseconds()
	}
	// The kernel reuses ports: where the SYN was dropped before connection tracking, the entry may still be that of an
	// earlier connection, which was open as this one was not. A SYN that comes so far begins the entry anew
	// (nf_conntrack_tcp_packet in net/netfilter/nf_conntrack_proto_tcp.c).
	earlier := func(e *ctnetlink.Entry) bool {
		return t.Protocol == "TCP" && p.Result != snapshot.ProbeConnected && e.Assured
	}
	if e := ctnetlink.Find(kinds[t.Protocol].proto, p.Local, t.To); e != nil && !earlier(e) {
		p.Endpoint, p.Source, p.Unreplied = e.From, e.To, e.Unreplied
	}
	switch {
	case t.Payload == "":
	case p.Result == snapshot.ProbeSent:
		p.Data = snapshot.ProbeSilent
	case p.Result == snapshot.ProbeConnected:
		p.Data, p.Received = exchange(ctx, fd, t, min(answering, 2*patience))
	}
	return p
}

// exchange sends the payload, of TCP and SCTP, and waits for what comes back; it reads once.
func exchange(ctx context.Context, fd int, t snapshot.ProbeTarget, patience time.Duration) (data string, received int) {
	if t.Protocol != "UDP" {
		err := send(ctx, fd, t.Payload, patience)
		if err == nil {
			err = await(ctx, fd, unix.POLLIN, patience)
		}
		switch {
		case errors.Is(err, unix.ETIMEDOUT), ctx.Err() != nil:
			// tcp_ioctl: how many bytes are not sent or not acknowledged.
			if left, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ); err == nil && left > 0 && t.Protocol == "TCP" {
				return snapshot.ProbeUnacknowledged, 0
			}
			return snapshot.ProbeSilent, 0
		case err != nil:
			return snapshot.ProbeClosed, 0
		}
	}
	buffer := make([]byte, 4096)
	n, err := unix.Read(fd, buffer)
	if err != nil || n <= 0 && t.Protocol != "UDP" {
		return snapshot.ProbeClosed, 0
	}
	return snapshot.ProbeAnswered, n
}

// send sends all of a payload; the socket's buffer has room for most.
func send(ctx context.Context, fd int, payload string, patience time.Duration) error {
	for {
		n, err := unix.SendmsgN(fd, []byte(payload), nil, nil, unix.MSG_NOSIGNAL)
		switch {
		case err != nil && !errors.Is(err, unix.EAGAIN):
			return err
		case err == nil && n == len(payload):
			return nil
		case err == nil:
			payload = payload[n:]
		}
		if err := await(ctx, fd, unix.POLLOUT, patience); err != nil {
			return err
		}
	}
}

// errSilent is the end of a datagram that nobody answered.
var errSilent = errors.New("no answer")

// quiet is how long an answer to an empty datagram is waited for: a refusal takes no longer than a round trip.
const quiet = 300 * time.Millisecond

// datagram sends a datagram, an empty one where there is no payload, and waits a moment for an answer or a refusal.
func datagram(ctx context.Context, fd int, payload string) error {
	patience := quiet
	if payload != "" {
		patience = answering
	}
	if _, err := unix.Write(fd, []byte(payload)); err != nil {
		return err
	}
	err := await(ctx, fd, unix.POLLIN, patience)
	if errors.Is(err, unix.ETIMEDOUT) {
		return errSilent
	}
	return err
}

// await waits for a socket; its error is the socket's own, or ETIMEDOUT.
func await(ctx context.Context, fd int, events int16, patience time.Duration) error {
	const step = 50 * time.Millisecond // after which the context is asked
	for end := time.Now().Add(patience); ; {
		fds := []unix.PollFd{{Fd: int32(fd), Events: events}} //nolint:gosec // a file descriptor
		n, err := unix.Poll(fds, int(min(step, max(time.Until(end), 0)).Milliseconds())+1)
		switch {
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		case n > 0:
			code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
			if err == nil && code != 0 {
				err = unix.Errno(code)
			}
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case time.Now().After(end):
			return unix.ETIMEDOUT
		}
	}
}

// results are the results for the errors of a socket.
var results = map[unix.Errno]string{
	unix.ECONNREFUSED: snapshot.ProbeRefused, unix.ECONNRESET: snapshot.ProbeRefused,
	unix.ECONNABORTED: snapshot.ProbeRefused,
	unix.ETIMEDOUT:    snapshot.ProbeTimeout,
	unix.EHOSTUNREACH: snapshot.ProbeNoRoute, unix.ENETUNREACH: snapshot.ProbeNoRoute,
}

func resultOf(protocol string, err error) (result, why string) {
	var no unix.Errno
	switch {
	case err == nil:
		return snapshot.ProbeConnected, ""
	case errors.Is(err, errSilent):
		return snapshot.ProbeSent, ""
	case errors.As(err, &no) && results[no] != "":
		return results[no], ""
	}
	return snapshot.ProbeFailed, protocol + ": " + err.Error()
}

func failed(err error) snapshot.Probe {
	return snapshot.Probe{Result: snapshot.ProbeFailed, Error: err.Error()}
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

func addrPort(s unix.Sockaddr) netip.AddrPort {
	switch s := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(s.Addr), uint16(s.Port)) //nolint:gosec // a port
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(s.Addr), uint16(s.Port)) //nolint:gosec // a port
	}
	return netip.AddrPort{}
}
