// SPDX-License-Identifier: Apache-2.0

package program

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// Limits of the proxy.
const (
	dialTime  = 5 * time.Second
	drainTime = 5 * time.Second       // for connections that are open when a path ends; within the helper's grace
	tcpIdle   = time.Hour             // after which a connection is closed on which neither side sends anything
	tcpMost   = 10_000                // connections at once
	noFiles   = 10 * time.Millisecond // after which accepting is tried again, when there are no more files
)

// proxy forwards connections to endpoints in this process. Rules with target REDIRECT send them to it; connections that
// were not redirected are refused.
type proxy struct {
	scheduler string // "lc" and "sh" as in IPVS, else round-robin
	seed      maphash.Seed
	log       *slog.Logger
	events    *eventLog       // nil: nothing is logged
	over      context.Context // of all connections
	end       context.CancelFunc
	active    sync.WaitGroup
	conns     atomic.Int64 // of TCP
	own       ownAddresses

	mu     sync.Mutex // also of all frontends
	fronts map[socketKey]*frontend
	tcp    *net.TCPListener // nil before the first frontend of TCP
}

type socketKey struct {
	at       netip.AddrPort
	protocol string
}

// frontend is a frontend, and what is remembered of its clients over updates.
type frontend struct {
	*plan.Frontend                        // nil if it is no longer one
	next           int                    // of round-robin
	open           map[netip.AddrPort]int // connections of each endpoint
	relay          *relay                 // of UDP
}

// startProxy listens, on ports of the kernel's choice. Without a log nothing is logged.
func startProxy(p *plan.Plan, scheduler string, log io.Writer) (*proxy, error) {
	x := &proxy{
		scheduler: scheduler, seed: maphash.MakeSeed(), log: slog.New(slog.DiscardHandler),
		fronts: map[socketKey]*frontend{},
	}
	x.over, x.end = context.WithCancel(context.Background())
	if log != nil {
		x.events = newEventLog(log)
		x.log = slog.New(slog.NewTextHandler(x.events, nil))
	}
	if err := x.update(p); err != nil {
		return nil, errors.Join(err, x.stop(0))
	}
	return x, nil
}

// update forwards new connections according to another plan; open ones stay.
func (x *proxy) update(p *plan.Plan) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, f := range x.fronts {
		f.Frontend = nil
	}
	for i := range p.Frontends {
		k := socketKey{p.Frontends[i].Address, p.Frontends[i].Protocol}
		f := x.fronts[k]
		if f == nil {
			f = &frontend{open: map[netip.AddrPort]int{}}
			if err := x.listen(f, k); err != nil {
				return err
			}
			x.fronts[k] = f
		}
		f.Frontend = &p.Frontends[i]
	}
	return nil
}

func (x *proxy) listen(f *frontend, k socketKey) (err error) {
	if k.protocol == "UDP" {
		f.relay, err = x.newRelay(f, k.at)
		return err
	}
	if x.tcp != nil {
		return nil
	}
	c := net.ListenConfig{}
	c.SetMultipathTCP(false) // whose sockets do not know where a connection was sent before
	l, err := c.Listen(x.over, "tcp", ":0")
	if err == nil {
		x.tcp = l.(*net.TCPListener) //nolint:forcetypeassert // of that network
		x.active.Go(x.accept)
	}
	return err
}

// port is where the proxy listens for a frontend, as iptables takes it.
func (x *proxy) port(f *plan.Frontend) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if f.Protocol == "UDP" {
		return strconv.Itoa(int(addrPort(x.fronts[socketKey{f.Address, f.Protocol}].relay.conn.LocalAddr()).Port()))
	}
	return strconv.Itoa(int(addrPort(x.tcp.Addr()).Port()))
}

func addrPort(a net.Addr) netip.AddrPort {
	at := a.(interface{ AddrPort() netip.AddrPort }).AddrPort() //nolint:forcetypeassert // of TCP or UDP
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// choose chooses the endpoint of a new connection, which ends with release.
func (x *proxy) choose(f *frontend, client netip.Addr, not ...netip.AddrPort) (e netip.AddrPort, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	left := slices.DeleteFunc(x.endpointsFor(f, client), func(e netip.AddrPort) bool { return slices.Contains(not, e) })
	if len(left) == 0 {
		return e, errRefused
	}
	switch {
	case f.Affinity > 0, x.scheduler == "sh": // by rendezvous: only clients of an endpoint that is gone get another one
		hash := func(e netip.AddrPort) uint64 { return maphash.Comparable(x.seed, [2]any{client, e}) }
		e = slices.MaxFunc(left, func(a, b netip.AddrPort) int { return cmp.Compare(hash(a), hash(b)) })
	case x.scheduler == "lc":
		e = slices.MinFunc(left, func(a, b netip.AddrPort) int { return f.open[a] - f.open[b] })
	default:
		e = left[f.next%len(left)]
		f.next++
	}
	f.open[e]++
	return e, nil
}

func (x *proxy) release(f *frontend, e netip.AddrPort) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f.open[e]--
}

// endpointsFor returns the endpoints for a client; none: its connections are refused.
func (x *proxy) endpointsFor(f *frontend, client netip.Addr) []netip.AddrPort {
	within := func(r netip.Prefix) bool { return r.Contains(client) }
	switch {
	case f.Frontend == nil, f.DropOwnAddress && client == f.Address.Addr(), len(f.Ranges) > 0 &&
		!slices.ContainsFunc(f.Ranges, within) && !(f.NodeExempt && x.own.has(client)):
		return nil
	case f.Pods != nil && f.Pods.CIDR.IsValid() && f.Pods.CIDR.Contains(client):
		return slices.Clone(f.ForPods.Endpoints)
	case x.own.has(client):
		return slices.Clone(f.ForNode.Endpoints)
	}
	return slices.Clone(f.ForOthers.Endpoints)
}

func (x *proxy) accept() {
	for {
		c, err := x.tcp.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // clients wait
			time.Sleep(noFiles)
		default:
			x.active.Go(func() { x.serve(c) })
		}
	}
}

// serve connects a client to an endpoint. A client that is not served gets a reset.
func (x *proxy) serve(c *net.TCPConn) {
	defer c.Close()
	from, begin := addrPort(c.RemoteAddr()), time.Now()
	at, f := x.redirected(c)
	if f == nil {
		_ = c.SetLinger(0)
		return
	}
	defer x.conns.Add(-1)
	up, e, err := x.dial(f, from.Addr())
	if err != nil {
		_ = c.SetLinger(0)
		x.log.Info("refused", "client", from, "frontend", at, "why", err)
		return
	}
	defer up.Close()
	defer x.release(f, e)
	defer context.AfterFunc(x.over, func() { _, _ = c.Close(), up.Close() })()
	var sent, received int64
	var both sync.WaitGroup
	both.Go(func() { sent = forward(up, c, tcpIdle) })
	both.Go(func() { received = forward(c, up, tcpIdle) })
	both.Wait()
	x.log.Info("closed", "client", from, "frontend", at, "endpoint", e, "sent", sent, "received", received, "took",
		time.Since(begin))
}

var (
	errRefused = errors.New("the client is not allowed, or has no endpoint")
	errMost    = errors.New("too many connections are open")
	// errItself: the kernel chose the port of an endpoint that does not listen, and TCP connects such a socket to itself.
	errItself = errors.New("the connection is one to itself")
)

// dial connects to an endpoint; after one that cannot be reached the next one is tried.
func (x *proxy) dial(f *frontend, client netip.Addr) (up *net.TCPConn, e netip.AddrPort, err error) {
	if x.conns.Add(1) > tcpMost {
		return nil, e, errMost
	}
	var tried []netip.AddrPort
	d := net.Dialer{Timeout: dialTime}
	for {
		var refused error
		if e, refused = x.choose(f, client, tried...); refused != nil {
			return nil, e, errors.Join(refused, err)
		}
		if up, err = d.DialTCP(x.over, "tcp", netip.AddrPort{}, e); err == nil {
			if addrPort(up.LocalAddr()) != e {
				return up, e, nil
			}
			err = errors.Join(errItself, up.Close())
		}
		x.release(f, e)
		tried = append(tried, e)
	}
}

// forward copies what one side sends to the other, until it ends, or neither sends anything for a time. If the other
// side takes no more, it may have sent something before, which is still copied the other way; if this one is gone, both
// are closed.
func forward(to, from *net.TCPConn, idle time.Duration) int64 {
	s := &source{from: from, to: to, idle: idle}
	s.extend()
	n, _ := io.Copy(to, s)
	if s.failed {
		_, _ = from.Close(), to.Close()
	}
	_ = to.CloseWrite()
	return n
}

// source is what one side of a connection sends. It hides the connection from io.Copy, which would splice it: a splice
// never gets past urgent data (TestBytesAfterUrgentDataArrive).
type source struct {
	from, to *net.TCPConn
	idle     time.Duration
	failed   bool
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.from.Read(b)
	if n > 0 {
		s.extend()
	}
	s.failed = err != nil && !errors.Is(err, io.EOF)
	return n, err
}

func (s *source) extend() {
	until := time.Now().Add(s.idle)
	_, _ = s.from.SetDeadline(until), s.to.SetDeadline(until)
}

// redirected returns where a connection was sent before a rule redirected it, as connection tracking knows it
// (getorigdst in net/netfilter/nf_conntrack_proto.c), and the frontend there; nil: it was not redirected.
func (x *proxy) redirected(c *net.TCPConn) (at netip.AddrPort, f *frontend) {
	level, name := unix.SOL_IP, unix.SO_ORIGINAL_DST
	v6 := addrPort(c.LocalAddr()).Addr().Is6()
	if v6 {
		level, name = unix.SOL_IPV6, so6OriginalDst
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return at, nil
	}
	var a *unix.IPv6MTUInfo // it begins with a sockaddr_in6, whose first fields are those of a sockaddr_in
	_ = raw.Control(func(fd uintptr) { a, err = unix.GetsockoptIPv6MTUInfo(int(fd), level, name) })
	if a == nil || err != nil {
		return at, nil
	}
	ip := netip.AddrFrom16(a.Addr.Addr)
	if !v6 {
		ip = netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, a.Addr.Flowinfo)))
	}
	at = netip.AddrPortFrom(ip, binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, a.Addr.Port)))
	x.mu.Lock()
	defer x.mu.Unlock()
	return at, x.fronts[socketKey{at, "TCP"}]
}

// so6OriginalDst is IP6T_SO_ORIGINAL_DST of uapi/linux/netfilter_ipv6/ip6_tables.h.
const so6OriginalDst = 80

// stop takes no more connections, waits for those that are open, and ends them.
func (x *proxy) stop(drain time.Duration) error {
	var errs []error
	x.mu.Lock()
	if x.tcp != nil {
		errs = append(errs, x.tcp.Close())
	}
	for _, f := range x.fronts {
		if f.relay != nil {
			errs = append(errs, f.relay.close())
		}
	}
	x.mu.Unlock()
	stop := time.AfterFunc(drain, x.end)
	x.active.Wait()
	stop.Stop()
	x.end()
	if x.events != nil {
		x.events.end()
	}
	return errors.Join(errs...)
}
