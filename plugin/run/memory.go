// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// A node's rules take much memory as a model, and a node that is hostile takes as much as it may. So a few nodes are
// in memory at once, whatever the number of those that are read: the files of the others wait compressed.

// slots are the nodes that may be loaded at once. Those of nil are without limit.
type slots chan struct{}

func newSlots() slots { return make(slots, bounds.Answers) }

// take waits for a slot. The error is that of the context.
func (s slots) take(ctx context.Context) error {
	if s == nil {
		return nil
	}
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s slots) release() {
	if s != nil {
		<-s
	}
}

// inMemory loads and judges a node of which the files were received, when there is a slot for it. The error is that
// of files that cannot be read.
func (s *Session) inMemory(
	ctx context.Context, files *snapshot.Node, objects *snapshot.Cluster, request Request,
) (report.NodeReport, error) {
	if err := s.slots.take(ctx); err != nil {
		return report.NodeReport{}, err
	}
	defer s.slots.release()
	n := loadNode(files.Name, files)
	if n.err != nil {
		return report.NodeReport{}, n.err
	}
	out := s.judgeWithin(judgeTime, &n, objects, request)
	if s.live {
		s.others.note(files, objects, &out)
	}
	return out, nil
}

// judgeTime is the longest time for judging a node.
const judgeTime = bounds.Judge

// judgeWithin judges a node, and ends that when it takes too long: other nodes wait for the slot. What was not judged
// by then is Unknown. Every walk is bounded, so that it ends soon; where it does not, it is given up.
func (s *Session) judgeWithin(
	limit time.Duration, n *loadedNode, objects *snapshot.Cluster, request Request,
) report.NodeReport {
	done, over := make(chan report.NodeReport, 1), make(chan struct{})
	request.Done = over
	go func() { done <- s.judgeNode(n, objects, request) }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case r := <-done:
		return r
	case <-timer.C:
	}
	close(over)
	timer.Reset(limit / 12)
	select {
	case r := <-done:
		if r.Error == "" {
			return r
		}
	case <-timer.C:
	}
	return notInspected(n.node, fmt.Errorf("judging its rules took longer than %v", limit))
}

// large are the nodes whose answers are large, bounds.Answers at once. An answer that is large waits for others to be
// judged, no longer than its call may take.
type large struct {
	slots

	mu    sync.Mutex
	nodes map[string]bool
}

// take waits until a node's answer may be large. A node needs this once until it is released, so that none that has
// it waits for another.
func (l *large) take(ctx context.Context, node string) error {
	l.mu.Lock()
	has := l.nodes[node]
	l.mu.Unlock()
	if has {
		return nil
	}
	if err := l.slots.take(ctx); err != nil {
		return bounds.Errorf("it is larger than %s, compressed, and other nodes as large are being judged: judge it alone, "+
			"by --node", bounds.Bytes(bounds.Held))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes == nil {
		l.nodes = map[string]bool{}
	}
	l.nodes[node] = true
	return nil
}

// release ends what take began, if it did.
func (l *large) release(node string) {
	l.mu.Lock()
	has := l.nodes[node]
	delete(l.nodes, node)
	l.mu.Unlock()
	if has {
		l.slots.release()
	}
}
