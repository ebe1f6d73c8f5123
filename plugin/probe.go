// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/trace/diagnose"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// probeOptions ask for real connections.
type probeOptions struct {
	live   bool
	probes int
}

// Bounds of --probes: the helper makes at most as many of one frontend, and so many targets in all.
const (
	defaultProbes = 20
	maxProbes     = 200
	maxTargets    = 500
)

func (o *probeOptions) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&o.live, "live", false, "Also make real connections from the node and its pods, without a payload, and have the kernel trace some: say what became of them, and with -o wide which rules they met")
	f.IntVar(&o.probes, "probes", defaultProbes, fmt.Sprintf("How many connections to make of each frontend and origin, 1 to %d (with --live)", maxProbes))
}

func (o *probeOptions) validate(f *pflag.FlagSet, fromSnapshot bool) error {
	switch {
	case !o.live && f.Changed("probes"):
		return usagef("--probes says how many connections --live makes: give --live, too")
	case o.live && fromSnapshot:
		return usagef("--live connects to a cluster's Services, and --snapshot contacts none: give one of them")
	case o.probes < 1 || o.probes > maxProbes:
		return usagef("--probes %d: it may be 1 to %d", o.probes, maxProbes)
	}
	return nil
}

// prober is an Inspector that can make connections from a node.
type prober interface {
	// Probe returns the file snapshot.ProbesFile.
	Probe(ctx context.Context, node string, targets []snapshot.ProbeTarget) ([]byte, error)
}

// Probe has the node's helper make connections.
func (p *podInspector) Probe(ctx context.Context, node string, targets []snapshot.ProbeTarget) ([]byte, error) {
	s, err := p.session(ctx, node)
	if err != nil {
		return nil, err
	}
	return s.Probe(ctx, targets)
}

// Probe makes connections from this machine.
func (l *localInspector) Probe(ctx context.Context, node string, targets []snapshot.ProbeTarget) ([]byte, error) {
	s, err := launch.Local(ctx, node, l.options, l.serve)
	if err != nil {
		return nil, err
	}
	data, err := s.Probe(ctx, targets)
	if e := s.Close(); err == nil {
		err = e
	}
	return data, err
}

// observe makes the connections that a node's report is about, reads the node once more, and judges both. Rules may be rewritten and endpoints
// go between connections and reading, so what only the connections show is wrong once it has shown twice.
func (s *settler) observe(ctx context.Context, node string, request diagnose.Request, got report.NodeReport) report.NodeReport {
	from, ok := s.nodes.(prober)
	if !ok || got.Error != "" {
		return got
	}
	targets, left := diagnose.ProbeTargets(&got, s.probes, maxTargets)
	if left > 0 {
		s.progress.note("%s: %d of %d targets are not probed, as %d is the most at once", node, left, left+len(targets), maxTargets)
	}
	if len(targets) == 0 {
		s.progress.note("%s: no path starts at the node or at a pod on it, so nothing is probed", node)
		return got
	}
	earlier := &got
	for read := 1; ; read++ {
		if read > 1 {
			s.progress.node(node, fmt.Sprintf("connecting again (%d of %d)", read, s.reads))
		}
		now, err := s.observeOnce(ctx, from, node, request, targets)
		switch {
		case err != nil:
			return report.NodeReport{Node: node, Verdict: report.Unknown, Error: err.Error()}
		case now.Error != "" || diagnose.Confirmed(earlier, &now):
			return now
		case read == s.reads:
			diagnose.Doubt(earlier, &now, fmt.Sprintf("it was different each of the %d times that connections were made", read))
			return now
		}
		earlier = &now
		select {
		case <-time.After(s.pause / 4):
		case <-ctx.Done():
			return report.NodeReport{Node: node, Verdict: report.Unknown, Error: ctx.Err().Error()}
		}
	}
}

func (s *settler) observeOnce(ctx context.Context, from prober, node string, request diagnose.Request, targets []snapshot.ProbeTarget) (report.NodeReport, error) {
	data, err := from.Probe(ctx, node, targets)
	if err != nil {
		return report.NodeReport{}, err
	}
	files, err := s.nodes.Inspect(ctx, node)
	if err != nil {
		return report.NodeReport{}, err
	}
	objects, err := s.lists.get(ctx, s.scene)
	if err != nil {
		return report.NodeReport{}, err
	}
	s.judging.Lock()
	defer s.judging.Unlock()
	return diagnose.Node(objects, files.With(snapshot.ProbesFile, data), request), nil
}
