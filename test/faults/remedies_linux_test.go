// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// ofRemedies is how many of the faults' remedies are run (testutil.OneIn).
const ofRemedies = 40

// inNamespace are the programs that change nothing but the network namespace that they run in.
var inNamespace = regexp.MustCompile(`^((ip|bridge|tc|nft|ip6?tables[a-z-]*) |sysctl (-w )?net[./])`)

// TestRemediesAreTaken runs the commands that findings name, each fault's on the node that has it: they are commands
// that the kernel takes. A person pastes those without a condition, and those of one condition.
func TestRemediesAreTaken(t *testing.T) {
	testutil.Long(t)
	list := slices.DeleteFunc(slices.Concat(shortFaults(), longFaults()), func(f fault) bool { return f.fails == none })
	for i := range list {
		if !testutil.OneIn(ofRemedies, i) {
			continue
		}
		f := &list[i]
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			if f.alone(t) {
				f.paste(t)
			}
		})
	}
}

// paste makes a fault, and runs the commands of each finding until one of them changes something: what others say may
// then no longer be so.
func (f *fault) paste(t *testing.T) {
	t.Helper()
	s := build(t)
	testutil.Run(t, "", "bash", "-c", s.script(t)+f.make)
	if f.fails == some {
		s.connect(t, f)
	}
	if f.then != "" {
		testutil.Run(t, "", "bash", "-c", s.script(t)+f.then)
	}
	r := s.judge(t, f)
	for _, findings := range [][]report.Finding{r.Paths[0].Findings, r.Findings} {
		for i := range findings {
			if changed := paste(t, &findings[i]); changed {
				return
			}
		}
	}
}

// changing is what a command says that changes something.
var changing = regexp.MustCompile(`\b(add|del|delete|replace|set|flush|append|change|insert)\b|sysctl -w|-[DIAFPX] `)

func paste(t *testing.T, of *report.Finding) (changed bool) {
	t.Helper()
	when := ""
	for _, c := range of.Commands {
		if when == "" {
			when = c.When
		}
		program, _, _ := strings.Cut(c.Line, " ")
		if _, err := exec.LookPath(program); err != nil || c.Node == "" || c.When != "" && c.When != when ||
			!inNamespace.MatchString(c.Line) {
			continue
		}
		changed = changed || changing.MatchString(c.Line)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", c.Line).CombinedOutput()
		if err != nil && !(strings.Contains(c.Line, "route get ") && strings.HasPrefix(string(out), "RTNETLINK answers: ")) {
			t.Errorf("%s: %s (%s): %v: %s", of.Code, c.Line, c.When, err, out)
		}
	}
	return changed
}
