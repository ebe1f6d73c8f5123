// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"net/netip"
	"slices"
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
	f.BoolVar(&e.endToEnd, "end-to-end", false, "With --from pod/NAME: follow connections from that pod through "+
		"the endpoints' nodes into their pods, and back; the helper also reads the pods' network namespaces. With --from "+
		"external or an IP address outside of the cluster: follow them from the nodes at which they arrive (--node)")
	f.BoolVar(&e.allEndpoints, "all-endpoints", false, "With --end-to-end: follow connections to every endpoint, not "+
		"only to "+
		"one on each of a few nodes")
}

// check says what else the flags need.
func (e *endFlags) check(from string, local bool) error {
	switch {
	case e.allEndpoints && !e.endToEnd:
		return run.Usagef("--all-endpoints is about --end-to-end: give that, too")
	case !e.endToEnd:
		return nil
	case !strings.HasPrefix(from, "pod/") && !isOutside(from):
		return run.Usagef("--end-to-end begins at a pod, or outside of the cluster: give --from pod/NAME, or --from " +
			"external or an IP address, with --node for the node that connections come in to")
	case local:
		return run.Usagef("--end-to-end reads several nodes, and --local is one")
	}
	return nil
}

// isOutside tells whether --from may be outside of the cluster; of an address the objects tell.
func isOutside(from string) bool {
	_, err := netip.ParseAddr(from)
	return err == nil || from == "external"
}

// clients are the nodes that connections begin at, or come in to. chosen are those to read.
func clients(from *run.Origin, what string, chosen []string) ([]string, error) {
	switch {
	case from.IsOutside() && len(chosen) > run.MaxEndNodes:
		return nil, run.Usagef("--end-to-end from outside keeps what it reads of all nodes, and %d were chosen: give --node "+
			"for those that connections come in to, at most %d", len(chosen), run.MaxEndNodes)
	case from.IsOutside():
		return chosen, nil
	case from.Pod == "" && from.HostPod == "":
		return nil, run.Usagef("--from %s is an address of a node: --end-to-end begins at a pod, or outside of the cluster",
			what)
	case len(chosen) > 0 && !slices.Equal(chosen, []string{from.Node}):
		return nil, run.Usagef("--from %s is on node %s, where its packets start: give --node %s", what, from.Node, from.Node)
	}
	return []string{from.Node}, nil
}

// endToEnd judges the client's node, or those that connections from outside come in to, and what is beyond.
func (c *traceConfig) endToEnd(
	ctx context.Context, s *run.Session, from *run.Origin, target *cluster.Target, nodes []string,
	request func(string) run.Request,
) ([]report.NodeReport, error) {
	begin, err := clients(from, c.from, nodes)
	if err != nil {
		return nil, err
	}
	ends, err := s.FindEnds(ctx, from, begin, target, c.ends.allEndpoints)
	if err != nil {
		return nil, err
	}
	return s.JudgeEndToEnd(ctx, ends, request, run.ProbingOf(c.probes, c.payload))
}

// findEnds finds what the Service's connections touch. nodes are those chosen.
func (c *dumpConfig) findEnds(ctx context.Context, s *run.Session, nodes []string) (*run.Ends, error) {
	target, err := cluster.Find(s.Objects, c.namespace, *c.service)
	if err != nil {
		return nil, run.Usagef("%w", err)
	}
	from, err := s.FindOrigin(ctx, c.from, c.namespace)
	if err != nil {
		return nil, err
	}
	switch {
	case !from.IsOutside():
		nodes = nil // the origin tells
	case target.Node != "" && !c.session.Nodes.Chosen():
		nodes = []string{target.Node}
	}
	begin, err := clients(from, c.from, nodes)
	if err != nil {
		return nil, err
	}
	return s.FindEnds(ctx, from, begin, &target, c.ends.allEndpoints)
}
