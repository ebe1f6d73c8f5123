// SPDX-License-Identifier: Apache-2.0

// Package run is what the commands have in common when they run: a [Session] gets the cluster's objects from a
// cluster.Source and the nodes' files from a [NodeReader], has trace/judge judge them, and reads again what a change
// under way may explain; a [PathKeeper] programs a path on a node. It prints nothing but progress.
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

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Config says what a run reads, and how.
type Config struct {
	// Snapshot is the directory or archive that is read in place of a cluster; "": the cluster of Connect.
	Snapshot string
	// Connect makes a client of the cluster. It asks the cluster nothing.
	Connect func() (kubernetes.Interface, *rest.Config, error)
	// Namespace is the one whose Services suffice where those of all may not be listed; "": none does.
	Namespace string
	// Nodes says which nodes are read.
	Nodes Selection
	// NoNodes is for a run that reads the API alone.
	NoNodes bool
	// Serve answers for this machine, which is the node then, where Nodes.Local; nil where this system cannot be a
	// node.
	Serve launch.Serve
	// Parallel is how many nodes are read side by side.
	Parallel int
	// Helper says how helpers are launched. Its Timeout bounds also what the API server is asked. Client, Run, Say and
	// Note are set by Open.
	Helper launch.Options
	// Progress tells what goes on.
	Progress *Progress
}

// Session is one run of a command: the cluster's objects, and the nodes to be read.
type Session struct {
	Progress *Progress
	// Objects are what the cluster holds, after ReadObjects. Judge replaces them by those that the nodes were judged
	// by.
	Objects *snapshot.Cluster

	config Config
	source cluster.Source
	nodes  NodeReader
	// probe makes connections from a node; nil where nothing can.
	probe func(ctx context.Context, node string, targets []snapshot.ProbeTarget) ([]byte, error)
	// helper returns a node's helper, which the caller closes; nil where there are none.
	helper func(ctx context.Context, node string) (*launch.Helper, error)
	// client reaches the cluster; nil for a snapshot.
	client kubernetes.Interface
	// pod is the helper's pod of a node; nil where none is made.
	pod func(node string) *corev1.Pod
	// live: a cluster is at work meanwhile, so that what is read may be out of date the moment after.
	live  bool
	index *objectIndex
	// ahead has the nodes that ReadAhead reads.
	ahead <-chan loadedNode
}

// Open begins a run. It reads a snapshot's directory, and asks a cluster nothing yet.
func Open(c Config) (*Session, error) {
	s := &Session{config: c, Progress: c.Progress, index: &objectIndex{}}
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
	r := &podReader{launcher: l, system: s.systemOf, note: s.Progress.Note}
	s.nodes, s.probe, s.helper = r, r.probe, r.helper
	s.pod = func(node string) *corev1.Pod { return launch.Pod(*o, node) }
	return s, nil
}

// Close ends what the run began on nodes, and takes the lines of progress away.
func (s *Session) Close() {
	s.Progress.Done()
	s.nodes.Close()
}

// Live tells whether a cluster is read, and no snapshot.
func (s *Session) Live() bool { return s.live }

// HelperPod is the pod that would be made on a node.
func (s *Session) HelperPod(node string) *corev1.Pod { return s.pod(node) }

// Now is the time where the nodes have just been read; zero for a snapshot.
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
		s.Progress.Note("only one namespace's Services are looked at: %v", narrowed)
	}
	return err
}

// what says in words what the objects are read from.
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

// ask bounds a question to the API server in time. Where it is not answered nothing is inspected.
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

// read reads what judging needs of a node.
func (s *Session) read(ctx context.Context, node string) loadedNode {
	files, err := s.nodes.Read(ctx, node, snapshot.NodeFiles)
	return loadNode(node, files, err)
}

// ReadFile returns one file of a node; ok is false where the node has none of that name.
func (s *Session) ReadFile(ctx context.Context, node, name string) (data []byte, ok bool, err error) {
	files, err := s.nodes.Read(ctx, node, snapshot.NodeFiles)
	if err != nil {
		return nil, false, err
	}
	return files.File(name)
}

// ReadAll reads all files of nodes side by side, those for people included; errs has an entry for each node.
func (s *Session) ReadAll(ctx context.Context, nodes []string) (files []*snapshot.Node, errs []error) {
	defer s.Progress.Done()
	files, errs = make([]*snapshot.Node, len(nodes)), make([]error, len(nodes))
	s.each(nodes, func(i int, name string) { files[i], errs[i] = s.nodes.Read(ctx, name, nil) })
	return files, errs
}

// EachHelper does something with the helper of each node, several side by side; errs has an entry for each node.
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

// ReadAhead begins to read nodes of a snapshot in order, one ahead of Judge, which takes them: a node's rules are
// large, and reading them needs no cluster. It stops when the context ends.
func (s *Session) ReadAhead(ctx context.Context, nodes []string) {
	out := make(chan loadedNode)
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

// Task says what Judge judges.
type Task struct {
	Nodes   []string
	Request func(node string) Request
	// Probes is how many connections are made of each frontend and origin, in a cluster; 0: none.
	Probes int
}

// Judge reads and judges nodes, and returns a report for each. It waits for no node that is under judgement when the
// context ends.
func (s *Session) Judge(ctx context.Context, t Task) ([]report.NodeReport, error) {
	defer s.Progress.Done()
	type result struct {
		reports []report.NodeReport
		objects *snapshot.Cluster
	}
	done := make(chan result, 1)
	go func() {
		if s.live {
			reports, objects := s.judgeLive(ctx, t)
			done <- result{reports, objects}
			return
		}
		done <- result{s.judgeSnapshot(ctx, t), s.Objects}
	}()
	select {
	case r := <-done:
		s.Objects = r.objects
		return r.reports, ctx.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// judgeSnapshot judges the nodes of a snapshot one after the other.
func (s *Session) judgeSnapshot(ctx context.Context, t Task) []report.NodeReport {
	if s.ahead == nil {
		s.ReadAhead(ctx, t.Nodes)
	}
	reports := make([]report.NodeReport, len(t.Nodes))
	for i := range t.Nodes {
		s.Progress.Say("analysing node %d of %d", i+1, len(t.Nodes))
		n, ok := <-s.ahead
		if !ok { // interrupted
			break
		}
		reports[i] = s.judgeNode(&n, s.Objects, t.Request(n.node))
	}
	return reports
}

// judgeLive reads and judges nodes of a cluster side by side. It returns also the objects that the nodes were judged by
// last, for the head of the report.
func (s *Session) judgeLive(ctx context.Context, t Task) ([]report.NodeReport, *snapshot.Cluster) {
	c := &confirmer{Session: s, probes: t.Probes, pause: confirmPause, reads: confirmReads}
	reports := make([]report.NodeReport, len(t.Nodes))
	s.each(t.Nodes, func(i int, name string) {
		reports[i] = c.judge(ctx, name, t.Request(name))
		if t.Probes > 0 {
			reports[i] = c.observe(ctx, name, t.Request(name), reports[i])
		}
	})
	if last := c.lists.last; last != nil {
		return reports, last
	}
	return reports, s.Objects
}

// each does something with each node, so many at a time as may be read side by side, and releases it then.
func (s *Session) each(nodes []string, do func(i int, name string)) {
	var wg sync.WaitGroup
	var done atomic.Int32
	free := make(chan struct{}, s.config.Parallel)
	s.Progress.Say("looking at %s", counted(len(nodes), "node"))
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
