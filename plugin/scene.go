// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/trace/diagnose"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// scene is what a command works on: the cluster's objects, and the nodes to be read.
type scene struct {
	source   cluster.Source
	nodes    Inspector
	objects  *snapshot.Cluster
	progress *progress
	// live: a cluster is at work meanwhile, so that what is read may be out of date the moment after.
	live     bool
	parallel int           // nodes read side by side
	probes   int           // connections to make of each frontend; 0: none
	timeout  time.Duration // of what the API server is asked
	pod      func(node string) *corev1.Pod
	ahead    <-chan reading
	run      string   // of the helpers
	files    []string // what is read of a node of a cluster; nil: all, for a snapshot
}

// Inspector gives what nodes hold: their rules, addresses, routes and kube-proxy's own state.
type Inspector interface {
	// Known names the nodes that can be inspected, in order; nil where that cannot be told.
	Known(objects *snapshot.Cluster) []string
	// Inspect returns one node's files. An error is the node's own: the others are inspected all the same.
	Inspect(ctx context.Context, node string) (*snapshot.Node, error)
	// Release ends what Inspect began on a node; it will not be inspected again.
	Release(node string)
	// Close ends all of it.
	Close()
}

// snapshotInspector inspects the nodes of a snapshot.
type snapshotInspector struct{ *snapshot.Snapshot }

func (s snapshotInspector) Known(*snapshot.Cluster) []string { return s.NodeNames() }

func (s snapshotInspector) Inspect(_ context.Context, node string) (*snapshot.Node, error) {
	return s.Node(node)
}

func (snapshotInspector) Release(string) {}
func (snapshotInspector) Close()         {}

// reading is a node that was read, or why it was not.
type reading struct {
	node string
	*diagnose.Reading
	err error
}

func (r *reading) judge(objects *snapshot.Cluster, request diagnose.Request) report.NodeReport {
	if r.err != nil {
		return report.NodeReport{Node: r.node, Verdict: report.Unknown, Error: r.err.Error()}
	}
	return r.Judge(objects, request)
}

func (s *scene) read(ctx context.Context, node string) reading {
	files, err := s.nodes.Inspect(ctx, node)
	if err != nil {
		return reading{node: node, err: err}
	}
	return reading{node: node, Reading: diagnose.Read(files)}
}

// readAhead begins to read nodes of a snapshot in order, one ahead of whoever takes them: a node's rules are large, and reading them
// needs no cluster. It stops when the context ends.
func (s *scene) readAhead(ctx context.Context, nodes []string) {
	out := make(chan reading)
	s.ahead = out
	go func() {
		defer close(out)
		for _, name := range nodes {
			select {
			case out <- s.read(ctx, name):
			case <-ctx.Done():
				return
			}
		}
	}()
}

// judge judges the nodes. An interrupt does not wait for those under judgement.
func (s *scene) judge(ctx context.Context, nodes []string, request func(node string) diagnose.Request) ([]report.NodeReport, error) {
	defer s.progress.done()
	reports := make([]report.NodeReport, len(nodes))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if s.live {
			s.judgeLive(ctx, nodes, request, reports)
			return
		}
		if s.ahead == nil {
			s.readAhead(ctx, nodes)
		}
		for i := range nodes {
			s.progress.say("analysing node %d of %d", i+1, len(nodes))
			r, ok := <-s.ahead
			if !ok { // interrupted
				return
			}
			reports[i] = r.judge(s.objects, request(r.node))
		}
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	return reports, ctx.Err()
}

// judgeLive reads and judges nodes of a cluster side by side.
func (s *scene) judgeLive(ctx context.Context, nodes []string, request func(node string) diagnose.Request, reports []report.NodeReport) {
	settler := &settler{scene: s, pause: settlePause, reads: settleReads}
	s.each(nodes, func(i int, name string) {
		reports[i] = settler.judge(ctx, name, request(name))
		if s.probes > 0 {
			reports[i] = settler.observe(ctx, name, request(name), reports[i])
		}
	})
	if last := settler.lists.last; last != nil {
		s.objects = last // the report's head shows what the nodes were held against
	}
}

// inspectAll reads the files of nodes side by side; errs has an entry for each node.
func (s *scene) inspectAll(ctx context.Context, nodes []string) (files []*snapshot.Node, errs []error) {
	defer s.progress.done()
	files, errs = make([]*snapshot.Node, len(nodes)), make([]error, len(nodes))
	s.each(nodes, func(i int, name string) { files[i], errs[i] = s.nodes.Inspect(ctx, name) })
	return files, errs
}

// each does something with each node, so many at a time as may be read side by side, and releases it then.
func (s *scene) each(nodes []string, do func(i int, name string)) {
	var wg sync.WaitGroup
	var done atomic.Int32
	free := make(chan struct{}, s.parallel)
	s.progress.say("looking at %s", counted(len(nodes), "node"))
	for i, name := range nodes {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			do(i, name)
			s.nodes.Release(name)
			s.progress.nodeDone(name)
			s.progress.say("%d of %s done", done.Add(1), counted(len(nodes), "node"))
		})
	}
	wg.Wait()
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// readObjects reads the cluster's objects.
func (s *scene) readObjects(ctx context.Context, what string) error {
	s.progress.say("reading %s", what)
	err := s.ask(ctx, func(ctx context.Context) (err error) {
		s.objects, err = s.source.Objects(ctx)
		return err
	})
	if narrowed, ok := s.source.(interface{ Narrowed() error }); ok && narrowed.Narrowed() != nil {
		s.progress.note("only one namespace's Services are looked at: %v", narrowed.Narrowed())
	}
	return err
}

// now is the time, where the nodes have just been read.
func (s *scene) now() time.Time {
	if s.live {
		return time.Now()
	}
	return time.Time{}
}

// readPods adds pods to the objects.
func (s *scene) readPods(ctx context.Context, which cluster.Pods) error {
	return s.ask(ctx, func(ctx context.Context) error { return s.source.Pods(ctx, s.objects, which) })
}

// ask bounds a question to the API server in time. Where it is not answered nothing is inspected.
func (s *scene) ask(ctx context.Context, question func(context.Context) error) error {
	if !s.live {
		return question(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := question(bounded)
	switch {
	case err == nil, ctx.Err() != nil:
		return err
	case bounded.Err() != nil:
		return codeError{ExitNotInspected, fmt.Errorf("the API server did not answer within %v (--timeout)", s.timeout)}
	}
	return codeError{ExitNotInspected, err}
}
