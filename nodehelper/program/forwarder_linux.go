// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// forwarder forwards the connections of TCP that its listeners accept, in one goroutine, which waits for all sockets
// together, by an epoll of its own. With two goroutines for each connection, and the net package, a short connection
// took a tenth to a quarter longer than HAProxy's; where Go's scheduler waited for the epoll, a tenth in some runs.
//
// Sockets are watched for edges: what is readable and writable is kept here, until the kernel says EAGAIN.
type forwarder struct {
	proxy     *proxy
	fd        int          // the epoll
	bell      *os.File     // an eventfd, for who wants the forwarder to look at the proxy
	listeners map[int]bool // not closed
	ends      map[int]*end
	events    []unix.EpollEvent
	buf       []byte    // what is read and written at once
	dialling  []*end    // of endpoints, in the order in which their time is over
	more      []*pair   // those that have more to move, after others had their turn
	closing   []int     // at the end of a turn: its events name sockets by their file descriptors
	short     time.Time // when connections are accepted again, where there were no more files; zero: they are
}

const (
	eventsAtOnce = 256
	bytesAtOnce  = 128 << 10
	turnsAtOnce  = 8                     // of bytesAtOnce, of one direction, before others have their turn
	shortOfFiles = 10 * time.Millisecond // after which it is tried again
	edges        = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLPRI | unix.EPOLLRDHUP | unix.EPOLLET
)

// pair is a client's connection, and the one to an endpoint.
type pair struct {
	client, up *end // up is nil before the first endpoint was asked
	from, at   netip.AddrPort
	front      *proxied
	endpoint   netip.AddrPort
	release    func()
	tried      []netip.AddrPort
	failed     error
	begin      time.Time
	connected  bool
	queued     bool // is in more
	closed     bool
}

// end is one side of a pair.
type end struct {
	fd       int
	pair     *pair
	readable bool
	writable bool
	// the last bytes, or an error, or urgent data, before which a read stops, have come: reading goes on until the kernel
	// says that there is no more
	ending   bool
	finished bool // all is read
	told     bool // that no more comes
	taken    int64
	left     []byte    // what is to be written still
	until    time.Time // when an endpoint is given up
}

// dialled tells whether the end is an endpoint that is dialled still.
func (e *end) dialled() bool { return e.pair.up == e && !e.pair.connected && !e.pair.closed }

// listenTCP opens n sockets that listen on the same port, of the kernel's choice, which gives each its share of the
// connections.
func listenTCP(ctx context.Context, network string, n int) (fds []int, port uint16, err error) {
	defer func() {
		if err != nil {
			for _, fd := range fds {
				closeSocket(fd)
			}
			fds = nil
		}
	}()
	c := net.ListenConfig{KeepAlive: -1, Control: func(_, _ string, c syscall.RawConn) error {
		var option error
		err := c.Control(func(fd uintptr) {
			option = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
				unix.SetsockoptInt(int(fd), unix.SOL_TCP, unix.TCP_NODELAY, 1)) // connections have it from their listener
		})
		return errors.Join(err, option)
	}}
	c.SetMultipathTCP(false) // whose sockets are not asked where a connection was sent before
	for range n {
		l, err := c.Listen(ctx, network, ":"+strconv.Itoa(int(port)))
		if err != nil {
			return fds, 0, err
		}
		tcp := l.(*net.TCPListener)                        //nolint:forcetypeassert // of that network
		port = tcp.Addr().(*net.TCPAddr).AddrPort().Port() //nolint:forcetypeassert // of a TCPListener
		raw, err := tcp.SyscallConn()
		fd, copied := -1, error(nil)
		if err == nil {
			err = raw.Control(func(of uintptr) { fd, copied = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) })
		}
		if err := errors.Join(err, copied, l.Close()); err != nil {
			return fds, 0, err
		}
		fds = append(fds, fd)
	}
	return fds, port, nil
}

// newForwarder takes listeners over; after an error they are closed.
func newForwarder(x *proxy, listeners []int) (*forwarder, error) {
	w := &forwarder{
		proxy: x, fd: -1, listeners: map[int]bool{}, ends: map[int]*end{}, events: make([]unix.EpollEvent, eventsAtOnce),
		buf: make([]byte, bytesAtOnce),
	}
	for _, fd := range listeners {
		w.listeners[fd] = true
	}
	if err := w.open(); err != nil {
		w.end()
		return nil, err
	}
	return w, nil
}

func (w *forwarder) open() (err error) {
	if w.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return err
	}
	w.bell = os.NewFile(uintptr(bell), "eventfd")
	if err := w.watch(bell, unix.EPOLLIN|unix.EPOLLET); err != nil {
		return err
	}
	for fd := range w.listeners {
		if err := w.watch(fd, unix.EPOLLIN|unix.EPOLLET); err != nil {
			return err
		}
	}
	return nil
}

func (w *forwarder) watch(fd int, events uint32) error {
	//nolint:gosec // a file descriptor
	return unix.EpollCtl(w.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// run forwards until the proxy ends.
func (w *forwarder) run() {
	defer w.end()
	for !w.proxy.over.Load() {
		if w.proxy.closed.Load() {
			w.closeListeners()
		}
		w.turn()
		if due := w.due(); !due.IsZero() && !time.Now().Before(due) {
			w.expire(time.Now())
		}
	}
}

// wake has the forwarder look whether the proxy ends.
func (w *forwarder) wake() { _, _ = w.bell.Write(binary.NativeEndian.AppendUint64(nil, 1)) }

func (w *forwarder) closeListeners() {
	for fd := range w.listeners {
		closeSocket(fd)
	}
	clear(w.listeners)
}

// end closes everything.
func (w *forwarder) end() {
	w.closeListeners()
	for _, e := range w.ends {
		w.finish(e.pair)
	}
	w.settle()
	if w.fd >= 0 {
		closeSocket(w.fd)
	}
	w.bell.Close() // of a nil File, too
}

// due is when the forwarder has to look at its connections in any case; zero: never.
func (w *forwarder) due() time.Time {
	for len(w.dialling) > 0 && !w.dialling[0].dialled() {
		w.dialling = w.dialling[1:]
	}
	switch {
	case !w.short.IsZero():
		return w.short
	case len(w.dialling) > 0:
		return w.dialling[0].until
	}
	return time.Time{}
}

// expire gives endpoints up that have not answered in time.
func (w *forwarder) expire(now time.Time) {
	if !w.short.IsZero() {
		w.short = time.Time{}
		for fd := range w.listeners {
			w.accept(fd)
		}
	}
	for len(w.dialling) > 0 && !now.Before(w.dialling[0].until) {
		e := w.dialling[0]
		w.dialling = w.dialling[1:]
		if e.dialled() {
			w.refused(e.pair, os.ErrDeadlineExceeded)
		}
	}
	w.settle()
}

// turn does what can be done without waiting. Where there is nothing it waits.
func (w *forwarder) turn() {
	// Not before it was asked: what was done may have made others ready at once, as it does within a node, and to wait for
	// that costs more than to ask.
	n := readyNow(w.fd, w.events)
	if n == 0 && len(w.more) == 0 {
		n = waitFor(w.fd, w.events, w.due())
	}
	for i := range n {
		w.event(&w.events[i])
	}
	again := w.more
	w.more = nil
	for _, p := range again {
		p.queued = false
		w.move(p)
	}
	w.settle()
}

func (w *forwarder) event(e *unix.EpollEvent) {
	fd := int(e.Fd)
	if w.listeners[fd] {
		w.accept(fd)
		return
	}
	x := w.ends[fd]
	if x == nil || x.pair.closed {
		return
	}
	p := x.pair
	failed := e.Events&(unix.EPOLLERR|unix.EPOLLHUP) != 0
	if !p.connected {
		if failed {
			w.refused(p, socketError(fd))
			return
		}
		if e.Events&unix.EPOLLOUT == 0 {
			return
		}
		if ownName(fd) == p.endpoint {
			w.refused(p, errItself)
			return
		}
		p.connected = true
		if err := w.watch(p.client.fd, edges); err != nil {
			w.finish(p)
			return
		}
	}
	x.writable = x.writable || failed || e.Events&unix.EPOLLOUT != 0
	x.readable = x.readable || failed || e.Events&(unix.EPOLLIN|unix.EPOLLRDHUP) != 0
	x.ending = x.ending || failed || e.Events&(unix.EPOLLRDHUP|unix.EPOLLPRI) != 0
	w.move(p)
}

// accept takes all connections in that wait.
func (w *forwarder) accept(listener int) {
	for {
		fd, from, errno := accept(listener)
		switch errno {
		case 0:
			w.serve(fd, from)
		case unix.ECONNABORTED, unix.EINTR:
		case unix.EAGAIN:
			return
		default: // no more files, for a moment
			w.short = time.Now().Add(shortOfFiles)
			return
		}
	}
}

// serve connects a client to an endpoint.
func (w *forwarder) serve(fd int, from netip.AddrPort) {
	at, errno := originalDestination(fd, from.Addr().Is6())
	front := w.proxy.table.Load().fronts[socketKey{at, "TCP"}]
	if errno != 0 || front == nil || !w.proxy.admit() {
		reset(fd) // nobody was asked to come here
		closeSocket(fd)
		return
	}
	p := &pair{from: from, at: at, front: front, begin: time.Now()}
	p.client = &end{fd: fd, pair: p}
	w.ends[fd] = p.client
	w.dial(p)
}

var (
	errEnding = errors.New("the proxy ends")
	// errItself: the kernel chose the port of an endpoint that does not listen, and TCP connects such a socket to itself.
	errItself = errors.New("the connection is one to itself")
)

// dial begins to connect to an endpoint that was not tried yet; if there is none, the client is refused.
func (w *forwarder) dial(p *pair) {
	for {
		var (
			e    netip.AddrPort
			free func()
			err  = errEnding
		)
		if len(p.tried) == 0 || !w.proxy.closed.Load() {
			e, free, err = p.front.choose(w.proxy.scheduler, p.from.Addr(), w.proxy.own.has, p.tried)
		}
		if err != nil {
			reset(p.client.fd)
			w.proxy.logEvent("refused", "client", p.from, "frontend", p.at, "why", errors.Join(err, p.failed))
			w.finish(p)
			return
		}
		fd, err := connectTo(e)
		if err == nil {
			if err = w.watch(fd, edges); err == nil {
				p.endpoint, p.release, p.up = e, free, &end{fd: fd, pair: p, until: time.Now().Add(dialTime)}
				w.ends[fd] = p.up
				w.dialling = append(w.dialling, p.up)
				return
			}
			closeSocket(fd)
		}
		free()
		p.tried, p.failed = append(p.tried, e), err
	}
}

// refused tries the next endpoint.
func (w *forwarder) refused(p *pair, err error) {
	p.tried, p.failed = append(p.tried, p.endpoint), err
	w.close(p.up)
	p.up = nil
	p.release()
	p.release = nil
	w.dial(p)
}

// move moves what can be moved, in both directions, and ends what has ended.
func (w *forwarder) move(p *pair) {
	if p.closed || !p.connected {
		return
	}
	toUp, toClient := w.moveTo(p.up, p.client), w.moveTo(p.client, p.up)
	switch {
	case p.client.finished && p.up.finished && len(p.client.left)+len(p.up.left) == 0:
		w.finish(p)
	case (toUp || toClient) && !p.queued:
		p.queued = true
		w.more = append(w.more, p)
	}
}

// moveTo moves from one connection to the other, and returns whether there may be more at once.
func (w *forwarder) moveTo(to, from *end) (more bool) {
	for range turnsAtOnce {
		switch {
		case len(to.left) > 0 && to.writable:
			to.left = w.put(to, from, to.left)
		case len(to.left) > 0:
			return false
		case from.finished:
			if !to.told && !to.finished { // or it is closed at once
				closeWrite(to.fd)
			}
			to.told = true
			return false
		case !from.readable:
			return false
		default:
			to.left = slices.Clone(w.put(to, from, w.get(to, from)))
		}
	}
	return true
}

// get reads what has come, into buf.
func (w *forwarder) get(to, from *end) []byte {
	n, errno := receive(from.fd, w.buf)
	switch {
	case errno == unix.EAGAIN:
		from.readable = false
	case errno == unix.EINTR:
	case errno != 0: // who is gone is not told anything either
		from.finished, to.finished = true, true
	case n == 0:
		from.finished = true
	default:
		from.taken += int64(n)
		from.readable = from.ending || n == len(w.buf)
		return w.buf[:n]
	}
	return nil
}

// put writes as much as can be, and returns the rest. Who takes no more, but has gone, may have said something before:
// that is still read.
func (w *forwarder) put(to, from *end, b []byte) []byte {
	for to.writable && len(b) > 0 {
		n, errno := send(to.fd, b)
		switch errno {
		case 0:
			b = b[n:]
		case unix.EAGAIN:
			to.writable = false
		case unix.EINTR:
		default:
			from.finished, to.told = true, true
			return nil
		}
	}
	if len(b) == 0 {
		return nil
	}
	return b
}

// finish ends both connections.
func (w *forwarder) finish(p *pair) {
	if p.closed {
		return
	}
	p.closed = true
	w.close(p.client)
	if p.up != nil {
		w.close(p.up)
	}
	if p.release != nil {
		p.release()
	}
	if p.connected {
		w.proxy.logEvent("closed", "client", p.from, "frontend", p.at, "endpoint", p.endpoint, "sent", p.client.taken,
			"received", p.up.taken, "took", time.Since(p.begin))
	}
	w.proxy.active.Done()
}

func (w *forwarder) close(e *end) {
	delete(w.ends, e.fd)
	w.closing = append(w.closing, e.fd)
}

// settle closes what has ended in this turn.
func (w *forwarder) settle() {
	for _, fd := range w.closing {
		closeSocket(fd)
	}
	w.closing = w.closing[:0]
}
