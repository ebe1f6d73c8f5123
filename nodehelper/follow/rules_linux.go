// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/kerneltrace"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Limits of the trace of rules in one network namespace.
const (
	// maxEvents is how many reports of the kernel are read: then no packet is traced any more. A packet comes to some
	// tens of rules.
	maxEvents = 20_000
	// maxPackets is how many packets are told of.
	maxPackets = 2000
	// maxTraced is how many of an answer's entries are about them, of all places.
	maxTraced = 1500
	// traceBuffer is how many bytes of reports the kernel keeps until they are read.
	traceBuffer = 1 << 20
	// poll is how often the reader sees whether it has to end.
	poll = 50 * time.Millisecond
)

// ruleTrace has the kernel report the rules of one network namespace that the packets of flows come to.
type ruleTrace struct {
	listener *kerneltrace.Listener
	table    *kerneltrace.Table
	legacy   *kerneltrace.Logger // nil where no rules of iptables-legacy are reported
	tunnels  []uint16

	stop chan struct{}
	done chan struct{} // closed when nothing is read any more; the fields below are the reader's until then

	packets []*packet
	latest  map[uint32]*packet // by the kernel's number of it
	ends    map[ends]*packet   // the latest between two ends: iptables-legacy reports no number
	events  int
	lost    string // why not all is told
	err     error  // of undoing what was changed
}

// ends are those of a packet.
type ends struct {
	protocol uint8
	from, to netip.AddrPort
}

// packet is what the kernel reported of one packet, in the order in which it did.
type packet struct {
	ends

	sent    bool   // by this network namespace itself: it did not come in
	hook    string // the last one that it came to
	passed  bool   // to its end
	dropped bool
	last    *kerneltrace.Event // the last rule that it met there, or the one that dropped it
}

// traceRules begins, in the network namespace that the thread is in. root is the node's file system, "" for that of a
// pod: there rules of iptables-legacy are not reported, as the kernel's log of a pod's namespace would have to be
// turned over to the helper, and nobody could find that namespace to undo it after the helper was killed.
func traceRules(root string, flows kerneltrace.Flows) (*ruleTrace, error) {
	listener, err := kerneltrace.Listen(traceBuffer)
	if err != nil {
		return nil, err
	}
	t := &ruleTrace{
		listener: listener, tunnels: flows.Tunnels, stop: make(chan struct{}), done: make(chan struct{}),
		latest: map[uint32]*packet{}, ends: map[ends]*packet{},
	}
	has, err := kerneltrace.HasLegacy()
	switch {
	case err != nil:
	case has && root == "":
		t.lost = "rules of iptables-legacy in a pod are not reported"
	case has:
		t.legacy, err = kerneltrace.Log(listener, root)
	}
	// Where the kernel's log cannot be had, it would get the reports of iptables-legacy: nothing is traced there.
	if err == nil {
		t.table, err = kerneltrace.Open()
	}
	if err == nil {
		err = t.table.TraceFlows(flows)
	}
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	go t.read()
	return t, nil
}

// close undoes what was changed. The kernel removes the table with its socket.
func (t *ruleTrace) close() error {
	var err error
	if t.table != nil {
		err = t.table.Close()
	}
	if t.legacy != nil {
		err = errors.Join(err, t.legacy.Close())
	}
	return errors.Join(err, t.listener.Close())
}

// read takes the kernel's reports until the trace ends.
func (t *ruleTrace) read() {
	defer close(t.done)
	ended := false
	end := func(why string) {
		if !ended {
			ended = true
			if err := t.table.Stop(); err != nil {
				why = err.Error() // it ends with its socket at last
			}
		}
		if why != "" {
			t.lost = why
		}
	}
	for {
		select {
		case <-t.stop:
			end("")
		default:
		}
		wait := poll
		if ended {
			wait = 0 // what had come is still read
		}
		events, err := t.listener.Next(wait)
		switch {
		case errors.Is(err, kerneltrace.ErrTimeout) && !ended:
			continue
		case errors.Is(err, unix.ENOBUFS):
			t.lost = "the kernel reported more than was read"
			continue
		case err != nil && !errors.Is(err, kerneltrace.ErrTimeout):
			end(err.Error())
		}
		if err != nil {
			break
		}
		for i := range events {
			t.note(&events[i])
		}
		if t.events += len(events); t.events > maxEvents {
			end(fmt.Sprintf("tracing ended after %d reports of the kernel", maxEvents))
		}
		if t.events > 2*maxEvents {
			break
		}
	}
	t.err = t.close()
}

// note takes a report. Those of our own table tell when a packet comes to a hook, and to its end.
func (t *ruleTrace) note(e *kerneltrace.Event) {
	p := t.packetOf(e)
	if p == nil {
		return
	}
	if e.Table == t.table.Name() {
		hook, end := kerneltrace.Hook(e.Chain)
		if end {
			p.passed = true
		} else if p.hook != hook {
			p.hook, p.passed, p.last = hook, false, nil
		}
		return
	}
	if p.dropped || e.Handle == 0 && !e.Legacy && e.Verdict != drop {
		return // the end of a chain tells nothing that decides
	}
	p.dropped = e.Verdict == drop
	p.last = new(*e)
}

const drop = "drop"

// packetOf finds the packet that a report is of, or begins one: at the first hook that it enters by.
func (t *ruleTrace) packetOf(e *kerneltrace.Event) *packet {
	at := ends{e.Protocol, e.Source, e.Destination}
	if e.Legacy {
		return t.ends[at]
	}
	begins := e.Table == t.table.Name() && e.Handle != 0 && e.Source.IsValid()
	if !begins {
		return t.latest[e.ID] // nil for those that others have traced
	}
	if len(t.packets) == maxPackets {
		t.lost = fmt.Sprintf("only %d packets are reported", maxPackets)
		delete(t.latest, e.ID)
		return nil
	}
	p := &packet{ends: at, sent: e.Chain == "output"}
	t.packets, t.latest[e.ID], t.ends[at] = append(t.packets, p), p, p
	return p
}

// finish ends the trace. It may be called more than once, by one goroutine at a time.
func (t *ruleTrace) finish() error {
	select {
	case <-t.stop:
	default:
		close(t.stop)
	}
	<-t.done
	return t.err
}

// traced are the packets of flows, equal ones counted, and those of tunnels that carry some. Of others it is told how
// many there were. The thread is in the network namespace.
func (t *ruleTrace) traced(flows []snapshot.Flow) (out []snapshot.Traced, others int, err error) {
	var numbers kerneltrace.Numbers
	for _, p := range t.packets {
		s := snapshot.Traced{Hook: p.hook, Passed: p.passed, Dropped: p.dropped, Count: 1}
		var ok bool
		if s.Flow, s.Answer, ok = flowOf(flows, p.protocol, p.from, p.to); !ok {
			if p.protocol != unix.IPPROTO_UDP || !slices.Contains(t.tunnels, p.to.Port()) {
				others++
				continue
			}
			// At an endpoint's node the tunnel brings requests, and takes answers away.
			s.Outer, s.Answer, s.From, s.To = true, p.sent, p.from, p.to
		}
		if p.last != nil {
			step, e := stepOf(&numbers, p.last)
			err = errors.Join(err, e)
			s.Last = step
		}
		same := func(o snapshot.Traced) bool {
			if o.Last != nil && s.Last != nil && *o.Last == *s.Last {
				o.Last = s.Last
			}
			o.Count, o.From = s.Count, s.From // the port of a tunnel's packet differs with what it carries
			return o == s
		}
		if k := slices.IndexFunc(out, same); k >= 0 {
			out[k].Count++
			continue
		}
		out = append(out, s)
	}
	return out, others, err
}

// addRules adds what the trace of the place's rules has told of flows. The thread is in its network namespace.
func (p *place) addRules(flows []snapshot.Flow, out *snapshot.Followed) {
	why := p.untraced
	if p.rules != nil {
		list, others, err := p.rules.traced(flows)
		if why = p.rules.lost; p.pod == "" {
			out.Others = others
		}
		if err != nil {
			why = err.Error()
		}
		for i := range list {
			if len(out.Traced) == maxTraced {
				why = fmt.Sprintf("only %d packets are reported", maxTraced)
				break
			}
			list[i].Pod = p.pod
			out.Traced = append(out.Traced, list[i])
		}
	}
	if why != "" {
		untraced(out, p.pod, why)
	}
}

// untraced notes why rules of a place were not traced, or not all.
func untraced(out *snapshot.Followed, pod, why string) {
	if out.Untraced == nil {
		out.Untraced = map[string]string{}
	}
	out.Untraced[pod] = why
}

// stepOf is a rule as reports name it: by its place in its chain; 0 where it has been removed since.
func stepOf(numbers *kerneltrace.Numbers, e *kerneltrace.Event) (*snapshot.TraceStep, error) {
	s := &snapshot.TraceStep{
		Family: e.Family, Table: e.Table, Chain: e.Chain, Rule: e.Rule, Legacy: e.Legacy, Verdict: e.Verdict, To: e.To,
		Policy: e.Policy(),
	}
	if e.Handle == 0 {
		return s, nil
	}
	var err error
	s.Rule, err = numbers.Of(e)
	return s, err
}
