// SPDX-License-Identifier: Apache-2.0

// Package run contains what the commands have in common: a [Session] gets the cluster's objects from a cluster.Source
// and the nodes' files from a [NodeReader], has trace/judge judge them, and reads them again if a change in progress
// may explain a difference; a [PathKeeper] programs a path on a node. It prints nothing but progress.
package run

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Config is what a Session reads, and how.
type Config struct {
	// Snapshot is the directory or archive that is read instead of a cluster; "": the cluster of Connect is read.
	Snapshot string
	// Connect makes a client of the cluster. It sends no request.
	Connect func() (kubernetes.Interface, *rest.Config, error)
	// Namespace is the namespace whose Services suffice if those of all may not be listed; "": none suffices.
	Namespace string
	// Nodes are the nodes to read.
	Nodes Selection
	// NoNodes says that only the API is read.
	NoNodes bool
	// Serve is the helper for Nodes.Local: this machine is the node. nil if this system cannot be a node.
	Serve launch.Serve
	// Parallel is how many nodes are read concurrently.
	Parallel int
	// Helper is how helpers are launched. Its Timeout also bounds requests to the API server. Client, Run, Say and Note
	// are set by Open.
	Helper launch.Options
	// Progress shows the progress.
	Progress *Progress
}

// Session is one run of a command: the cluster's objects, and the nodes to be read.
type Session struct {
	Progress *Progress
	// Objects are the cluster's objects, after ReadObjects. Judge replaces them by those that the nodes were judged by.
	Objects *snapshot.Cluster

	config Config
	source cluster.Source
	nodes  NodeReader
	// probe makes connections from a node; nil where nothing can.
	probe func(ctx context.Context, node string, params wire.ProbeParams) ([]byte, error)
	// helper returns a node's helper, which the caller closes; nil where there are none.
	helper func(ctx context.Context, node string) (*launch.Helper, error)
	// there has a node's helper judge it; nil where none can.
	there asking
	// client reaches the cluster; nil for a snapshot.
	client kubernetes.Interface
	// pod is the helper's pod of a node; nil where none is made.
	pod func(node string) *corev1.Pod
	// live says that a running cluster is read, so that objects and files may be out of date immediately.
	live  bool
	index *objectIndex
	// ahead has the nodes that ReadAhead reads.
	ahead  <-chan loadedNode
	slots  slots
	others *others
}

// Open begins a Session. It reads a snapshot's directory; to a cluster it sends no request yet.
func Open(c Config) (*Session, error) {
	s := &Session{config: c, Progress: c.Progress, index: &objectIndex{}, slots: newSlots(), others: &others{}}
	if c.Snapshot != "" {
		snap, err := snapshot.Open(c.Snapshot)
		if err != nil {
			return nil, err
		}
		s.source, s.nodes = cluster.FromSnapshot(snap), snapshotReader{snap}
		return s, nil
	}
	client, config, err := c.Connect()
	if err != nil {
		return nil, err
	}
	s.client, s.source, s.live = client, cluster.FromAPI(client, c.Namespace), true
	if c.NoNodes {
		s.nodes = noReader{}
		return s, nil
	}
	o := &s.config.Helper
	o.Client, o.Config, o.Run, o.Say = client, config, launch.NewRun(), s.Progress.Node
	o.Note = func(node, what string) { s.Progress.Note("%s: %s", node, what) }
	if c.Nodes.Local {
		r := &localReader{options: *o, serve: c.Serve}
		s.nodes, s.probe, s.helper = r, r.probe, r.helper
		return s, nil
	}
	l, err := launch.New(*o)
	if err != nil {
		return nil, Usagef("%w", err)
	}
	r := &podReader{launcher: l, large: large{slots: newSlots()}, system: s.systemOf, note: s.Progress.Note}
	s.nodes, s.probe, s.helper, s.there = r, r.probe, r.helper, r.judge
	s.pod = func(node string) *corev1.Pod { return launch.Pod(*o, node) }
	return s, nil
}

// Close closes the helpers of nodes, and clears the progress.
func (s *Session) Close() {
	s.Progress.Done()
	s.nodes.Close()
}

// Live tells whether a cluster is read, not a snapshot.
func (s *Session) Live() bool { return s.live }

// Snapshot returns the path of the snapshot that is read, and what it says of itself. The error is that of reading
// this: it may be missing.
func (s *Session) Snapshot() (path string, meta snapshot.Meta, err error) {
	if snap, ok := s.nodes.(snapshotReader); ok {
		meta, err = snap.Meta()
	}
	return s.config.Snapshot, meta, err
}

// HelperPod returns the pod that would be created on a node.
func (s *Session) HelperPod(node string) *corev1.Pod { return s.pod(node) }

// Now is the current time for a cluster, and zero for a snapshot.
func (s *Session) Now() time.Time {
	if s.live {
		return time.Now()
	}
	return time.Time{}
}

// ReadObjects reads the cluster's objects.
func (s *Session) ReadObjects(ctx context.Context) error {
	s.Progress.Say("reading %s", s.what())
	err := s.ask(ctx, func(ctx context.Context) (err error) {
		s.Objects, err = s.source.Objects(ctx)
		return err
	})
	if narrowed := s.source.Narrowed(); narrowed != nil {
		s.Progress.Note("only the Services of one namespace are read: %v", narrowed)
	}
	return err
}

// what names the source of the objects, for people.
func (s *Session) what() string {
	if s.live {
		return "the cluster's Services"
	}
	return s.config.Snapshot
}

// ReadPods adds pods to the objects.
func (s *Session) ReadPods(ctx context.Context, which cluster.Pods) error {
	return s.ask(ctx, func(ctx context.Context) error { return s.source.Pods(ctx, s.Objects, which) })
}

// ask sets a timeout for requests to the API server. Its error is NotInspected.
func (s *Session) ask(ctx context.Context, question func(context.Context) error) error {
	if !s.live {
		return question(ctx)
	}
	timeout := s.config.Helper.Timeout
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := question(bounded)
	switch {
	case err == nil, ctx.Err() != nil:
		return err
	case bounded.Err() != nil:
		return NotInspected(fmt.Errorf("the API server did not answer within %v (--timeout)", timeout))
	}
	return NotInspected(err)
}

// ReadFile returns one file of a node; ok is false if the node has none of that name.
func (s *Session) ReadFile(ctx context.Context, node, name string) (data []byte, ok bool, err error) {
	files, err := s.nodes.Read(ctx, node, snapshot.NodeFiles)
	if err != nil {
		return nil, false, err
	}
	return files.File(name)
}

// EachNode reads all files of nodes, including those for people, and calls do for each as soon as it was read, one
// after the other: no more than a few are in memory. err is why a node was not read. EachNode returns the first error
// of do.
func (s *Session) EachNode(
	ctx context.Context, nodes []string, do func(name string, files *snapshot.Node, err error) error,
) error {
	defer s.Progress.Done()
	var mu sync.Mutex
	var failed error
	s.each(nodes, func(_ int, name string) {
		files, err := s.nodes.Read(ctx, name, nil)
		mu.Lock()
		defer mu.Unlock()
		if failed == nil {
			failed = do(name, files, err)
		}
	})
	return failed
}

// EachHelper calls do with the helper of each node, several concurrently; errs has an entry for each node.
func (s *Session) EachHelper(
	ctx context.Context, nodes []string, do func(i int, node string, helper *launch.Helper) error,
) (errs []error) {
	defer s.Progress.Done()
	errs = make([]error, len(nodes))
	s.each(nodes, func(i int, name string) {
		helper, err := s.helper(ctx, name)
		if err != nil {
			errs[i] = err
			return
		}
		errs[i] = do(i, name, helper)
	})
	return errs
}

// ReadAhead begins to read nodes of a snapshot before Judge, which takes them: a node's rules are large, and reading
// them needs no cluster. bounds.Answers nodes are read ahead. It stops when the context ends.
func (s *Session) ReadAhead(ctx context.Context, nodes []string) {
	out := make(chan loadedNode)
	s.ahead = out
	snap, ok := s.nodes.(snapshotReader)
	if !ok {
		close(out)
		return
	}
	go func() {
		defer close(out)
		var wg sync.WaitGroup
		defer wg.Wait()
		for files, err := range snap.Nodes(nodes) {
			if s.slots.take(ctx) != nil {
				return
			}
			wg.Go(func() {
				n := loadedNode{err: err}
				if err == nil {
					n = loadNode(files.Name, files)
				}
				select {
				case out <- n:
				case <-ctx.Done():
					s.slots.release()
				}
			})
		}
	}()
}

// Task is what Judge judges.
type Task struct {
	Nodes   []string
	Request func(node string) Request
	// Probes is how many connections are made of each frontend and origin, in a cluster; 0: none.
	Probes int
	// Payload is what is sent over each of them; empty: nothing.
	Payload string
	// Everything says that Request is for all Services, from the usual origins, and that nothing is asked of what is
	// right: helpers may judge their nodes themselves.
	Everything bool
}

// Judge reads and judges nodes, and returns a report for each. If the context ends, it does not wait for nodes that
// are being judged.
func (s *Session) Judge(ctx context.Context, t Task) ([]report.NodeReport, error) {
	defer s.Progress.Done()
	type result struct {
		reports []report.NodeReport
		objects *snapshot.Cluster
		err     error
	}
	done := make(chan result, 1)
	go func() {
		if s.live {
			reports, objects := s.judgeLive(ctx, t)
			done <- result{reports, objects, nil}
			return
		}
		reports, err := s.judgeSnapshot(ctx, t)
		done <- result{reports, s.Objects, err}
	}()
	select {
	case r := <-done:
		s.Objects = r.objects
		if r.err != nil {
			return nil, r.err
		}
		return r.reports, ctx.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// judgeSnapshot judges the nodes of a snapshot as they are read. The error is that of a snapshot that passes a limit,
// or that is damaged: nothing can be said of what comes after that.
func (s *Session) judgeSnapshot(ctx context.Context, t Task) ([]report.NodeReport, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.ahead == nil {
		s.ReadAhead(ctx, t.Nodes)
	}
	reports := make([]report.NodeReport, len(t.Nodes))
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { // while the first node is being read
		defer recovered(func(error) {}) // it comes again with each node
		s.index.get(s.Objects)
	})
	judged := 0
	for n := range s.ahead {
		if n.err != nil && (n.node == "" || bounds.Is(n.err)) {
			s.slots.release()
			return nil, Usagef("%w", n.err)
		}
		judged++
		s.Progress.Say("analysing node %d of %d", judged, len(t.Nodes))
		wg.Go(func() {
			defer s.slots.release()
			got := s.judgeWithin(judgeTime, &n, s.Objects, t.Request(n.node))
			for i, name := range t.Nodes {
				if name == n.node {
					reports[i] = got
				}
			}
		})
	}
	wg.Wait()
	return reports, nil
}

// judgeLive reads and judges nodes of a cluster concurrently. It also returns the objects that the last node was
// judged by, for the head of the report.
func (s *Session) judgeLive(ctx context.Context, t Task) ([]report.NodeReport, *snapshot.Cluster) {
	c := &confirmer{
		Session: s,
		probes:  ProbingOf(t.Probes, t.Payload),
		pause:   confirmPause,
		reads:   confirmReads,
	}
	if w, ok := s.source.(cluster.Watcher); ok && len(t.Nodes) > FewNodes {
		c.lists.watch(ctx, w, s.Objects)
		defer c.lists.close()
	}
	var helpers *there
	if t.Everything && t.Probes == 0 && s.there != nil && len(t.Nodes) > FewNodes {
		helpers = &there{Session: s, lists: &c.lists}
	}
	reports := make([]report.NodeReport, len(t.Nodes))
	read := func(i int, said *heard) {
		name := t.Nodes[i]
		reports[i] = c.judge(ctx, name, t.Request(name), said)
		if t.Probes > 0 {
			reports[i] = c.observe(ctx, name, t.Request(name), reports[i])
		}
	}
	all := func() {
		if helpers == nil {
			s.each(t.Nodes, func(i int, _ string) { read(i, nil) })
			return
		}
		reading := make(slots, s.config.Parallel)
		wrong := helpers.judgeAll(ctx, t.Nodes, func(i int, got *report.NodeReport) {
			if got != nil {
				reports[i] = *got
			} else if err := reading.take(ctx); err != nil {
				reports[i] = notInspected(t.Nodes[i], err)
			} else {
				defer reading.release()
				read(i, nil)
			}
		})
		var names []string
		var at []int
		for i, said := range wrong {
			if said != nil {
				names, at = append(names, t.Nodes[i]), append(at, i)
			}
		}
		if len(names) > 0 && wait(ctx, c.pause) == nil {
			s.each(names, func(k int, _ string) { read(at[k], wrong[at[k]]) })
		}
	}
	all()
	if behind, err := c.lists.behind(ctx, s); behind || err != nil && ctx.Err() == nil {
		s.Progress.Note("the API server was late to tell of changes: all nodes are judged again")
		c.lists.close()
		if helpers != nil {
			helpers.outdated()
		}
		all()
	}
	// What connections have shown stays in the report.
	if t.Probes == 0 && (s.readAsked(ctx, reports) || len(t.Nodes) > 1) {
		for i, name := range t.Nodes {
			reports[i] = c.askAgain(ctx, name, t.Request(name), reports[i])
		}
	}
	if last := c.lists.last; last != nil {
		return reports, last
	}
	return reports, s.Objects
}

// each calls do for each node, at most Parallel concurrently, and releases the node afterwards.
func (s *Session) each(nodes []string, do func(i int, name string)) {
	s.eachOf(nodes, s.config.Parallel, do)
}

// eachOf is each with another number of nodes at once.
func (s *Session) eachOf(nodes []string, atOnce int, do func(i int, name string)) {
	var wg sync.WaitGroup
	var done atomic.Int32
	free := make(chan struct{}, atOnce)
	s.Progress.Say("reading %s", counted(len(nodes), "node"))
	for i, name := range nodes {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			do(i, name)
			s.nodes.Release(name)
			s.Progress.NodeDone(name)
			s.Progress.Say("%d of %s done", done.Add(1), counted(len(nodes), "node"))
		})
	}
	wg.Wait()
}

// counted is a number with its noun.
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
