// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/ctnetlink"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/drops"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/kerneltrace"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

const (
	// maxTraced is how many connections to one target are traced at most, to come to each of its endpoints once.
	maxTraced = 60
	// tries is how many connections are made for each endpoint: of two, one is missed less than once in a million times.
	tries = 12
	// retries is how often a connection is made again of which events were lost: others may have many packets traced.
	retries = 2
	// settled is how long no event has to arrive until a packet's events are complete.
	settled = 30 * time.Millisecond
)

// tracing has the kernel trace one connection at a time.
type tracing struct {
	listener *kerneltrace.Listener
	table    *kerneltrace.Table
	numbers  kerneltrace.Numbers
	// legacy reads the events of iptables-legacy's rules; nil if there are none, or if legacyError is set.
	legacy      *kerneltrace.Logger
	legacyError string
	// drops tells of packets that the kernel discards; nil where no connection has failed, or if dropsError is set.
	drops      *drops.Watcher
	dropsError string
}

// watchDrops begins to watch for packets that the kernel discards, unless that was tried before.
func (t *tracing) watchDrops() {
	if t.drops != nil || t.dropsError != "" {
		return
	}
	w, err := drops.Open()
	if err != nil {
		t.dropsError = err.Error()
		return
	}
	t.drops = w
}

// newTracing begins. root is the node's file system.
func newTracing(root string) (*tracing, error) {
	listener, err := kerneltrace.Listen(kerneltrace.ReceiveBuffer)
	if err != nil {
		return nil, err
	}
	table, err := kerneltrace.Open()
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	t := &tracing{listener: listener, table: table}
	has, err := kerneltrace.HasLegacy()
	if err == nil && has {
		t.legacy, err = kerneltrace.Log(listener, root)
	}
	if err != nil {
		t.legacyError = err.Error()
	}
	return t, nil
}

func (t *tracing) close() error {
	var err error
	if t.legacy != nil {
		err = t.legacy.Close()
	}
	if t.drops != nil {
		err = errors.Join(err, t.drops.Close())
	}
	return errors.Join(err, t.table.Close(), t.listener.Close())
}

func restore(root string) error { return kerneltrace.Restore(root) }

// traceAll makes one more connection to each endpoint of the targets that ask for it, one after the other, and notes
// the rules that it met.
func traceAll(ctx context.Context, root string, spaces *namespaces, all []snapshot.Probes) error {
	var asked []*snapshot.Probes
	for i := range all {
		if p := &all[i]; p.Trace && p.Error == "" {
			asked = append(asked, p)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	t, err := newTracing(root)
	if err != nil {
		for _, p := range asked {
			p.TraceError = err.Error()
		}
		return nil // the targets say why
	}
	end := time.Now().Add(tracingTime)
	for i, p := range asked {
		if ctx.Err() != nil {
			break
		}
		if time.Now().After(end) {
			p.TraceError = "the " + tracingTime.String() + " for tracing were over before its turn: name one port and origin"
			continue
		}
		p.Legacy, p.LegacyError = t.legacy != nil, t.legacyError
		share := time.Until(end) / time.Duration(len(asked)-i)
		if e := t.target(ctx, spaces, p, time.Now().Add(share)); e != nil {
			p.TraceError = e.Error()
		}
	}
	return t.close()
}

// target traces connections until every endpoint of the untraced ones has been reached, within limits, and the first
// one in any case.
func (t *tracing) target(ctx context.Context, spaces *namespaces, p *snapshot.Probes, end time.Time) error {
	space, err := spaces.of(p.From)
	if err != nil {
		return err
	}
	missing := map[netip.AddrPort]bool{}
	failed := false
	for i := range p.List {
		failed = failed || !fine(&p.List[i])
		if e := p.List[i].SentTo(p.To); e.IsValid() {
			missing[e] = true
		}
	}
	if failed {
		t.watchDrops()
		p.DropsError = t.dropsError
	}
	ends := slices.Collect(maps.Keys(missing))
	for range min(max(1, tries*len(missing)), maxTraced) {
		var trace snapshot.Trace
		var err error
		for range 1 + retries {
			if trace, err = t.connection(ctx, space, p.ProbeTarget, ends); !errors.Is(err, unix.ENOBUFS) {
				break
			}
		}
		if err != nil {
			return err
		}
		scheduled(p.ProbeTarget, &trace.Probe)
		p.Traces = append(p.Traces, trace)
		delete(missing, trace.SentTo(p.To))
		if len(missing) == 0 || time.Now().After(end) {
			break
		}
	}
	return context.Cause(ctx)
}

// fine tells whether a connection ended as it should.
func fine(p *snapshot.Probe) bool {
	return (p.Result == snapshot.ProbeConnected || p.Result == snapshot.ProbeSent) &&
		(p.Data == "" || p.Data == snapshot.ProbeAnswered)
}

// connection makes one, from a port that is known before. It may be sent to one of several ends.
func (t *tracing) connection(
	ctx context.Context, space *namespace, target snapshot.ProbeTarget, ends []netip.AddrPort,
) (out snapshot.Trace, err error) {
	fd, local, err := space.unused(target)
	if err != nil {
		return snapshot.Trace{Probe: failed(err)}, nil // there is no route to the target, as the probes have shown
	}
	defer unix.Close(fd)
	connection := kerneltrace.Connection{Protocol: kinds[target.Protocol].proto, From: local, To: target.To}
	// A packet of the previous connection may have arrived late, between its last event and the end of its tracing: with
	// SCTP that is frequent.
	if err := t.listener.Discard(); err != nil {
		return out, err
	}
	if err := t.table.Trace(connection); err != nil {
		return out, err
	}
	if t.drops != nil {
		watched := []drops.End{{Protocol: connection.Protocol, At: local}, {Protocol: connection.Protocol, At: target.To}}
		for _, e := range ends {
			watched = append(watched, drops.End{Protocol: connection.Protocol, At: e})
		}
		if err := t.drops.Watch(watched...); err != nil {
			return out, errors.Join(err, t.table.Stop())
		}
	}
	out.Probe = attempt(ctx, fd, target, tracedPatience)
	entry := ctnetlink.Find(connection.Protocol, local, target.To)
	if entry == nil {
		entry = &ctnetlink.Entry{From: out.SentTo(target.To)}
	}
	if t.drops != nil && !fine(&out.Probe) {
		discarded, err := t.drops.Collect()
		if err != nil {
			return out, errors.Join(err, t.table.Stop())
		}
		out.Drops = dropsOf(discarded, target, local, entry)
	}
	events, err := t.listener.Collect(settled)
	if e := t.table.Stop(); err == nil {
		err = e
	}
	if err != nil {
		return out, err
	}
	err = t.read(&out, events, local, entry)
	return out, err
}

// dropsOf are the packets of one connection among those that the kernel discarded.
func dropsOf(
	list []drops.Packet, target snapshot.ProbeTarget, local netip.AddrPort, entry *ctnetlink.Entry,
) []snapshot.Drop {
	var out []snapshot.Drop
	client := func(a netip.AddrPort) bool { return a == local || a == entry.To }
	for _, d := range list {
		if !client(d.From) && !client(d.To) || len(out) >= maxDrops {
			continue
		}
		out = append(out, snapshot.Drop{
			Reason: d.Reason, Function: d.Function, Interface: d.Interface, InPod: d.Elsewhere, Protocol: target.Protocol,
			From: d.From, To: d.To, Answer: client(d.To),
		})
	}
	return out
}

// maxDrops is how many discarded packets of a connection are noted: it has a few, with what is repeated.
const maxDrops = 20

// direction is what is known of the packets of one direction.
type direction struct {
	steps []snapshot.TraceStep
	hooks []snapshot.TraceHook
	begun map[string]bool // hooks at which the kernel began to trace a packet
	done  bool            // the next packet has come
}

// read notes the rules and hooks that the connection's first packet came to, and those of its first reply. The events
// of the tracing table tell when a packet, or a retransmission, begins a hook. entry is what connection tracking has.
func (t *tracing) read(
	out *snapshot.Trace, events []kerneltrace.Event, local netip.AddrPort, entry *ctnetlink.Entry,
) error {
	directions := map[bool]*direction{false: {begun: map[string]bool{}}, true: {begun: map[string]bool{}}}
	answers := map[uint32]bool{} // by the event's packet: it is a reply
	own := map[uint32]bool{}     // by the event's packet: it is this connection's
	for i := range events {
		e := &events[i]
		end := out.SentTo(netip.AddrPort{})
		if e.Legacy && e.Source != local && e.Destination != end && e.Source != entry.From && e.Destination != local {
			continue // of others, whose rules trace their packets
		}
		if !e.Legacy {
			own[e.ID] = own[e.ID] || e.Table == t.table.Name() && e.Handle != 0 || e.Source.IsValid() &&
				(e.Source == local || e.Source == entry.To || e.Destination == local || e.Destination == entry.To ||
					!entry.To.IsValid() && e.Destination == end)
			if !own[e.ID] || strings.HasPrefix(e.Table, kerneltrace.TableName) && e.Table != t.table.Name() {
				continue // of others, which another program has traced, another helper among them; or of its table
			}
		}
		answer := answers[e.ID]
		switch {
		case !e.Source.IsValid():
		case e.Source == local || e.Source == entry.To:
			answer = false
		case e.Destination == local || e.Destination == entry.To:
			answer = true
		default:
			answer = e.Source == entry.From && entry.From.IsValid()
		}
		if !e.Legacy {
			answers[e.ID] = answer
		}
		if err := t.note(directions[answer], e); err != nil {
			return err
		}
	}
	out.Steps, out.Hooks = directions[false].steps, directions[false].hooks
	if !fine(&out.Probe) {
		out.Answer, out.AnswerHooks = directions[true].steps, directions[true].hooks
	}
	return nil
}

// note takes an event for one of a direction's first packet, unless that is complete.
func (t *tracing) note(w *direction, e *kerneltrace.Event) error {
	switch {
	case w.done:
		return nil
	case e.Table == t.table.Name():
		hook, end := kerneltrace.Hook(e.Chain)
		if e.Handle != 0 {
			if w.done = w.begun[hook]; w.done {
				return nil
			}
			w.begun[hook] = true
		}
		if n := len(w.hooks); n == 0 || w.hooks[n-1].Hook != hook {
			w.hooks = append(w.hooks, snapshot.TraceHook{Hook: hook})
		}
		if end {
			w.hooks[len(w.hooks)-1].Passed = true
		}
		return nil
	}
	s := snapshot.TraceStep{
		Family: e.Family, Table: e.Table, Chain: e.Chain, Rule: e.Rule, Legacy: e.Legacy, Verdict: e.Verdict, To: e.To,
		Policy: e.Policy(),
	}
	if e.Handle != 0 {
		var err error
		if s.Rule, err = t.numbers.Of(e); err != nil {
			return err
		}
	}
	w.steps = append(w.steps, s)
	return nil
}

// source returns the address that the kernel sends from.
func (s *namespace) source(to netip.AddrPort) (netip.Addr, error) {
	fd, err := s.socket(snapshot.ProbeTarget{Protocol: "UDP", To: to})
	if err != nil {
		return netip.Addr{}, err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, sockaddr(to)); err != nil {
		return netip.Addr{}, err
	}
	local, err := unix.Getsockname(fd)
	return addrPort(local).Addr(), err
}
