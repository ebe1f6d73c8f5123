// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
)

// cleanupOptions are the flags of the command cleanup.
type cleanupOptions struct {
	nodes   nodeFlags
	helper  helperFlags
	running bool
	yes     bool
	foreign bool
}

func newCleanupCommand(env *environment) *cobra.Command {
	o := &cleanupOptions{}
	cmd := &cobra.Command{
		Use:        "cleanup",
		SuggestFor: []string{"clean", "delete", "remove", "undo", "rollback", "stop"},
		Short:      "Remove helper pods and programmed paths that an interrupted run left behind",
		Long: `Remove the helper pods of runs that could not remove them, for example because
the machine was switched off or lost its connection. On the nodes of --node, -l
or --all-nodes, also remove programmed paths whose helper no longer exists.

This is not needed after an ordinary run, after ^C, or after the plugin was
killed: then the helper pods are removed as well, and programmed paths end when
their time is over.

On these nodes, the command also finds rules that "program" wrote and that the
node's journal does not record: they were saved while a path existed, and
restored after its end. They are listed, and removed after confirmation. Rules
that have such a name but contain something that "program" never writes may
belong to another program: they are listed, and removed only with --foreign.

Pods that are in use, pods that --keep left behind, and paths whose time is not
over are removed only with --running.`,
		Example: `  kubectl svcproxy cleanup

  # Also pods in use, and those that --keep left behind
  kubectl svcproxy cleanup --running

  # Also rules that were restored after their path had ended, without confirmation
  kubectl svcproxy cleanup --node worker-2 --yes

  # End every programmed path on a node, whoever programmed it
  kubectl svcproxy cleanup --running --node worker-2`,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.config(env, cmd.Flags(), args)
			if err != nil {
				return err
			}
			return cleanup(cmd.Context(), env, c)
		},
	}
	o.nodes.add(cmd, env)
	o.helper.add(cmd, env)
	f := cmd.Flags()
	f.Lookup("node").Usage = "Clean up on this node (repeatable)" // there is no snapshot to read
	for _, hidden := range []string{"snapshot", "dry-run", "keep"} {
		_ = f.MarkHidden(hidden)
	}
	f.BoolVar(&o.running, "running", false,
		"Also remove helper pods that a run uses, those that --keep left behind, and paths whose time is not over")
	f.BoolVarP(&o.yes, "yes", "y", false, "Remove rules without a record without asking for confirmation")
	f.BoolVar(&o.foreign, "foreign", false,
		"Also remove rules that are named as those of program, but contain something that it never writes, so that they "+
			"may belong to another program")
	return cmd
}

// cleanupConfig is what to remove.
type cleanupConfig struct {
	session run.Config
	running bool // also what is in use
	yes     bool // do not ask
	foreign bool // also what may be somebody else's
}

// config completes and validates the options.
func (o *cleanupOptions) config(env *environment, flags *pflag.FlagSet, args []string) (c cleanupConfig, err error) {
	if len(args) > 0 {
		return c, run.Usagef("cleanup takes no argument, and got %s", run.Shorten(args))
	}
	if o.nodes.snapshot != "" {
		return c, run.Usagef("cleanup works on a cluster: it has no --snapshot")
	}
	selection, err := o.nodes.selection(flags, &o.helper)
	if err != nil {
		return c, err
	}
	if o.foreign && !selection.Chosen() {
		return c, run.Usagef("--foreign is about rules of nodes: say which with --node, -l or --all-nodes")
	}
	return cleanupConfig{
		session: o.helper.session(env, &o.nodes, selection, ""), running: o.running, yes: o.yes, foreign: o.foreign,
	}, nil
}

// cleanup removes pods and paths, and names them.
func cleanup(ctx context.Context, env *environment, c cleanupConfig) error {
	if !c.session.Nodes.Chosen() {
		return removePods(ctx, env, &c, nil)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, nodes, err := openNodes(ctx, c.session)
	if err != nil {
		return err
	}
	defer s.Close()
	var errs []error
	if !c.session.Nodes.Local {
		errs = append(errs, removePods(ctx, env, &c, nodes))
	}
	return errors.Join(append(errs, takeAwayPaths(ctx, env, &c, s, nodes))...)
}

// removePods removes helper pods from the nodes; nil: from all.
func removePods(ctx context.Context, env *environment, c *cleanupConfig, nodes []string) error {
	client, config, err := env.client()
	if err != nil {
		return err
	}
	namespace, timeout := c.session.Helper.Namespace, c.session.Helper.Timeout
	l, err := launch.New(launch.Options{
		Config: config, Client: client, Run: launch.NewRun(), Namespace: namespace, Timeout: timeout,
	})
	if err != nil {
		return run.Usagef("%w", err)
	}
	which := launch.Leftovers
	if c.running {
		which = launch.All
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	removed, stay, err := l.Sweep(ctx, which, nodes)
	for _, p := range removed {
		env.out.Line("pod/%s -n %s removed (node %s)", p.Name, p.Namespace, p.Spec.NodeName)
	}
	if err != nil {
		return run.NotInspected(err)
	}
	if len(removed) == 0 {
		env.out.Line("no helper pod in namespace %s is left over", namespace)
	}
	if stay > 0 {
		env.out.Line("helper pods that are in use or were kept: %d; --running removes them, too", stay)
	}
	return nil
}

// takeAwayPaths removes programmed paths from each of the nodes.
func takeAwayPaths(ctx context.Context, env *environment, c *cleanupConfig, s *run.Session, nodes []string) error {
	which := wire.UndoDead
	if c.running {
		which = wire.UndoAll
	}
	said := make([][]string, len(nodes))
	left := leftOver{config: c, nodes: nodes, found: make([]*wire.Orphans, len(nodes))}
	errs := s.EachHelper(ctx, nodes, func(i int, node string, helper *launch.Helper) (err error) {
		said[i], err = undoOn(ctx, node, helper, which)
		if err == nil || launch.Answers(err) {
			err = errors.Join(err, left.look(ctx, i, helper))
		}
		return errors.Join(err, helper.Close())
	})
	for _, line := range slices.Concat(said...) {
		env.out.Line("%s", line)
	}
	err := left.remove(ctx, env, s)
	if failed := errors.Join(errs...); failed != nil {
		return run.NotInspected(errors.Join(failed, err))
	}
	return err
}

// undoOn removes the programmed paths of a node, and describes each in a line.
func undoOn(ctx context.Context, node string, helper *launch.Helper, which string) (said []string, err error) {
	undone, err := helper.Undo(ctx, which)
	for _, u := range undone {
		said = append(said, fmt.Sprintf("node/%s: %s, which %s had programmed in %s mode, removed", node,
			safetext.Line(strings.Join(u.Services, ", "), 500), safetext.Line(u.By, 100), safetext.Line(u.Mode, 20)))
		for _, what := range u.Left {
			said = append(said, fmt.Sprintf("node/%s: %s", node, safetext.Line(what, 1000)))
		}
	}
	if err == nil && len(undone) == 0 {
		said = []string{fmt.Sprintf("node/%s: no programmed path is left over", node)}
	}
	return said, err
}
