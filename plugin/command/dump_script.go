// SPDX-License-Identifier: Apache-2.0

package command

import (
	_ "embed" // the script
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// collectScript is a script of a POSIX shell that writes the files of a node, for nodes where nothing else may be run.
//
//go:embed dump.sh
var collectScript string

// writeScript writes the script that --script asks for. No cluster is contacted.
func (o *dumpOptions) writeScript(env *environment, cmd *cobra.Command, args []string) error {
	var other string
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && !slices.Contains([]string{"script", "node", "output"}, f.Name) {
			other = f.Name
		}
	})
	if err := checkFile(o.output); err != nil {
		return err
	}
	switch {
	case other != "":
		return run.Usagef("--script prints a script and reads nothing: leave out --%s", other)
	case o.output == "" && cmd.Flags().Changed("output"):
		return run.Usagef("-o is empty: give the name of a file, or - for standard output")
	case len(args) > 0:
		return run.Usagef("dump --script takes no argument, and got %s", run.Shorten(args))
	case len(o.nodes.nodes) > 1:
		return run.Usagef("dump --script is for one node: give --node once, or not at all, which leaves the name to the node")
	}
	node := ""
	if len(o.nodes.nodes) == 1 {
		node = cluster.NodeName(o.nodes.nodes[0])
		if err := snapshot.CheckNodeName(node); err != nil {
			return run.Usagef("--node: %w", err)
		}
	}
	all, alone := kubeproxy.FlagNames()
	text := strings.NewReplacer("@NODE@", node, "@FLAGS@", strings.Join(all, " "), "@BOOLS@", strings.Join(alone, " ")).
		Replace(collectScript)
	if o.output == "" || o.output == "-" {
		return env.out.Document([]byte(text))
	}
	if err := writeWhole(o.output, env.out, strings.NewReader(text)); err != nil {
		return run.Usagef("cannot write the script: %w", err)
	}
	return nil
}
