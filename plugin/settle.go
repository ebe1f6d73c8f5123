// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/diagnose"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// kube-proxy may take a second (minSyncPeriod) and the time of a sync to follow the API. So what is wrong is read again before it
// is called a mismatch.
const (
	settlePause = 2 * time.Second
	settleReads = 4
)

// settler judges nodes of a cluster that goes on meanwhile: the objects are read before and after a node, and where they or the
// node's rules have changed in between, or something is wrong that was not so before, all of it is read again.
type settler struct {
	*scene
	pause time.Duration
	reads int

	judging sync.Mutex // a node's model is large: one at a time
	lists   lists
}

// judge reads and judges a node until two readings agree on what is wrong, or nothing is.
func (s *settler) judge(ctx context.Context, node string, request diagnose.Request) report.NodeReport {
	before := s.objects
	var earlier *report.NodeReport
	for read := 1; ; read++ {
		if read > 1 {
			s.progress.node(node, fmt.Sprintf("reading again (%d of %d)", read, s.reads))
		}
		r := s.read(ctx, node)
		if r.err != nil {
			return r.judge(nil, request)
		}
		after, err := s.lists.get(ctx, s.scene)
		if err != nil {
			return report.NodeReport{Node: node, Verdict: report.Unknown, Error: err.Error()}
		}
		s.progress.node(node, "analysing")
		s.judging.Lock()
		got := r.judge(after, request)
		s.judging.Unlock()
		changed := changes(before, after, request.Services)
		before = after

		pause := s.pause
		switch right := diagnose.Right(&got); {
		case right && (len(changed) == 0 || request.Services == nil):
			// Of many Services some change all the time. What is right by now is right.
			return got
		case right:
			pause /= 4
		case earlier != nil && len(changed) == 0 && diagnose.Confirmed(earlier, &got):
			return got
		}
		if read == s.reads {
			if earlier == nil || diagnose.Right(&got) {
				return got
			}
			diagnose.Doubt(earlier, &got, fmt.Sprintf("it was different each of the %d times that it was read", read))
			return got
		}
		earlier = &got
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return report.NodeReport{Node: node, Verdict: report.Unknown, Error: ctx.Err().Error()}
		}
	}
}

// changes names the Services that are not the same in two readings, or whose EndpointSlices are not; of all where names is nil.
func changes(before, after *snapshot.Cluster, names []types.NamespacedName) []types.NamespacedName {
	was, is := versions(before), versions(after)
	var out []types.NamespacedName
	add := func(name types.NamespacedName) {
		if (names == nil || slices.Contains(names, name)) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	for o, v := range was {
		if is[o] != v {
			add(o.service)
		}
	}
	for o := range is {
		if _, ok := was[o]; !ok {
			add(o.service)
		}
	}
	return out
}

// proxied names an object that decides on a Service.
type proxied struct {
	service types.NamespacedName
	slice   string // "" for the Service itself
}

// versions returns each object's version.
func versions(c *snapshot.Cluster) map[proxied]string {
	out := make(map[proxied]string, len(c.Services)+len(c.EndpointSlices))
	for _, svc := range c.Services {
		out[proxied{service: types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}}] = string(svc.UID) + svc.ResourceVersion
	}
	for _, s := range c.EndpointSlices {
		name := types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
		out[proxied{name, s.Name}] = string(s.UID) + s.ResourceVersion
	}
	return out
}

// lists reads the objects for many nodes at once: each needs a list that was begun after it asked, and whoever waits for the same
// one shares it.
type lists struct {
	mu      sync.Mutex
	next    *listing // not begun yet
	running bool
	last    *snapshot.Cluster // that was listed; for when nobody lists any more
}

type listing struct {
	done    chan struct{}
	objects *snapshot.Cluster
	err     error
}

func (l *lists) get(ctx context.Context, s *scene) (*snapshot.Cluster, error) {
	l.mu.Lock()
	if l.next == nil {
		l.next = &listing{done: make(chan struct{})}
	}
	mine := l.next
	if !l.running {
		l.running = true
		go l.run(ctx, s)
	}
	l.mu.Unlock()
	<-mine.done
	return mine.objects, mine.err
}

func (l *lists) run(ctx context.Context, s *scene) {
	for {
		l.mu.Lock()
		now := l.next
		l.next = nil
		if l.running = now != nil; !l.running {
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		now.err = s.ask(ctx, func(ctx context.Context) (err error) {
			now.objects, err = s.source.Proxied(ctx, s.objects)
			return err
		})
		if now.err == nil {
			l.last = now.objects
		}
		close(now.done)
	}
}
