// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/kerneltrace"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

const (
	// maxTraced is how many connections to one target are traced at most, to come to each of its endpoints once.
	maxTraced = 60
	// tries is how many connections are made for each endpoint: of two, one is missed less than once in a million times.
	tries = 12
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
		if ctx.Err() != nil || time.Now().After(end) {
			break
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
	for i := range p.List {
		if e := p.List[i].SentTo(p.To); e.IsValid() {
			missing[e] = true
		}
	}
	for range min(max(1, tries*len(missing)), maxTraced) {
		trace, err := t.connection(ctx, space, p.ProbeTarget)
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

// connection makes one, from a port that is known before.
func (t *tracing) connection(
	ctx context.Context, space *namespace, target snapshot.ProbeTarget,
) (out snapshot.Trace, err error) {
	fd, local, err := space.unused(target)
	if err != nil {
		return snapshot.Trace{Probe: failed(err)}, nil // there is no route to the target, as the probes have shown
	}
	defer unix.Close(fd)
	connection := kerneltrace.Connection{Protocol: kinds[target.Protocol].proto, From: local, To: target.To}
	// A packet of the previous connection may have arrived late, between its last event and the end of its tracing: with
	// SCTP that is frequent.
	if _, err := t.listener.Collect(0); err != nil {
		return out, err
	}
	if err := t.table.Trace(connection); err != nil {
		return out, err
	}
	out.Probe = attempt(ctx, fd, target, tracedPatience)
	events, err := t.listener.Collect(settled)
	if e := t.table.Stop(); err == nil {
		err = e
	}
	if err != nil {
		return out, err
	}
	// Others may have rules that trace their packets. What is masqueraded and comes in by lo again has another source
	// then.
	end := out.SentTo(target.To)
	events = slices.DeleteFunc(events, func(e kerneltrace.Event) bool {
		return e.Legacy && e.Source != local && e.Destination != end
	})
	out.Steps, err = t.steps(events)
	return out, err
}

// steps returns the rules that the connection's first packet matched. The events of the tracing table tell when the
// packet, or a retransmission, begins a hook.
func (t *tracing) steps(events []kerneltrace.Event) ([]snapshot.TraceStep, error) {
	var out []snapshot.TraceStep
	begun := map[string]bool{}
	for i := range events {
		e := &events[i]
		if e.Table == t.table.Name() {
			if e.Handle != 0 && begun[e.Chain] {
				break
			}
			begun[e.Chain] = begun[e.Chain] || e.Handle != 0
			continue
		}
		s := snapshot.TraceStep{
			Family: e.Family, Table: e.Table, Chain: e.Chain, Rule: e.Rule, Legacy: e.Legacy, Verdict: e.Verdict, To: e.To,
			Policy: e.Policy(),
		}
		if e.Handle != 0 {
			var err error
			if s.Rule, err = t.numbers.Of(e); err != nil {
				return nil, err
			}
		}
		out = append(out, s)
	}
	return out, nil
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
