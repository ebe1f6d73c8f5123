// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"sync"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// followings has the kernels of the nodes at both ends follow the connections of a client's node while they are made:
// what they saw is added to ends. Where one cannot, it is said once.
type followings struct {
	*Session

	ends *judge.Ends
	pods map[string][]wirePod // by node: those that are watched, too
	said map[string]bool      // of nodes: that they cannot
}

// followingsOf watches the followed endpoints' nodes and pods, and the client's.
func (s *Session) followingsOf(ends *judge.Ends, e *Ends) *followings {
	f := &followings{Session: s, ends: ends, pods: map[string][]wirePod{ends.Client: nil}, said: map[string]bool{}}
	wanted := map[string]bool{e.Pod: true}
	for _, x := range e.endpoints(s.Objects, e.of) {
		if v := ends.Visited[x.node]; v != nil && v.State != nil && (e.all || e.follow[x.address]) {
			f.pods[x.node], wanted[x.pod] = nil, true
		}
	}
	for node := range f.pods {
		for _, p := range e.pods[node] {
			if wanted[p.name] {
				f.pods[node] = append(f.pods[node], p)
			}
		}
	}
	return f
}

// begin has connections to targets followed. end ends it; done is what was made, nil where that failed.
func (f *followings) begin(ctx context.Context, targets []snapshot.ProbeTarget) (end func(done *snapshot.Probing)) {
	run := judge.Follow(f.ends, targets)
	if len(run.Servers) == 0 {
		return func(*snapshot.Probing) {}
	}
	begun := map[string]bool{}
	var mu sync.Mutex
	f.each(func(node string) {
		params := wire.FollowParams{
			Servers: run.Servers, Clients: run.Clients, Pods: map[string]wire.PodParams{},
			// On the client's node the rules that connections meet are traced with these, one after the other.
			Rules: node != f.ends.Client, Tunnels: run.Tunnels[node],
		}
		for _, p := range f.pods[node] {
			params.Pods[p.name] = p.params
		}
		h, err := f.helper(ctx, node)
		if err == nil {
			err = h.Follow(ctx, params)
		}
		mu.Lock()
		defer mu.Unlock()
		begun[node] = err == nil
		f.cannot(ctx, node, err)
	})
	return func(done *snapshot.Probing) {
		if done != nil {
			run.Choose(done)
		}
		f.each(func(node string) {
			if !begun[node] {
				return
			}
			h, err := f.helper(ctx, node)
			var seen *snapshot.Followed
			if err == nil {
				seen, err = h.Followed(ctx, run.Flows)
			}
			mu.Lock()
			defer mu.Unlock()
			f.cannot(ctx, node, err)
			if err == nil {
				run.Nodes[node] = seen
			}
		})
		if done != nil {
			f.ends.Followed = append(f.ends.Followed, run)
		}
	}
}

// each does something for each node at once.
func (f *followings) each(do func(node string)) {
	var wg sync.WaitGroup
	for node := range f.pods {
		wg.Go(func() { do(node) })
	}
	wg.Wait()
}

// cannot says that a node's kernel does not tell.
func (f *followings) cannot(ctx context.Context, node string, err error) {
	if err != nil && ctx.Err() == nil && !f.said[node] {
		f.said[node] = true
		f.Progress.Note("%s: what its kernel does with the packets of connections is not known: %v", node, err)
	}
}
