// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// compareFlags say whether two nodes are compared.
type compareFlags struct{ nodes string }

// add defines the flag.
func (f *compareFlags) add(cmd *cobra.Command, env *environment) {
	cmd.Flags().StringVar(&f.nodes, "compare", "", "Read these two nodes, GOOD,BAD, and show only what differs between "+
		"them for the Service: paths, rules, sets, settings, routes, versions")
	_ = cmd.RegisterFlagCompletionFunc("compare", env.completeNodes)
}

// config puts the two nodes into a trace's config, where two are to be compared; o is what else was given.
func (f *compareFlags) config(flags *pflag.FlagSet, o *traceOptions, c *traceConfig) error {
	if !flags.Changed("compare") {
		return nil
	}
	names := strings.Split(f.nodes, ",")
	for i := range names {
		names[i] = cluster.NodeName(strings.TrimSpace(names[i]))
	}
	switch {
	case len(names) != 2 || names[0] == "" || names[1] == "":
		return run.Usagef("--compare %q: it takes two nodes, GOOD,BAD", f.nodes)
	case names[0] == names[1]:
		return run.Usagef("--compare takes two different nodes; for two captures of %s use %s diff", names[0], name)
	case c.session.Nodes.Chosen():
		return run.Usagef("--compare names the nodes: leave out --node, --selector, --all-nodes and --local")
	case c.ends.endToEnd:
		return run.Usagef("--compare is about two nodes, and --end-to-end about one connection: give one of them")
	case c.probes > 0:
		return run.Usagef("--compare makes no connections: give --live without it")
	case strings.HasPrefix(o.from, "pod/") || strings.HasPrefix(o.from, "node/"):
		return run.Usagef("--from %s is on one node, and --compare is about two: give --from pod, node or external", o.from)
	}
	var err error
	if c.printer, err = o.output.printer(report.KindDiff); err != nil {
		return err
	}
	c.session.Nodes.Names, c.compare = names, names
	return nil
}

// compareNodes compares two nodes, and prints what differs.
func (c *traceConfig) compareNodes(
	ctx context.Context, env *environment, s *run.Session, target *cluster.Target, request func(string) run.Request,
) error {
	withSteps := func(node string) run.Request {
		r := request(node)
		r.Steps, r.Matching = true, true
		return r
	}
	n, err := s.CompareNodes(ctx, c.compare[0], c.compare[1], withSteps)
	if err != nil {
		return err
	}
	d := &report.Diff{
		APIVersion: report.APIVersion, Kind: report.KindDiff, Compares: report.ComparesNodes,
		Service: &report.ObjectRef{Namespace: target.Service.Namespace, Name: target.Service.Name},
		Nodes:   []report.NodeDiff{n},
	}
	run.CountDiff(d)
	source, _ := env.source(s, nil)
	source.Nodes = slices.Clone(c.compare)
	d.Before, d.After = source, source
	return concludeDiff(env, c.printer, d)
}
