// SPDX-License-Identifier: Apache-2.0

package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// The schedulers of the proxy besides round-robin, by the names that IPVS has for them.
const (
	leastConns = "lc"
	sourceHash = "sh"
)

// Times of the proxy.
const (
	dialTime  = 5 * time.Second
	drainTime = 5 * time.Second // for connections that are open when a path ends; within the helper's grace
	// after which a client of UDP is forgotten, as connection tracking does with one that got no answer
	udpIdle  = 30 * time.Second
	udpMost  = 10_000  // clients of UDP at once, of one frontend
	seenMost = 100_000 // clients that are remembered for their affinity, of one frontend
)

// proxy forwards connections to endpoints in this process. Rules with target REDIRECT send them to it; connections that
// were not redirected are refused.
type proxy struct {
	table     atomic.Pointer[table]
	log       *slog.Logger // nil: nothing is logged
	scheduler string

	mu     sync.Mutex
	closed bool              // no more clients are taken in
	over   bool              // all connections have been ended
	conns  map[net.Conn]bool // of clients, and to endpoints
	active sync.WaitGroup
	end    context.CancelFunc

	tcp [2]*net.TCPListener // by family
	udp map[netip.AddrPort]*relay
}

// table is the frontends of the proxy. It is never changed, only replaced.
type table struct {
	fronts map[socketKey]*proxied
}

type socketKey struct {
	at       netip.AddrPort
	protocol string
}

// proxied is one frontend.
type proxied struct {
	*plan.Frontend
	state *choices
	alike bool // the node is led where others are
}

// choices are what is remembered of a frontend's clients, over updates.
type choices struct {
	mu   sync.Mutex
	next uint64
	open map[netip.AddrPort]int // connections of each endpoint
	seen map[netip.Addr]remembered
	seed maphash.Seed
}

type remembered struct {
	endpoint netip.AddrPort
	until    time.Time
}

// tableOf makes the table of a plan. What is remembered in another one stays.
func tableOf(p *plan.Plan, old *table) *table {
	t := &table{fronts: map[socketKey]*proxied{}}
	for i := range p.Frontends {
		f := &p.Frontends[i]
		k := socketKey{f.Address, f.Protocol}
		//nolint:gosec // where to begin
		state := &choices{
			next: rand.Uint64N(1 << 32), open: map[netip.AddrPort]int{}, seen: map[netip.Addr]remembered{},
			seed: maphash.MakeSeed(),
		}
		if old != nil && old.fronts[k] != nil {
			state = old.fronts[k].state
		}
		t.fronts[k] = &proxied{f, state, slices.Equal(f.ForNode.Endpoints, f.ForOthers.Endpoints)}
	}
	return t
}

// errRefused is the error for a client whose connection is refused.
var errRefused = errors.New("the client is not allowed, or has no endpoint")

// endpointsFor returns the endpoints for a client; nil: its connections are refused. own tells whether an address is
// the node's.
func (f *proxied) endpointsFor(client netip.Addr, own func(netip.Addr) bool) *plan.Destination {
	within := func(r netip.Prefix) bool { return r.Contains(client) }
	switch {
	case f.DropOwnAddress && client == f.Address.Addr(), len(f.Ranges) > 0 && !slices.ContainsFunc(f.Ranges, within) &&
		!(f.NodeExempt && own(client)):
		return nil
	case f.Pods != nil && f.Pods.CIDR.IsValid() && f.Pods.CIDR.Contains(client):
		return f.ForPods
	case !f.alike && own(client):
		return &f.ForNode
	}
	return &f.ForOthers
}

// choose chooses the endpoint of a new connection, which release gives back.
func (f *proxied) choose(
	scheduler string, client netip.Addr, own func(netip.Addr) bool, not []netip.AddrPort,
) (e netip.AddrPort, release func(), err error) {
	to := f.endpointsFor(client, own)
	if to == nil {
		return e, nil, errRefused
	}
	left := make([]netip.AddrPort, 0, len(to.Endpoints))
	for _, e := range to.Endpoints {
		if !slices.Contains(not, e) {
			left = append(left, e)
		}
	}
	if len(left) == 0 {
		return e, nil, errRefused
	}
	s := f.state
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	r, known := s.seen[client]
	switch {
	case f.Affinity > 0 && known && now.Before(r.until) && slices.Contains(left, r.endpoint):
		e = r.endpoint
	case scheduler == sourceHash:
		e = left[maphash.Comparable(s.seed, client)%uint64(len(left))]
	case scheduler == leastConns:
		e = slices.MinFunc(left, func(a, b netip.AddrPort) int { return s.open[a] - s.open[b] })
	default:
		e = left[s.next%uint64(len(left))]
		s.next++
	}
	if f.Affinity > 0 {
		s.remember(client, remembered{e, now.Add(time.Duration(f.Affinity) * time.Second)}, seenMost)
	}
	s.open[e]++
	return e, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open[e]--
	}, nil
}

// remember takes note of a client, in place of any other if there are most of them.
func (s *choices) remember(client netip.Addr, r remembered, most int) {
	if _, known := s.seen[client]; !known && len(s.seen) >= most {
		for other := range s.seen {
			delete(s.seen, other)
			break
		}
	}
	s.seen[client] = r
}

// startProxy listens, on ports of the kernel's choice.
func startProxy(p *plan.Plan, scheduler string, log *slog.Logger) (*proxy, error) {
	x := &proxy{scheduler: scheduler, log: log, conns: map[net.Conn]bool{}}
	x.table.Store(tableOf(p, nil))
	var ctx context.Context
	ctx, x.end = context.WithCancel(context.Background())
	for i, network := range []string{"tcp4", "tcp6"} {
		if !slices.ContainsFunc(p.Frontends, func(f plan.Frontend) bool {
			return f.V6() == (i == 1) && f.Protocol == "TCP"
		}) {
			continue
		}
		l, err := (&net.ListenConfig{KeepAlive: -1}).Listen(ctx, network, ":0") // either side asks for it where it wants to
		if err != nil {
			return nil, errors.Join(fmt.Errorf("the proxy cannot listen: %w", err), x.stop(0))
		}
		x.tcp[i] = l.(*net.TCPListener) //nolint:forcetypeassert // of that network
		go x.accept(ctx, x.tcp[i])
	}
	if err := x.relay(p); err != nil {
		return nil, errors.Join(err, x.stop(0))
	}
	return x, nil
}

// relay opens a socket for each frontend of UDP that has none yet: a UDP socket does not receive the original
// destination of its packets.
func (x *proxy) relay(p *plan.Plan) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.udp == nil {
		x.udp = map[netip.AddrPort]*relay{}
	}
	for i := range p.Frontends {
		f := &p.Frontends[i]
		if f.Protocol != "UDP" || x.udp[f.Address] != nil {
			continue
		}
		r, err := newRelay(x, f.Address)
		if err != nil {
			return err
		}
		x.udp[f.Address] = r
	}
	return nil
}

// portText is port, as iptables takes it.
func (x *proxy) portText(f *plan.Frontend) string { return strconv.Itoa(int(x.port(f))) }

// port is where the proxy listens for a frontend; 0: nowhere.
func (x *proxy) port(f *plan.Frontend) uint16 {
	if f.Protocol == "UDP" {
		x.mu.Lock()
		defer x.mu.Unlock()
		if r := x.udp[f.Address]; r != nil {
			return r.port()
		}
		return 0
	}
	l := x.tcp[0]
	if f.V6() {
		l = x.tcp[1]
	}
	if l == nil || f.Protocol != "TCP" {
		return 0
	}
	return l.Addr().(*net.TCPAddr).AddrPort().Port() //nolint:forcetypeassert // of a TCPListener
}

func (x *proxy) accept(ctx context.Context, l *net.TCPListener) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // no more files, for a moment
			continue
		}
		if !x.admit(c) {
			continue
		}
		go func() {
			defer x.active.Done()
			defer x.forget(c)
			x.serve(ctx, c)
		}()
	}
}

// admit takes a connection in, unless the proxy has ended.
func (x *proxy) admit(c net.Conn) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		c.Close()
		return false
	}
	x.conns[c] = true
	x.active.Add(1)
	return true
}

// keep has a connection to an endpoint end with the others.
func (x *proxy) keep(c net.Conn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		c.Close()
		return
	}
	x.conns[c] = true
}

func (x *proxy) forget(c net.Conn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.conns, c)
	c.Close()
}

// serve connects one connection to an endpoint. If an endpoint does not accept it, the next one is tried.
func (x *proxy) serve(ctx context.Context, c *net.TCPConn) {
	begin := time.Now()
	client := c.RemoteAddr().(*net.TCPAddr).AddrPort() //nolint:forcetypeassert // of a TCPConn
	at, err := originalDestination(c)
	front := x.table.Load().fronts[socketKey{at, "TCP"}]
	if err != nil || front == nil {
		_ = c.SetLinger(0) // a reset: nobody was asked to come here
		return
	}
	up, release, e, err := x.connect(ctx, front, client.Addr().Unmap())
	if err != nil {
		_ = c.SetLinger(0)
		x.logEvent("refused", "client", client, "frontend", at, "why", err)
		return
	}
	defer release()
	x.keep(up)
	defer x.forget(up)
	sent, received := copyBoth(c, up)
	x.logEvent("closed", "client", client, "frontend", at, "endpoint", e, "sent", sent, "received", received, "took",
		time.Since(begin))
}

func (x *proxy) connect(
	ctx context.Context, front *proxied, client netip.Addr,
) (up *net.TCPConn, release func(), e netip.AddrPort, err error) {
	var tried []netip.AddrPort
	for {
		next, free, chosenErr := front.choose(x.scheduler, client, ownAddress, tried)
		if chosenErr != nil {
			return nil, nil, e, errors.Join(chosenErr, err)
		}
		e = next
		// Not DialTCP, which binds to a port of the kernel's choice before it connects: that leaves fewer of them.
		c, dialErr := (&net.Dialer{KeepAlive: -1}).DialContext(dialUntil(time.Now().Add(dialTime)), "tcp", e.String())
		if dialErr == nil {
			return c.(*net.TCPConn), free, e, nil //nolint:forcetypeassert // of that network
		}
		free()
		tried, err = append(tried, e), dialErr
		if ctx.Err() != nil {
			return nil, nil, e, err
		}
	}
}

// dialUntil is a context that ends at a time, and at no other: dialling with one that may be cancelled takes a
// goroutine and a timer more, for each connection.
type dialUntil time.Time

// Deadline is the time.
func (u dialUntil) Deadline() (time.Time, bool) { return time.Time(u), true }

// Done is nil: who asks has to wait by himself.
func (u dialUntil) Done() <-chan struct{} { return nil }

// Err tells whether the time is over.
func (u dialUntil) Err() error {
	if time.Now().Before(time.Time(u)) {
		return nil
	}
	return context.DeadlineExceeded
}

// Value knows no key.
func (u dialUntil) Value(any) any { return nil }

// copyBoth copies in both directions until both have ended; the end of one side is passed on to the other, at the
// latest by the caller, who closes both.
func copyBoth(a, b *net.TCPConn) (sent, received int64) {
	done := make(chan int64, 1)
	go func() {
		n := copyOne(b, a)
		_ = b.CloseWrite()
		done <- n
	}()
	received = copyOne(a, b)
	select {
	case sent = <-done:
	default:
		_ = a.CloseWrite()
		sent = <-done
	}
	return sent, received
}

// firstBytes is how much of a connection is read and written before the kernel copies the rest (splice): most
// connections are shorter, and for these a pipe costs more than it saves.
const firstBytes = 64 << 10

var buffers = sync.Pool{New: func() any { return new([16 << 10]byte) }}

// copyOne copies from one connection to another until the end or an error, and returns how many bytes.
func copyOne(to, from *net.TCPConn) (n int64) {
	buf := buffers.Get().(*[16 << 10]byte) //nolint:forcetypeassert // of that pool
	for n < firstBytes {
		got, err := from.Read(buf[:])
		if got > 0 { // a call of write that writes nothing costs as much as any
			put, writeErr := to.Write(buf[:got])
			n, err = n+int64(put), cmp.Or(err, writeErr)
		}
		if err != nil {
			buffers.Put(buf)
			return n
		}
	}
	buffers.Put(buf)
	rest, _ := io.Copy(to, from)
	return n + rest
}

func (x *proxy) logEvent(what string, args ...any) {
	if x.log != nil {
		x.log.Info(what, args...)
	}
}

// update forwards new connections according to another plan; open ones stay.
func (x *proxy) update(p *plan.Plan) error {
	x.table.Store(tableOf(p, x.table.Load()))
	return x.relay(p)
}

// stop takes no more connections, waits for those that are open, and ends them.
func (x *proxy) stop(drain time.Duration) error {
	var errs []error
	for _, l := range x.tcp {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	x.end() // no other endpoint is tried: what is dialled already ends within drainTime, too
	x.mu.Lock()
	x.closed = true
	for _, r := range x.udp {
		errs = append(errs, r.close())
	}
	x.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		x.active.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-time.After(drain):
	}
	x.mu.Lock()
	x.over = true
	for c := range x.conns {
		c.Close()
	}
	x.mu.Unlock()
	<-idle
	return errors.Join(errs...)
}
