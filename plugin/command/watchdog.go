// SPDX-License-Identifier: Apache-2.0

package command

import (
	"github.com/spf13/cobra"

	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
)

// watchdogCommand is the hidden command of the process that removes helper pods when the plugin itself is killed.
const watchdogCommand = "__watchdog"

func newWatchdogCommand() *cobra.Command {
	return &cobra.Command{
		Use:    watchdogCommand,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return launch.Watchdog(cmd.Context(), cmd.InOrStdin()) },
	}
}

// watchdog is the command line of that process; nil where there is no program for it.
func (e *environment) watchdog() []string {
	if e.system.Program == "" {
		return nil
	}
	return []string{e.system.Program, watchdogCommand}
}
