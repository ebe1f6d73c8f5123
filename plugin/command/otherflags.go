// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
)

// usedFlags are those of kubectl that people give to this program.
var usedFlags = []string{"namespace", "context", "kubeconfig", "cluster", "user", "server"}

// meantFlag says which flag of a command may have been meant, where there is none of a name. One that only kubectl has
// is meant by nearly its own name alone: most of them are about credentials.
func meantFlag(c *cobra.Command, flag string) string {
	if len(flag) < 2 {
		return ""
	}
	var ours, kubectls []string
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			ours = append(ours, f.Name)
		}
	})
	c.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		kubectls = append(kubectls, f.Name)
	})
	meant := cluster.DidYouMean(flag, append(ours, usedFlags...))
	if meant == "" && len(flag) > 5 {
		meant = cluster.DidYouMean(flag, kubectls)
	}
	words := strings.Fields(meant)
	for i, word := range words {
		if name := strings.TrimSuffix(word, "?"); c.Flags().Lookup(name) != nil {
			words[i] = "--" + word
		}
	}
	if words == nil {
		return ""
	}
	return strings.Join(words, " ")
}
