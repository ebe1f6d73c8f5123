// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
				return run.Usagef("there is no command %q%s (see %s --help)",
					args[0], cluster.DidYouMean(args[0], commandNames(c.Root())), name)
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

// meantFlag says which flag of a command may have been meant, where the error is that there is none of that name.
func meantFlag(c *cobra.Command, err error) string {
	missing, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || len(missing.GetSpecifiedName()) < 2 {
		return ""
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	})
	return cluster.DidYouMean("--"+missing.GetSpecifiedName(), names)
}
