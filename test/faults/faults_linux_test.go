// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// effect is how many of the connections fail.
type effect string

const (
	none effect = "none" // a trap: it looks like a fault
	some effect = "some" // mostly those to one of three endpoints
	all  effect = "all"
)

// fault is a fault, or a trap.
type fault struct {
	name string
	make string // a script (scene.script)
	// policy is a rule that is made behind the script.
	policy policy
	then   string // one that is run behind the connections, before the node is read
	from   string // "" is a pod of the node, "node", "endpoint" (a pod that is one), "outside"
	v6     bool
	// large: connections send much more than fits into a packet.
	large bool
	// udp: to the Service of UDP; nodePort: to the NodePort of the node's own address.
	udp, nodePort bool
	toEnd         bool // they read to the end of the answer

	fails effect
	named string // a regular expression, (?i), for what the findings must say
	// unknownToo: nothing fails now, and Unknown, or a warning, is right, too. mismatch: Unknown is not enough.
	unknownToo, mismatch bool
	varies               bool // how many fail
}

func TestMain(m *testing.M) { testutil.SideBySide(m, 6) }

// How many of the lists are made (testutil.OneIn): one in so many.
const (
	ofShort = 6
	ofLong  = 24
)

func shortFaults() []fault {
	return slices.Concat(
		resolutionFaults(), neighbourFaults(), policyFaults(), routeFaults(), socketFaults(), deviceFaults(), stateFaults(),
		sizeFaults(), portFaults(), nextHopFaults(), queueFaults(), arptablesFaults(),
		fieldFaults(), onwardFaults(), secondLinkFaults(), askingFaults(), betweenFaults(),
		sourceFaults(), unprintedFaults(), returnFaults(), detourFaults(), gatewayFaults(),
		ipsecFaults(), assortedFaults(), conditionFaults(), rangeFaults(),
		guardFaults(), routeTypeFaults(), scopeFaults(), pairFaults(), tunnelFaults(), mixedFaults(),
	)
}

func longFaults() []fault {
	return slices.Concat(
		verdictFaults(), combinedFaults(), bridgeFaults(), trackingFaults(), mistakeFaults(), headerFaults(), markFaults(),
		settingFaults(), statementFaults(), missFaults(), elementFaults(),
	)
}

// TestFaults makes each of them on a node of its own.
func TestFaults(t *testing.T) {
	testutil.Long(t)
	for _, list := range []struct {
		faults []fault
		of     int
	}{{shortFaults(), ofShort}, {longFaults(), ofLong}} {
		for i := range list.faults {
			if !testutil.OneIn(list.of, i) {
				continue
			}
			f := &list.faults[i]
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				if f.alone(t) {
					f.try(t)
				}
			})
		}
	}
}

// TestNothingIsWrong: a node without a fault is a match.
func TestNothingIsWrong(t *testing.T) {
	testutil.Long(t)
	for _, f := range []fault{
		{name: "pod", fails: none},
		{name: "node", from: "node", fails: none},
		{name: "endpoint", from: "endpoint", fails: none},
		{name: "pod, IPv6", v6: true, fails: none},
		{name: "node, IPv6", from: "node", v6: true, fails: none},
		{name: "nobody knows a neighbour", make: "forget", fails: none},
		{name: "nobody knows a neighbour, IPv6", make: "forget", v6: true, fails: none},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			if f.alone(t) {
				f.try(t)
			}
		})
	}
}

// alone tells whether the test runs in a network namespace of its own, as [testutil.Isolate] does.
func (f *fault) alone(t *testing.T) bool {
	t.Helper()
	tools := []string{"ip", "bridge", "nft", "nsenter", "iptables-nft-restore"}
	for _, tool := range []string{"arptables-legacy", "nfacct"} {
		if strings.Contains(f.make, tool) {
			tools = append(tools, tool)
		}
	}
	return testutil.Isolate(t, unix.CLONE_NEWNET, tools...)
}

func (f *fault) try(t *testing.T) {
	t.Helper()
	s := build(t)
	testutil.Run(t, "", "bash", "-c", s.script(t)+f.make)
	if f.policy != nil {
		f.policy.add(t, f.v6)
	}
	failed, why := s.connect(t, f)
	for n := 1; n < rounds && f.fails == some && failed == 0 && !f.varies; n++ {
		failed, why = s.connect(t, f)
	}
	if f.fails == none && failed > 0 {
		// A machine that is busy may keep a connection waiting for longer than a lost segment does.
		t.Logf("of %d connections %d fail, where none is to (%s): once more", connections, failed, why)
		failed, why = s.connect(t, f)
	}
	got := some
	switch failed {
	case 0:
		got = none
	case connections:
		got = all
	}
	if got != f.fails && !f.varies {
		t.Errorf("of %d connections %d fail, want %s: %s", connections, failed, f.fails, why)
	}
	counted := rules(t)
	if f.then != "" {
		testutil.Run(t, "", "bash", "-c", s.script(t)+f.then)
	}
	r := s.judge(t, f)
	if len(r.Paths) != 1 {
		t.Fatalf("%d paths; %s", len(r.Paths), r.Error)
	}
	p := &r.Paths[0]
	said := fmt.Sprintf("%d of %d connections fail (%s), and it is %s (node %s)%s", failed, connections, why, p.Verdict,
		r.Verdict, findings(r, func(report.Severity) bool { return true }))
	switch {
	case failed == 0 && f.unknownToo && (p.Verdict == report.Unknown || p.Verdict == report.Warning):
	case failed == 0 && (p.Verdict != report.Match || r.Verdict != report.Match):
		t.Error(said)
	case failed == 0:
	case p.Verdict == report.Match, f.mismatch && p.Verdict != report.Mismatch:
		t.Error(said)
	case !regexp.MustCompile("(?i)" + f.named).MatchString(accused(r)):
		t.Errorf("nothing that makes it %s names %s: %s", p.Verdict, f.named, said)
	case counted.idle(r, f.v6) != "":
		t.Errorf("no packet has come to the rule of %s: %s", counted.idle(r, f.v6), said)
	}
	t.Log(said)
}

// accused is what is said by the findings that the verdict of the path comes from: what a note or a warning names
// beside them is not what the connections fail by.
func accused(r *report.NodeReport) string {
	return findings(r, func(s report.Severity) bool {
		switch r.Paths[0].Verdict {
		case report.Mismatch:
			return s == report.Error
		case report.Warning:
			return s != report.Info
		}
		return true
	})
}

// findings are those of the path and of the node that have such a severity, with their commands and evidence.
func findings(r *report.NodeReport, which func(report.Severity) bool) string {
	var b strings.Builder
	for _, list := range [][]report.Finding{r.Paths[0].Findings, r.Findings} {
		for i := range list {
			x := &list[i]
			if !which(x.Severity) {
				continue
			}
			fmt.Fprintf(&b, "\n%s %s %s: %s", x.Severity, x.Code, x.Subject, x.Message)
			for _, c := range x.Commands {
				fmt.Fprintf(&b, "\n    %s (%s)", c.Line, c.When)
			}
			for _, e := range x.Evidence {
				fmt.Fprintf(&b, "\n    %+v %s", e.Where, e.Text)
			}
		}
	}
	return b.String()
}
