// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/drops"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/kerneltrace"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// protocols are those that can be followed.
var protocols = map[string]uint8{
	"TCP": unix.IPPROTO_TCP, "UDP": unix.IPPROTO_UDP, "SCTP": unix.IPPROTO_SCTP,
}

// kinds are what a report calls them.
var kinds = map[drops.Kind]string{
	drops.In: snapshot.SightIn, drops.Out: snapshot.SightOut, drops.Discarded: snapshot.SightDropped,
}

// Following is under way.
type Following struct {
	follower *drops.Follower
	places   map[uint32]*place // by the inode of the network namespace
	unread   map[string]string // why pods were not found
	expiry   *time.Timer

	mu      sync.Mutex
	expired bool
}

// place is a network namespace.
type place struct {
	pod        string            // namespace/name; "": the node's
	interfaces map[uint32]string // by their index
	counters   map[string]uint64 // as they were when the following began
	within     podns.Pod
	rules      *ruleTrace // nil where there is none
	untraced   string     // why rules are not traced
}

// Begin begins to follow. It ends by End or Close, and after Longest.
func Begin(r Request) (*Following, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	f := &Following{places: map[uint32]*place{}, unread: map[string]string{}}
	var servers []drops.End
	flows := kerneltrace.Flows{Clients: r.Clients, Tunnels: r.Tunnels}
	for _, t := range r.Servers {
		proto, ok := protocols[t.Protocol]
		if !ok || !t.At.IsValid() {
			return nil, fmt.Errorf("connections to %q %s cannot be followed", t.Protocol, t.At)
		}
		servers = append(servers, drops.End{Protocol: proto, At: t.At})
		flows.Servers = append(flows.Servers, kerneltrace.End{Protocol: proto, At: t.At})
	}
	var err error
	if f.follower, err = drops.Follow(servers, r.Clients); err != nil {
		return nil, err
	}
	if err := f.find(&r, &flows); err != nil {
		return nil, errors.Join(err, f.close())
	}
	f.expiry = time.AfterFunc(Longest, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.expired = true
		_ = f.close() // whoever asks is told that it is over
	})
	return f, nil
}

// find finds the network namespaces, and the names of their interfaces, and has their rules traced.
func (f *Following) find(r *Request, flows *kerneltrace.Flows) error {
	var s unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &s); err != nil {
		return err
	}
	own := &place{interfaces: map[uint32]string{}}
	own.begin()
	if r.Rules {
		own.trace(r.Root, *flows)
	}
	f.places[uint32(s.Ino)] = own //nolint:gosec // as the kernel has it (struct ns_common)
	inner := *flows
	inner.Tunnels = nil // tunnels between nodes end at the node
	for name, pod := range r.Pods {
		f.unread[name] = ""
		if err := f.add(name, pod, &inner); err != nil {
			f.unread[name] = err.Error()
		}
	}
	return nil
}

// trace has the rules of the network namespace traced that the thread is in. root is as for traceRules.
func (p *place) trace(root string, flows kerneltrace.Flows) {
	var err error
	if p.rules, err = traceRules(root, flows); err != nil {
		p.untraced = err.Error()
	}
}

// add finds the network namespace of a pod. It is not kept, but by the sockets of the trace, which end with that: it
// ends with the pod.
func (f *Following) add(name string, pod podns.Pod, flows *kerneltrace.Flows) error {
	n, err := podns.Find(pod)
	if err != nil {
		return err
	}
	defer n.Close()
	inode, err := n.Inode()
	if err != nil {
		return err
	}
	p := &place{pod: name, interfaces: map[uint32]string{}, within: pod}
	f.places[inode] = p
	return n.Within(func() error {
		p.begin()
		p.trace("", *flows)
		return nil
	})
}

// begin notes the names of the interfaces of the namespace that the thread is in, and its counters.
func (p *place) begin() {
	p.counters = counters()
	all, err := net.Interfaces()
	if err != nil {
		return // they are numbers then
	}
	for _, i := range all {
		p.interfaces[uint32(i.Index)] = i.Name //nolint:gosec // an index
	}
}

// End waits a moment for packets under way, ends the following, and returns what was seen of flows.
func (f *Following) End(ctx context.Context, flows []snapshot.Flow) (*snapshot.Followed, error) {
	if len(flows) > MaxFlows {
		return nil, bounds.Errorf("%d connections were asked for: at most %d were expected", len(flows), MaxFlows)
	}
	select {
	case <-time.After(settled):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	f.expiry.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.expired {
		return nil, fmt.Errorf("what was seen was not requested for %v, and was discarded", Longest)
	}
	seen, partial, err := f.follower.Stop()
	if err := errors.Join(err, f.endTraces()); err != nil {
		return nil, err
	}
	out := &snapshot.Followed{Partial: partial, Pods: f.unread, Sights: []snapshot.Sight{}}
	var places []uint64
	for i := range seen {
		if s := &seen[i]; s.Kind == drops.Discarded && !slices.Contains(places, s.Location) && len(places) < maxPlaces {
			places = append(places, s.Location)
		}
	}
	functions, err := drops.Functions(places)
	if err != nil {
		return nil, err
	}
	for i := range seen {
		s := &seen[i]
		at := f.places[s.Namespace]
		if at == nil {
			continue // of other pods, or of other nodes that share this kernel
		}
		flow, answer, ok := flowOf(flows, s.Protocol, s.From, s.To)
		if !ok {
			continue
		}
		if len(out.Sights) == maxSights {
			out.Partial = true
			break
		}
		out.Sights = append(out.Sights, snapshot.Sight{
			Flow: flow, Pod: at.pod, How: kinds[s.Kind], Interface: at.nameOf(s.Device), Answer: answer, Reset: s.Reset,
			Reason: s.Reason, Function: functions[s.Location], Count: s.Count,
		})
	}
	f.rest(flows, out)
	return out, nil
}

// rest adds what is to be read after the connections, of the node's network namespace and of those of pods that are
// still there.
func (f *Following) rest(flows []snapshot.Flow, out *snapshot.Followed) {
	for inode, p := range f.places {
		if p.pod == "" {
			p.after(flows, out)
			continue
		}
		if err := p.afterPod(inode, flows, out); err != nil {
			untraced(out, p.pod, err.Error()) // it has ended
		}
	}
	slices.SortStableFunc(out.Traced, func(a, b snapshot.Traced) int { return a.Flow - b.Flow })
	slices.SortStableFunc(out.Counters, func(a, b snapshot.Counter) int { return strings.Compare(a.Pod, b.Pod) })
	slices.SortStableFunc(out.Tracked, func(a, b snapshot.TrackedFlow) int { return a.Flow - b.Flow })
	slices.SortStableFunc(out.Queues, func(a, b snapshot.Queue) int { return strings.Compare(a.Pod, b.Pod) })
}

// afterPod is after for a pod, if it is still there.
func (p *place) afterPod(inode uint32, flows []snapshot.Flow, out *snapshot.Followed) error {
	n, err := podns.Find(p.within)
	if err != nil {
		return err
	}
	defer n.Close()
	if now, err := n.Inode(); err != nil || now != inode {
		return errors.Join(errors.New("the pod has another network namespace now"), err)
	}
	return n.Within(func() error {
		p.after(flows, out)
		return nil
	})
}

// maxPlaces is how many places in the kernel's code are named at most: each is compared with every symbol.
const maxPlaces = 64

// flowOf finds the flow of a packet among those asked for.
func flowOf(flows []snapshot.Flow, protocol uint8, from, to netip.AddrPort) (flow int, answer, ok bool) {
	for i := range flows {
		x := &flows[i]
		switch {
		case protocols[x.Protocol] != protocol:
		case slices.Contains(x.Clients, from) && slices.Contains(x.Servers, to):
			return i, false, true
		case slices.Contains(x.Clients, to) && slices.Contains(x.Servers, from):
			return i, true, true
		}
	}
	return 0, false, false
}

// nameOf is the name of an interface; "" for no interface.
func (p *place) nameOf(index uint32) string {
	switch name, ok := p.interfaces[index]; {
	case index == 0:
		return ""
	case ok:
		return name
	}
	return fmt.Sprintf("interface %d", index)
}

// endTraces ends the traces of rules, all at once.
func (f *Following) endTraces() error {
	var err error
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, p := range f.places {
		if p.rules == nil {
			continue
		}
		wg.Go(func() {
			e := p.rules.finish()
			mu.Lock()
			defer mu.Unlock()
			err = errors.Join(err, e)
		})
	}
	wg.Wait()
	return err
}

// close gives up what the kernel holds.
func (f *Following) close() error { return errors.Join(f.follower.Close(), f.endTraces()) }

// Close ends the following where nobody asks for what was seen. It may be called more than once.
func (f *Following) Close() error {
	f.expiry.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.close()
}
