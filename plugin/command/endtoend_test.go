// SPDX-License-Identifier: Apache-2.0

package command

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
)

// What --end-to-end needs is said, and nothing is read for what cannot be done.
func TestEndToEndNeedsAPod(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"trace web -n shop --end-to-end --snapshot " + broken, "give --from pod/NAME"},
		{"trace web -n shop --end-to-end --from node --snapshot " + broken, "give --from pod/NAME"},
		{"trace web -n shop --end-to-end --from 10.77.0.11 --snapshot " + broken, "is an address of a node"},
		{"trace web -n shop --all-endpoints --snapshot " + broken, "--all-endpoints is about --end-to-end"},
		{"trace web -n shop --end-to-end --from pod/x --local", "--local is one"},
		{"dump web --from pod/x -o x.tar.gz", "takes no argument"},
		{"dump --from pod/x --node n -o x.tar.gz", "--from is about --end-to-end"},
		{"dump --end-to-end --from pod/x -o x.tar.gz", "needs one Service"},
	} {
		code, _, stderr := runPlugin(t, strings.Fields(c.args)...)
		if code != run.ExitUsage || !strings.Contains(stderr, c.says) {
			t.Errorf("%s: %d %s", c.args, code, stderr)
		}
	}
}

// A snapshot without pods and without the endpoints' nodes is no MATCH from end to end: the segments say what is
// missing, and the client's node is judged as it is without the flag.
func TestEndToEndOfOneNode(t *testing.T) {
	args := "trace web -n shop --from pod/checkout-5f7d9c8b64-8rk2s --end-to-end --snapshot " + broken
	code, stdout, stderr := runPlugin(t, strings.Fields(args)...)
	if code != run.ExitMismatch {
		t.Fatalf("%d %s%s", code, stdout, stderr)
	}
	for _, want := range []string{
		"end to end", "client's pod", "its network namespace was not collected", "WRONG", "MissingEndpoint",
		"the node worker-2 was not read",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("it lacks %q:\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "MATCH:") && !strings.Contains(stdout, "MISMATCH:") {
		t.Error(stdout)
	}
}

// What was read on a cluster, with connections that were measured, is judged offline as it was there.
func TestEndToEndSnapshots(t *testing.T) {
	for _, c := range []struct {
		snapshot string
		code     int
		has      []string
	}{
		{"vxlan", run.ExitRight, []string{"MATCH: all 2 paths", "both ends of the network between them"}},
		{"forward-drop", run.ExitMismatch, []string{
			"EndpointNodeDrops  10.245.1.2:8080", "LOST HERE  dropped by filter FORWARD rule 1",
		}},
	} {
		args := "trace web -n shop --from pod/web-76bbf6d6cc-m4dxw --end-to-end --snapshot ../../testdata/endtoend/" +
			c.snapshot + ".tar.gz"
		code, stdout, stderr := runPlugin(t, strings.Fields(args)...)
		if code != c.code {
			t.Errorf("%s: %d %s%s", c.snapshot, code, stdout, stderr)
		}
		for _, want := range c.has {
			if !strings.Contains(stdout, want) {
				t.Errorf("%s lacks %q:\n%s", c.snapshot, want, stdout)
			}
		}
		if n := strings.Count(stdout, "LOST HERE"); n != 2*c.code {
			t.Errorf("%s: %d segments lose the packet:\n%s", c.snapshot, n, stdout)
		}
	}
}

// Nodes that connections from outside come in to are those chosen, and no more than are kept in memory.
func TestClientsOfEndToEnd(t *testing.T) {
	s, err := run.Open(run.Config{Snapshot: broken, Progress: run.NewProgress(terminal.NewStream(io.Discard, os.Getenv))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.ReadObjects(t.Context()); err != nil {
		t.Fatal(err)
	}
	from, err := s.FindOrigin(t.Context(), "203.0.113.9", "shop")
	if err != nil {
		t.Fatal(err)
	}
	many := make([]string, run.MaxEndNodes+1)
	if _, err := clients(from, "203.0.113.9", many); err == nil || !strings.Contains(err.Error(), "17 were chosen") {
		t.Error(err)
	}
	if got, err := clients(from, "203.0.113.9", many[1:]); err != nil || len(got) != run.MaxEndNodes {
		t.Error(got, err)
	}
}

// What was read on a cluster of connections from outside, that were measured, is judged offline as it was there.
func TestEndToEndFromOutsideSnapshots(t *testing.T) {
	for _, c := range []struct {
		args, snapshot string
		code, lost     int
		has            []string
	}{
		{"lb -n shop --node node1", "outside", run.ExitRight, 0, []string{
			"health check", "expected: 200, as 1 ready endpoint is on this node", "leaves for 10.79.0.1 by eth0",
			"not judged: programs of tc and BPF, also of pod shop/web-76bbf6d6cc-gzkbm, node node2 and 3 more (programs.txt), " +
				"stopped processes of pod shop/web-76bbf6d6cc-gzkbm, pod shop/web-76bbf6d6cc-pr9bh and pod " +
				"shop/web-76bbf6d6cc-5lw86 (stopped.txt), what the node answers to health checks (--live asks), what is " +
				"between the client and the node",
		}},
		{"node1:30350", "outside-kept", run.ExitMismatch, 2, []string{
			"Impact   MISMATCH: 2 of 3 connections to shop/web from 10.79.0.1 fail: the answer does not come back\n",
			"MISMATCH  Shadowed  10.245.1.2:8080, 10.245.2.2:8080\n",
			"the answer goes directly to 10.79.0.1",
		}},
	} {
		args := "trace " + c.args + " --from 10.79.0.1 --end-to-end --snapshot ../../testdata/endtoend/" + c.snapshot +
			".tar.gz"
		code, stdout, stderr := runPlugin(t, strings.Fields(args)...)
		if code != c.code {
			t.Errorf("%s: %d %s%s", c.snapshot, code, stdout, stderr)
		}
		for _, want := range c.has {
			if !strings.Contains(stdout, want) {
				t.Errorf("%s lacks %q:\n%s", c.snapshot, want, stdout)
			}
		}
		if n := strings.Count(stdout, "LOST HERE"); n != c.lost {
			t.Errorf("%s: %d segments lose the packet:\n%s", c.snapshot, n, stdout)
		}
	}
}

// A pod whose container crashes is an endpoint where the Service publishes addresses that are not ready: that nobody
// listens is said with what the API says of the container.
func TestEndToEndCrashLoop(t *testing.T) {
	args := "trace crash -n shop --from pod/web-76bbf6d6cc-76zpd --end-to-end --snapshot " +
		"../../testdata/endtoend/crash-loop.tar.gz"
	code, stdout, stderr := runPlugin(t, strings.Fields(args)...)
	if code != run.ExitMismatch {
		t.Errorf("%d %s%s", code, stdout, stderr)
	}
	for _, want := range []string{
		"EndpointNotListening  10.245.0.8:8080", "container echo does not run: CrashLoopBackOff (exit code 1, Error), 11 " +
			"restarts", "kubectl describe -n shop pod/crash", "LOST HERE",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("it lacks %q:\n%s", want, stdout)
		}
	}
}
