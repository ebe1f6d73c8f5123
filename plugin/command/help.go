// SPDX-License-Identifier: Apache-2.0

package command

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/svcproxy/kubectl-svcproxy/docs"
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
				if f, ok := docs.FindingOf(topic); ok {
					return run.Usagef("%q is a finding: %s explain %s", topic, name, f.Code)
				}
				return run.Usagef("there is no command %q%s (see %s --help)",
					topic, cluster.DidYouMean(topic, commandNames(c.Root())), name)
			}
			topic.InitDefaultHelpFlag()
			return topic.Help()
		},
	}
}

// isHelp tells whether a word stands for the command help, which cobra does not count among those that may be meant.
func isHelp(word string) bool {
	return slices.Contains([]string{"usage", "manual", "?", "/?", "h"}, word) ||
		cluster.DidYouMean(word, []string{"help"}) != ""
}

// checkShells makes the command completion, which cobra makes, refuse shells that it does not know.
func checkShells(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	c, _, err := root.Find([]string{"completion"})
	if err != nil {
		return
	}
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		shells := commandNames(c)
		return run.Usagef("there is no completion for %q: the shell may be %s%s", args[0], strings.Join(shells, ", "),
			cluster.DidYouMean(args[0], shells))
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
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
