// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
)

// confirm lists what a question is about, and asks for confirmation, unless that is given by --yes. If standard input
// is no terminal, the error is a usage error with the text of otherwise; if the answer is no, too.
func confirm(env *environment, yes bool, otherwise string, about func() []string, question string) error {
	if yes {
		return nil
	}
	in, ok := env.in.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return run.Usagef("%s", otherwise)
	}
	for _, line := range about() {
		env.errOut.Line("%s", line)
	}
	env.errOut.Prompt("%s [y/N]", question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		return err
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return run.Usagef("nothing was done")
	}
	return nil
}
