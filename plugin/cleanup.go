// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
)

// cleanupOptions are those of the command cleanup.
type cleanupOptions struct {
	*shared
	targetOptions
	running bool
}

func newCleanupCommand(s *shared) *cobra.Command {
	o := &cleanupOptions{shared: s}
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove helper pods and programmed paths that a dead run left behind",
		Long: `Remove the helper pods that a run left behind whose machine was switched off, or lost its connection for good; and on the nodes that
--node, -l or --all-nodes name, the paths that a helper programmed which is gone. Nothing needs this after an ordinary run, after ^C, or after the
plugin was killed: helper pods are removed then, too, and programmed paths end at their time.

Pods that are still in use, or that --keep left, and paths whose time is not over, stay, unless --running asks for them.`,
		Example: `  kubectl svcproxy cleanup

  # Also what is running, and what --keep left
  kubectl svcproxy cleanup --running

  # End what is programmed on a node, whoever did it
  kubectl svcproxy cleanup --running --node worker-2`,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("cleanup takes no argument, and got %s", shorten(args))
			}
			if err := o.validate(); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	o.addFlags(cmd, s)
	for _, hidden := range []string{"snapshot", "dry-run", "keep"} {
		_ = cmd.Flags().MarkHidden(hidden)
	}
	cmd.Flags().BoolVar(&o.running, "running", false, "Remove also helper pods that are in use, by whomever, those that --keep left, and paths whose time is not over")
	return cmd
}

func (o *cleanupOptions) validate() error {
	if o.snapshot != "" {
		return usagef("cleanup works on a cluster, and --snapshot is none")
	}
	return o.targetOptions.validate()
}

// Run removes pods and paths, and names them.
func (o *cleanupOptions) Run(ctx context.Context) error {
	if !o.chosen() {
		return o.removePods(ctx, nil)
	}
	return o.run(ctx, o.shared, "", func(ctx context.Context, sc *scene) error {
		if err := sc.readObjects(ctx, o.what()); err != nil {
			return err
		}
		nodes, err := o.choose(sc, nil)
		if err != nil {
			return err
		}
		var errs []error
		if !o.helper.local {
			errs = append(errs, o.removePods(ctx, nodes))
		}
		return errors.Join(append(errs, o.undoAll(ctx, sc, nodes))...)
	})
}

func (o *cleanupOptions) removePods(ctx context.Context, nodes []string) error {
	client, config, err := o.client()
	if err != nil {
		return err
	}
	l, err := launch.New(launch.Options{Config: config, Client: client, Run: launch.NewRun(), Namespace: o.helper.namespace, Timeout: o.helper.timeout})
	if err != nil {
		return usagef("%w", err)
	}
	which := launch.Leftovers
	if o.running {
		which = launch.All
	}
	ctx, cancel := context.WithTimeout(ctx, o.helper.timeout)
	defer cancel()
	removed, err := l.Sweep(ctx, which, nodes)
	for _, p := range removed {
		fmt.Fprintf(o.Out, "pod/%s -n %s removed (node %s)\n", p.Name, p.Namespace, p.Spec.NodeName)
	}
	if err != nil {
		return codeError{ExitNotInspected, err}
	}
	if len(removed) == 0 {
		fmt.Fprintf(o.Out, "no helper pod in namespace %s is left over\n", o.helper.namespace)
	}
	return nil
}

// undoAll takes programmed paths away, on each of the nodes.
func (o *cleanupOptions) undoAll(ctx context.Context, sc *scene, nodes []string) error {
	which := wire.UndoDead
	if o.running {
		which = wire.UndoAll
	}
	lines, errs := make([]string, len(nodes)), make([]error, len(nodes))
	sc.each(nodes, func(i int, node string) { lines[i], errs[i] = undoOn(ctx, sc, node, which) })
	sc.progress.done()
	for _, l := range lines {
		fmt.Fprint(o.Out, l)
	}
	if err := errors.Join(errs...); err != nil {
		return codeError{ExitNotInspected, err}
	}
	return nil
}

// undoOn takes away what is programmed on a node, and says what that was.
func undoOn(ctx context.Context, sc *scene, node, which string) (said string, err error) {
	session, err := sc.nodes.(programmer).Session(ctx, node) //nolint:forcetypeassert // a cluster's are
	if err != nil {
		return "", err
	}
	undone, err := session.Undo(ctx, which)
	for _, u := range undone {
		said += fmt.Sprintf("node/%s: %s, which %s had programmed in %s mode, taken away\n", node, wire.Printable(strings.Join(u.Services, ", "), 500), wire.Printable(u.By, 100), wire.Printable(u.Mode, 20))
	}
	if err == nil && len(undone) == 0 {
		said = fmt.Sprintf("node/%s: no programmed path is left over\n", node)
	}
	return said, errors.Join(err, session.Close())
}
