// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
)

// On a terminal of 60 columns every row of verify's table fits into a line: a status that is cut is not seen.
func TestVerifyFitsANarrowTerminal(t *testing.T) {
	const columns = 60
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	env := newEnvironment(streams, System{})
	env.out = terminal.Live(out, terminal.Style{Width: columns})
	cmd := newRoot(env)
	cmd.SetArgs([]string{"verify", "-n", "shop", "--snapshot", broken})
	if err := cmd.Execute(); err == nil {
		t.Fatal("nothing is wrong")
	}
	_, table, ok := strings.Cut(out.String(), "SERVICE ")
	table, _, _ = strings.Cut("SERVICE "+table, "\n\n")
	if !ok || strings.Count(table, "MissingEndpoint") < 4 {
		t.Errorf("no table with its statuses:\n%s", out)
	}
	for line := range strings.Lines(table) {
		if w := plaintext.Width(strings.TrimSpace(line)); w > columns {
			t.Errorf("%d columns: %q", w, line)
		}
	}
}
