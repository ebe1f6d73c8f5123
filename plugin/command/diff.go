// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/print"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// diffOptions are the flags of the command diff, which reads two snapshots.
type diffOptions struct {
	nodes  nodeFlags // --node
	output outputFlags
}

func newDiffCommand(env *environment) *cobra.Command {
	o := &diffOptions{}
	cmd := &cobra.Command{
		Use:        "diff BEFORE AFTER",
		SuggestFor: []string{"compare"},
		Short:      "Show what changed between two snapshots: paths first, then the rules and settings behind them",
		Long: `Show what changed between two snapshots of the same nodes, for a post-mortem, or
before and after a repair. Each snapshot is a directory or a .tar.gz as "dump"
writes it. Both are judged. Paths with another result are listed first, then
findings that appeared or disappeared, rules, sets, settings, kube-proxy's
configuration and version, routes, interfaces, neighbours, and API objects.

Counters are not compared, nor is the order in which kube-proxy writes the rules
of Services and endpoints. Long lists are shortened, unless -o wide is given.

The exit code is 0 if neither paths nor rules differ; 1 if they do, or if a node
is in one snapshot only; 2 for wrong usage or unreadable input; and 3 if a node
could not be inspected and nothing else differs. -o name prints node/NODE for
each node on which paths or rules differ.`,
		Example: `  # What did the repair change?
  kubectl svcproxy dump --node worker-2 -o before.tar.gz
  kubectl -n kube-system delete pod/kube-proxy-x2v9p
  kubectl svcproxy dump --node worker-2 -o after.tar.gz
  kubectl svcproxy diff before.tar.gz after.tar.gz

  # The addresses of the paths that differ, for a script
  kubectl svcproxy diff before.tar.gz after.tar.gz -o jsonpath='{.nodes[*].paths[*].frontend.address}'`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.config(env, cmd.Flags(), args)
			if err != nil {
				return err
			}
			return diff(cmd.Context(), env, c)
		},
	}
	o.output.add(cmd, report.KindDiff, "the nodes that differ")
	cmd.Flags().StringSliceVar(&o.nodes.nodes, "node", nil, "Compare this node (repeatable). Without it: all nodes")
	return cmd
}

// diffConfig is what to compare.
type diffConfig struct {
	before, after run.Config
	printer       *print.Printer
}

// config completes and validates the options.
func (o *diffOptions) config(env *environment, flags *pflag.FlagSet, args []string) (c diffConfig, err error) {
	if len(args) != 2 {
		return c, run.Usagef("diff needs two snapshots: %s diff BEFORE AFTER (see %s diff --help)", name, name)
	}
	if slices.Contains(args, "") {
		return c, run.Usagef("the path of a snapshot is empty: give a directory or a .tar.gz")
	}
	if c.printer, err = o.output.printer(report.KindDiff); err != nil {
		return c, err
	}
	selection, err := o.nodes.selection(flags, &helperFlags{})
	if err != nil {
		return c, err
	}
	for i := range selection.Names {
		selection.Names[i] = cluster.NodeName(selection.Names[i])
	}
	progress := run.NewProgress(env.errOut) // one draws: each erases what it has drawn itself
	for i, to := range []*run.Config{&c.before, &c.after} {
		*to = run.Config{Snapshot: args[i], Nodes: selection, Parallel: 1, Progress: progress}
	}
	return c, nil
}

// diff compares and prints.
func diff(ctx context.Context, env *environment, c diffConfig) error {
	before, err := openSnapshot(ctx, c.before)
	if err != nil {
		return err
	}
	defer before.Close()
	after, err := openSnapshot(ctx, c.after)
	if err != nil {
		return err
	}
	defer after.Close()
	request := run.Request{Matching: true, Backwards: true, PerPathService: true}
	d, err := run.CompareCaptures(ctx, before, after, request)
	if err != nil {
		return err
	}
	d.Before, _ = env.source(before, nil)
	d.After, _ = env.source(after, nil)
	for i := range d.Nodes {
		d.Before.Nodes = append(d.Before.Nodes, d.Nodes[i].Before.Node)
		d.After.Nodes = append(d.After.Nodes, d.Nodes[i].After.Node)
	}
	d.Before.Nodes = append(d.Before.Nodes, d.OnlyBefore...)
	d.After.Nodes = append(d.After.Nodes, d.OnlyAfter...)
	return concludeDiff(env, c.printer, d)
}

// openSnapshot opens a snapshot and reads its objects.
func openSnapshot(ctx context.Context, c run.Config) (*run.Session, error) {
	s, err := run.Open(c)
	if err != nil {
		return nil, err
	}
	if err = s.ReadObjects(ctx); err == nil {
		err = s.ReadPods(ctx, cluster.Pods{Nodes: s.KnownNodes()})
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// concludeDiff prints a Diff and makes its exit code.
func concludeDiff(env *environment, p *print.Printer, d *report.Diff) error {
	for _, line := range print.UninspectedIn(d) {
		env.errOut.Sentence("error: %s", safetext.Line(line, maxError))
	}
	if err := p.Diff(env.out, d, print.View{Style: env.style(p)}); err != nil {
		return run.Usagef("%w", err)
	}
	switch {
	case d.InPathsOrRules():
		return &run.ExitError{Code: run.ExitMismatch}
	case d.Summary.NotJudged > 0:
		return &run.ExitError{Code: run.ExitNotInspected}
	}
	return nil
}
