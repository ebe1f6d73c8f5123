// SPDX-License-Identifier: Apache-2.0

//go:build fleet

// Package fleet runs the plugin against a real API server with many Nodes. Their kubelets are simulated, in this
// process: what runs in containers there is the helper's real code, which reads the files of a captured node in place
// of a kernel's. Some nodes have a fault, and some do not answer.
//
// Environment:
//
//	PATH                     with etcd and kube-apiserver (test/cluster/cluster env)
//	FLEET_PLUGIN             the plugin's binary; bin/kubectl-svcproxy of this repository by default
//	SVCPROXY_FLEET_NODES     how many nodes there are; the nightly list has 1,000
//	SVCPROXY_FLEET_SERVICES  how many Services
package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// What a run takes at most where it is asserted, in the nightly list.
const (
	memory = 1 << 30
)

// outcome is what a run of the plugin has said and taken.
type outcome struct {
	code        int
	out, errOut string
	wall, cpu   time.Duration
	memory      int64 // bytes, at most at once
}

// run runs the plugin.
func run(t *testing.T, c *controlPlane, args ...string) outcome {
	t.Helper()
	plugin := os.Getenv("FLEET_PLUGIN")
	if plugin == "" {
		plugin = filepath.Join("..", "..", "bin", "kubectl-svcproxy")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, plugin, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	begun := time.Now()
	err := cmd.Run()
	if _, exit := errors.AsType[*exec.ExitError](err); err != nil && !exit {
		t.Fatal(err)
	}
	o := outcome{
		code: cmd.ProcessState.ExitCode(), out: out.String(), errOut: errOut.String(), wall: time.Since(begun),
		cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(),
	}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		o.memory = usage.Maxrss << 10
	}
	t.Logf("%s: %v, of which the plugin worked for %v; %d MB; exit code %d", strings.Join(args, " "),
		o.wall.Round(10*time.Millisecond), o.cpu.Round(10*time.Millisecond), o.memory>>20, o.code)
	return o
}

// helpers are those of all nodes.
type helpers struct {
	fleet map[string]*node
	texts texts

	mu    sync.Mutex
	calls int
}

func (h *helpers) serve(ctx context.Context, node string, in io.Reader, out io.Writer) error {
	h.mu.Lock()
	h.calls++
	h.mu.Unlock()
	return nodehelper.Serve(ctx, in, out, nodehelper.Options{
		Root: "/nonexistent", Build: os.Getenv("FLEET_BUILD"), Collect: h.texts.collectOf(h.fleet[node]),
	})
}

// TestFleet: status and verify say of all nodes what is so, in time.
func TestFleet(t *testing.T) {
	nodes := testutil.Count(t, "SVCPROXY_FLEET_NODES", 50)
	services := testutil.Count(t, "SVCPROXY_FLEET_SERVICES", 500)
	fleet := fleetOf(nodes)
	c := startControlPlane(t)
	h := &helpers{fleet: map[string]*node{}, texts: readTexts(t, services)}
	var answering []string
	for i := range fleet {
		h.fleet[fleet[i].name] = &fleet[i]
		if fleet[i].state != notReady {
			answering = append(answering, fleet[i].name)
		}
	}
	kubelets := startKubelets(t, answering, h.serve)
	c.makeObjects(t, fleet, kubelets.ports, services)
	if err := kubelets.run(t.Context(), c.client); err != nil {
		t.Fatal(err)
	}

	t.Run("pods", func(t *testing.T) {
		o := run(t, c, "verify", "-A", "--all-nodes", "--helper-namespace", helperNamespace, "-o", "json")
		checkVerify(t, fleet, &o)
	})
	c.makeHelpers(t, fleet)
	t.Run("waiting helpers", func(t *testing.T) {
		o := run(t, c, "verify", "-A", "--all-nodes", "--helper-namespace", helperNamespace, "-o", "json")
		checkVerify(t, fleet, &o)
	})
}

// checkVerify compares what verify says with what is so.
func checkVerify(t *testing.T, fleet []node, o *outcome) {
	t.Helper()
	var r report.Report
	if err := json.Unmarshal([]byte(o.out), &r); err != nil {
		t.Fatalf("%v\n%.2000s\n%.4000s", err, o.out, o.errOut)
	}
	if o.code != 1 {
		t.Errorf("exit code %d, want 1:\n%s", o.code, o.errOut)
	}
	var order, wrong, lost []string
	for i := range r.Nodes {
		n := &r.Nodes[i]
		order = append(order, n.Node)
		if n.Error != "" {
			lost = append(lost, n.Node)
			continue
		}
		if n.Verdict == report.Match {
			continue
		}
		wrong = append(wrong, n.Node)
		var found []string
		for k := range n.Paths {
			for _, f := range n.Paths[k].Findings {
				if f.Severity == report.Error {
					found = append(found, n.Paths[k].Service.Name+" "+f.Code)
				}
			}
		}
		slices.Sort(found)
		if found = slices.Compact(found); !slices.Equal(found, []string{faultyService + " MissingEndpoint"}) {
			t.Errorf("%s: %q", n.Node, found)
		}
	}
	want := named(fleet, right, broken, notReady, unwatched)
	if !slices.Equal(order, want) {
		t.Errorf("the nodes are %q, want %q", order, want)
	}
	if want := named(fleet, broken); !slices.Equal(wrong, want) {
		t.Errorf("wrong are %q, want %q", wrong, want)
	}
	if want := named(fleet, notReady); !slices.Equal(lost, want) {
		t.Errorf("not inspected are %q, want %q", lost, want)
	}
	checkShared(t, fleet, r.Patterns)
	if n := strings.Count(o.errOut, "\n"); n > 20 {
		t.Errorf("%d lines of errors:\n%.3000s", n, o.errOut)
	}
	t.Logf("on stderr:\n%.1500s", o.errOut)
}

// checkShared compares what the nodes with the finding share with what they do.
func checkShared(t *testing.T, fleet []node, patterns []report.Pattern) {
	t.Helper()
	if len(patterns) != 1 {
		t.Errorf("%d patterns, want one: %+v", len(patterns), patterns)
		return
	}
	p := &patterns[0]
	if want := named(fleet, broken); p.Code != "MissingEndpoint" || !slices.Equal(p.Nodes, want) {
		t.Errorf("%s on %q, want %q", p.Code, p.Nodes, want)
	}
	if len(p.Shared) != 1 || p.Shared[0].Property != "kernel" || p.Shared[0].Value != oldKernel {
		t.Errorf("they share %+v, want the kernel %s", p.Shared, oldKernel)
	}
}
