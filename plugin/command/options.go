// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"

	"github.com/spf13/cobra"
)

// usageTemplate is cobra's, but for the kubectl flags: as in kubectl itself, the command "options" lists them, and the
// help of a command shows what is its own.
const usageTemplate = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} [command]{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if or .IsAvailableCommand (eq .Name "help")}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if and .HasAvailableLocalFlags .HasParent}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}

"kubectl svcproxy options" lists the kubectl flags that every command takes (-n, --context, --kubeconfig, …).
`

func newOptionsCommand(width int) *cobra.Command {
	return &cobra.Command{
		Use:                   "options",
		Short:                 "List the kubectl flags that every command takes",
		DisableFlagsInUseLine: true,
		Args:                  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			cmd.Print("These flags can be given to every command:\n")
			for line := range strings.Lines(cmd.InheritedFlags().FlagUsages()) {
				for _, part := range fitUsage(strings.TrimSuffix(line, "\n"), width) {
					cmd.Print("\n" + part)
				}
			}
			cmd.Println()
		},
	}
}
