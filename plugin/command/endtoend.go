// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// endFlags say whether connections are followed beyond the client's node.
type endFlags struct {
	endToEnd, allEndpoints bool
}

// add defines the flags.
func (e *endFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&e.endToEnd, "end-to-end", false, "With --from pod/NAME: follow connections from that pod over the "+
		"endpoints' nodes into their pods, and back; the helper reads the pods' network namespaces, too")
	f.BoolVar(&e.allEndpoints, "all-endpoints", false, "With --end-to-end: follow connections to every endpoint, not to "+
		"one on each of a few nodes")
}

// check says what else the flags need.
func (e *endFlags) check(from string, local bool) error {
	switch {
	case e.allEndpoints && !e.endToEnd:
		return run.Usagef("--all-endpoints is about --end-to-end: give that, too")
	case !e.endToEnd:
		return nil
	case !strings.HasPrefix(from, "pod/"):
		return run.Usagef("--end-to-end begins at a pod: give --from pod/NAME")
	case local:
		return run.Usagef("--end-to-end reads several nodes, and --local is one")
	}
	return nil
}

// endToEnd judges the client's node, and what is beyond it.
func (c *traceConfig) endToEnd(
	ctx context.Context, s *run.Session, from *run.Origin, target *cluster.Target, request func(string) run.Request,
) ([]report.NodeReport, error) {
	ends, err := s.FindEnds(ctx, from, target, c.ends.allEndpoints)
	if err != nil {
		return nil, err
	}
	got, err := s.JudgeEndToEnd(ctx, ends, request(from.Node), run.ProbingOf(c.probes, c.payload))
	if err != nil {
		return nil, err
	}
	return []report.NodeReport{got}, nil
}

// findEnds finds what the Service's connections touch.
func (c *dumpConfig) findEnds(ctx context.Context, s *run.Session) (*run.Ends, error) {
	target, err := cluster.Find(s.Objects, c.namespace, *c.service)
	if err != nil {
		return nil, run.Usagef("%w", err)
	}
	from, err := s.FindOrigin(ctx, c.from, c.namespace)
	if err != nil {
		return nil, err
	}
	return s.FindEnds(ctx, from, &target, c.ends.allEndpoints)
}
