// SPDX-License-Identifier: Apache-2.0

// Package plugin is the person's side of kubectl svcproxy: the commands, with one options struct each. A command asks a
// cluster.Source for the cluster's objects and an Inspector for what its nodes hold, lets trace/diagnose judge them, and has
// plugin/report print the result.
package plugin

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
)

// name is what a person types.
const name = "kubectl svcproxy"

// System is what only the main program has.
type System struct {
	// Serve answers for --local: nodehelper.Serve; nil where this system cannot be a node.
	Serve launch.Serve
	// Program is the path of this program, to be run once more as the watchdog of helper pods; empty: there is none.
	Program string
}

// Main runs the plugin and returns its exit code.
func Main(ctx context.Context, args []string, streams genericiooptions.IOStreams, system System) int {
	cmd := NewCommand(streams, system)
	cmd.SetArgs(args)
	return exit(ctx, cmd.ExecuteContext(ctx), streams.ErrOut)
}

// shared is what all commands have in common.
type shared struct {
	genericiooptions.IOStreams
	kube   *genericclioptions.ConfigFlags
	getenv func(string) string
	system System
}

// NewCommand makes the command tree.
func NewCommand(streams genericiooptions.IOStreams, system System) *cobra.Command {
	s := &shared{IOStreams: streams, kube: genericclioptions.NewConfigFlags(true), getenv: os.Getenv, system: system}
	cmd := &cobra.Command{
		Use:   "kubectl-svcproxy",
		Short: "Say what a node's kernel really does with a packet to a Service",
		Long: `Say, for a Service and a node, what the node's kernel really does with a packet to it, what kube-proxy should have made it do,
and where and why the two differ.

The exit code is 0 where the path is right (refused by design included), 1 at a mismatch, 2 for wrong usage or unreadable
input, 3 where something could not be inspected, so that nothing is claimed, 4 where there are only warnings, and 130 when
interrupted. The worst that was seen counts, in the order 1, 3, 4, 0.`,
		Example: `  # Where do packets to the Service web go on worker-2, and should they?
  kubectl svcproxy trace web -n shop --node worker-2

  # Is any Service wrong anywhere?
  kubectl svcproxy verify -A --all-nodes

  # Keep what was found, and look again without the cluster
  kubectl svcproxy dump --node worker-2 -o dump.tar.gz
  kubectl svcproxy verify -A --snapshot dump.tar.gz`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: name},
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noSuchCommand,

		SuggestionsMinimumDistance: 2,

		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetOut(streams.Out)
	cmd.SetErr(streams.ErrOut)
	cmd.SetIn(streams.In)
	cmd.SetUsageTemplate(usageTemplate)
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef("%w (see %s --help)", err, c.CommandPath())
	})
	s.kube.AddFlags(cmd.PersistentFlags())
	addLogFlags(cmd.PersistentFlags())
	cmd.AddCommand(newTraceCommand(s), newVerifyCommand(s), newModeCommand(s), newResolveCommand(s), newDumpCommand(s), newProgramCommand(s), newCleanupCommand(s),
		newVersionCommand(s), newOptionsCommand(), newWatchdogCommand())
	s.addCompletions(cmd)
	return cmd
}

// noSuchCommand answers to a word that is no command. The likeliest is the name of a Service.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("%q is no command: did you mean %s %s?", args[0], name, strings.Join(near, " or "))
	}
	return usagef("%q is no command; for a Service of that name: %s trace %s (see %s --help)", args[0], name, args[0], name)
}

// namespace returns that of -n, else that of the kubeconfig. With a snapshot no cluster is asked, so a kubeconfig that cannot be
// read matters only when it was named; without one, making the client complains.
func (s *shared) namespace() (string, error) {
	if ns := *s.kube.Namespace; ns != "" {
		return ns, nil
	}
	ns, _, err := s.kube.ToRawKubeConfigLoader().Namespace()
	if err == nil {
		return ns, nil
	}
	if *s.kube.KubeConfig != "" {
		return "", err
	}
	return "default", nil
}
