// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
)

// cleanupOptions are those of the command cleanup.
type cleanupOptions struct {
	*shared
	helper  helperOptions
	running bool
}

func newCleanupCommand(s *shared) *cobra.Command {
	o := &cleanupOptions{shared: s}
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove the helper pods that a dead run left behind",
		Long: `Remove the helper pods that a run left behind whose machine was switched off, or lost its connection for good. Nothing needs this
after an ordinary run, after ^C, or after the plugin was killed: helper pods are removed then, too.

Pods that are still in use, or that --keep left, stay, unless --running asks for them.`,
		Example: `  kubectl svcproxy cleanup

  # Also what is running, and what --keep left
  kubectl svcproxy cleanup --running`,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("cleanup takes no argument, and got %s", shorten(args))
			}
			if err := o.helper.validate(false, cmd.Flags()); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	o.helper.addNamespaceFlag(cmd.Flags())
	_ = cmd.RegisterFlagCompletionFunc("helper-namespace", s.completeNamespaces)
	cmd.Flags().BoolVar(&o.running, "running", false, "Remove also helper pods that are in use, by whomever, and those that --keep left")
	return cmd
}

// Run removes pods, and names them.
func (o *cleanupOptions) Run(ctx context.Context) error {
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
	removed, err := l.Sweep(ctx, which)
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
