// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
)

// newHelpCommand is cobra's command help, with an error for what there is no help on.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:                   "help [COMMAND]",
		Short:                 "Show the help of a command",
		Example:               "  kubectl svcproxy help trace",
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeFirst(func(c *cobra.Command) []string { return commandNames(c.Root()) }),
		RunE: func(c *cobra.Command, args []string) error {
			topic, rest, err := c.Root().Find(args)
			if err != nil || len(rest) > 0 {
				topic := strings.Join(args, " ")
				return run.Usagef("there is no command %q%s (see %s --help)",
					topic, cluster.DidYouMean(topic, commandNames(c.Root())), name)
			}
			topic.InitDefaultHelpFlag()
			return topic.Help()
		},
	}
}

// commandNames returns the names of the commands that a person is shown.
func commandNames(root *cobra.Command) []string {
	var out []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			out = append(out, c.Name())
		}
	}
	return out
}
