// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/test/tenant"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// An agent ends while a pass does something that nothing can interrupt.
func TestAnAgentEndsDuringAPass(t *testing.T) {
	c := capture(t, "real-2node-iptables", "node1")
	a := c.agent(t)
	reading, never := make(chan struct{}), make(chan struct{})
	defer close(never)
	a.Read = func(context.Context) (*snapshot.Node, error) {
		close(reading)
		<-never
		return nil, errors.New("the test is over")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	<-reading
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}

// A pass that takes too much memory, or is told to end, is ended, and says so: nothing is claimed of the node.
func TestAPassThatIsEnded(t *testing.T) {
	c := capture(t, "real-2node-iptables", "node1")
	a := c.agent(t)
	var lines []string
	a.Log = func(line string) { lines = append(lines, line) }
	a.inUse = func() uint64 { return passMemory + 1 }
	a.Read = func(ctx context.Context) (*snapshot.Node, error) {
		<-ctx.Done()
		return c.node, nil
	}
	a.pass(t.Context(), reasonAPI)
	if want := "the node was not judged: " + errPassMemory.Error(); len(lines) != 1 || !strings.Contains(lines[0], want) {
		t.Errorf("%q, want %q", lines, want)
	}
	if v := exposed(t, a.Handler()); v[failuresMetric] != "1" {
		t.Errorf("%s is %q", failuresMetric, v[failuresMetric])
	}
	a.inUse = func() uint64 { return 0 }
	a.Read = func(context.Context) (*snapshot.Node, error) { return c.node, nil }
	a.pass(t.Context(), reasonAPI)
	if v := exposed(t, a.Handler()); v[failuresMetric] != "1" || v[notJudgedMetric] != "0" {
		t.Errorf("the next pass: %q, %q", v[failuresMetric], v[notJudgedMetric])
	}
}

// A Service that is too large to be judged is exported as not judged, and nothing else is lost.
func TestAServiceThatIsNotJudgedIsExported(t *testing.T) {
	c := capture(t, "real-2node-iptables", "node1")
	passed := func() (got map[string]string, findings []string) {
		a := c.agent(t)
		look(t, a, 0)
		state, err := nodestate.LoadToCompare(c.node)
		if err != nil {
			t.Fatal(err)
		}
		r := a.judge(t.Context(), state)
		for _, f := range publishedOf(&r, &a.settler) {
			findings = append(findings, f.Code+" "+f.Namespace+"/"+f.Service+" "+string(f.Severity))
		}
		return exposed(t, a.Handler()), findings
	}
	before, findings := passed()
	i := slices.IndexFunc(tenant.Cases, func(x tenant.Case) bool { return x.Name == "1,000 ports, 1,000 external IPs" })
	o := tenant.Cases[i].Make()
	c = capture(t, "real-2node-iptables", "node1", o)
	after, more := passed()
	if before[notJudgedMetric] != "0" || after[notJudgedMetric] != "1" {
		t.Errorf("%s was %q, and is %q", notJudgedMetric, before[notJudgedMetric], after[notJudgedMetric])
	}
	want := append(slices.Clone(findings), judge.NotJudged+" "+tenant.Namespace+"/t0000 "+string(report.Info))
	slices.Sort(want)
	if !slices.Equal(slices.Sorted(slices.Values(more)), want) {
		t.Errorf("published: %q, want %q", more, want)
	}
	same := func(m map[string]string) map[string]string {
		m = maps.Clone(m)
		maps.DeleteFunc(m, func(name, _ string) bool {
			return !strings.HasPrefix(name, pathsMetric) && !strings.HasPrefix(name, findingsMetric) ||
				strings.Contains(name, `"`+string(report.Unknown)+`"`)
		})
		return m
	}
	if x, y := same(before), same(after); !maps.Equal(x, y) {
		t.Errorf("paths and findings were %v, and are %v", x, y)
	}
}
