// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"runtime"
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
	log       *eventLog // nil: nothing is logged
	own       ownAddresses
	scheduler string

	mu     sync.Mutex
	closed atomic.Bool    // no more clients are taken in; set with mu held: none is added to active behind it
	active sync.WaitGroup // connections

	over       atomic.Bool // all connections are ended
	forwarders []*forwarder
	running    sync.WaitGroup
	ports      [2]uint16 // where the forwarders listen, by family

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
	x := &proxy{scheduler: scheduler}
	if log != nil {
		x.log = newEventLog(log)
	}
	x.table.Store(tableOf(p, nil))
	if err := x.listen(p); err != nil {
		return nil, errors.Join(fmt.Errorf("the proxy cannot listen: %w", err), x.stop(0))
	}
	if err := x.relay(p); err != nil {
		return nil, errors.Join(err, x.stop(0))
	}
	return x, nil
}

// listen starts the forwarders. One for two processors is enough: the other half has the endpoints, and what the kernel
// does for the packets.
func (x *proxy) listen(p *plan.Plan) error {
	listeners := make([][]int, max(1, runtime.GOMAXPROCS(0)/2))
	for i, network := range []string{"tcp4", "tcp6"} {
		if !slices.ContainsFunc(p.Frontends, func(f plan.Frontend) bool {
			return f.V6() == (i == 1) && f.Protocol == "TCP"
		}) {
			continue
		}
		fds, port, err := listenTCP(context.Background(), network, len(listeners))
		for k, fd := range fds {
			listeners[k] = append(listeners[k], fd)
		}
		if err != nil {
			for _, fd := range slices.Concat(listeners...) {
				closeSocket(fd)
			}
			return err
		}
		x.ports[i] = port
	}
	var errs []error
	for _, fds := range listeners {
		if len(fds) == 0 {
			continue
		}
		w, err := newForwarder(x, fds)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		x.forwarders = append(x.forwarders, w)
		x.running.Go(w.run)
	}
	return errors.Join(errs...)
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
	if f.Protocol != "TCP" {
		return 0
	}
	if f.V6() {
		return x.ports[1]
	}
	return x.ports[0]
}

// admit takes a connection in, which is to be active.Done once it ends, unless the proxy has ended.
func (x *proxy) admit() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed.Load() {
		return false
	}
	x.active.Add(1)
	return true
}

func (x *proxy) logEvent(what string, args ...any) {
	if x.log != nil {
		x.log.write(what, args)
	}
}

// update forwards new connections according to another plan; open ones stay.
func (x *proxy) update(p *plan.Plan) error {
	x.table.Store(tableOf(p, x.table.Load()))
	return x.relay(p)
}

// stop takes no more connections, waits for those that are open, and ends them.
func (x *proxy) stop(drain time.Duration) error {
	x.mu.Lock()
	errs := make([]error, 0, len(x.udp))
	x.closed.Store(true) // nor is another endpoint tried: what is dialled already ends within drainTime, too
	for _, r := range x.udp {
		errs = append(errs, r.close())
	}
	x.mu.Unlock()
	for _, w := range x.forwarders {
		w.wake()
	}
	idle := make(chan struct{})
	go func() {
		x.active.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-time.After(drain):
	}
	x.over.Store(true)
	for _, w := range x.forwarders {
		w.wake()
	}
	x.running.Wait()
	<-idle
	if x.log != nil {
		x.log.end()
	}
	return errors.Join(errs...)
}
