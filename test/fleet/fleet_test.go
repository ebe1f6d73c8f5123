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
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/maruel/natural"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/collect"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// mostMemory is how much memory a run may take, in bytes.
const mostMemory = 1 << 30

// manyNodes is from how many nodes on the times of runs are compared with what they may take.
const manyNodes = 1000

// within fails a test whose run has taken too long. Where the processors are wanted by others it may take longer.
func within(t *testing.T, fleet []node, o *outcome, most time.Duration) {
	t.Helper()
	if len(fleet) < manyNodes {
		return
	}
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	load, err := strconv.ParseFloat(strings.Fields(string(data))[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	// The run itself, and what serves it, keep both busy.
	most = time.Duration(float64(most) * max(1, load/float64(runtime.NumCPU())-1))
	if o.wall > most {
		t.Errorf("it took %v, and may take %v with a load of %v", o.wall, most, load)
	}
}

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
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, plugin(), args...)
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
	if o.memory > mostMemory {
		t.Errorf("it took %d MB, %d at most were expected", o.memory>>20, mostMemory>>20)
	}
	t.Logf("%s: %v, of which the plugin worked for %v; %d MB; exit code %d", strings.Join(args, " "),
		o.wall.Round(10*time.Millisecond), o.cpu.Round(10*time.Millisecond), o.memory>>20, o.code)
	return o
}

// helpers are those of all nodes.
type helpers struct {
	fleet map[string]*node
	texts texts
	build string

	mu     sync.Mutex
	read   map[string]int // by node: how often its files were sent
	judged map[judgedAs]*judgement
	bytes  int64 // of all streams
	// processors are those of this machine, which judges for all nodes.
	processors chan struct{}
	working    time.Duration // processor time of judgements
}

// judgedAs is what a judgement goes by. Of nodes that are right one is judged, as this machine has not the processors
// of all of them.
type judgedAs struct {
	node string            // "" for all that are right
	by   [sha256.Size]byte // the objects
}

type judgement struct {
	once sync.Once
	*nodehelper.Judgement

	err error
}

// serve is a helper's process.
func (h *helpers) serve(ctx context.Context, name string, in io.Reader, out io.Writer) error {
	of := h.fleet[name]
	read := func(_ context.Context, c collect.Options, emit func(collect.File) error) error {
		return h.texts.collect(of, c, emit)
	}
	o := nodehelper.Options{
		Root: "/nonexistent", Build: h.build,
		Collect: func(ctx context.Context, c collect.Options, emit func(collect.File) error) error {
			h.mu.Lock()
			h.read[name]++
			h.mu.Unlock()
			return read(ctx, c, emit)
		},
		Judge: func(ctx context.Context, p *wire.JudgeParams) (*nodehelper.Judgement, error) {
			return h.judge(ctx, of, nodehelper.Options{Collect: read}, p)
		},
	}
	sent := &counted{r: in, w: out}
	defer func() {
		h.mu.Lock()
		h.bytes += sent.n.Load()
		h.mu.Unlock()
	}()
	return nodehelper.Serve(ctx, sent, sent, o)
}

// judge judges a node, of those that are right the first one, and says the same of the others.
func (h *helpers) judge(
	ctx context.Context, of *node, o nodehelper.Options, p *wire.JudgeParams,
) (*nodehelper.Judgement, error) {
	key := judgedAs{by: sha256.Sum256(p.Objects)}
	if of.state == broken {
		key.node = of.name
	}
	h.mu.Lock()
	j := h.judged[key]
	if j == nil {
		j = &judgement{}
		h.judged[key] = j
	}
	h.mu.Unlock()
	j.once.Do(func() {
		h.processors <- struct{}{}
		defer func() { <-h.processors }()
		begun := time.Now()
		j.Judgement, j.err = o.Judged(ctx, p)
		h.mu.Lock()
		h.working += time.Since(begun)
		h.mu.Unlock()
	})
	if j.err != nil {
		return nil, j.err
	}
	r := *j.Report
	r.Node = of.name
	return &nodehelper.Judgement{Report: &r, Files: j.Files}, nil
}

// counted counts the bytes of a stream in both directions.
type counted struct {
	r io.Reader
	w io.Writer
	n atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// reset begins to count anew.
func (h *helpers) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.read, h.judged, h.bytes, h.working = map[string]int{}, map[judgedAs]*judgement{}, 0, 0
}

// TestFleet: status and verify say of all nodes what is so, in time.
func TestFleet(t *testing.T) {
	nodes := testutil.Count(t, "SVCPROXY_FLEET_NODES", 50)
	services := testutil.Count(t, "SVCPROXY_FLEET_SERVICES", 500)
	fleet := fleetOf(nodes)
	c := startControlPlane(t)
	h := &helpers{fleet: map[string]*node{}, texts: readTexts(t, services), build: build(t)}
	h.processors = make(chan struct{}, runtime.NumCPU())
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

	// A pod of its own on each, of which the first ones do.
	t.Run("pods", func(t *testing.T) {
		h.reset()
		listed := c.listed(t, "endpointslices")
		if _, err := c.client.DiscoveryV1().EndpointSlices("").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		once := c.listed(t, "endpointslices") - listed
		listed += once
		o := run(t, c, "verify", "-A", "-l", firstLabel, "--helper-namespace", helperNamespace, "-o", "json")
		first := fleet[:min(len(fleet), firstNodes)]
		checkVerify(t, first, &o)
		within(t, fleet, &o, 3*time.Minute)
		// A node that is right is judged by what a watch tells, and none is read more than four times.
		listed = (c.listed(t, "endpointslices") - listed) / once
		if most := 1.1 * float64(1+3*len(named(first, broken))); listed < 1 || listed > most {
			t.Errorf("the EndpointSlices were listed %.1f times, want 1 to %.1f", listed, most)
		}
		t.Logf("the EndpointSlices were listed %.1f times", listed)
		t.Logf("%d kB were sent for each node", h.bytes/int64(len(first))>>10)
	})
	t.Run("status", func(t *testing.T) {
		c.publish(t, fleet, h.texts)
		o := run(t, c, "status", "-o", "json")
		checkStatus(t, fleet, &o)
		within(t, fleet, &o, 10*time.Second)
		if o = run(t, c, "status"); strings.Count(o.out, "\n") > 25 {
			t.Errorf("more than a screen:\n%.5000s", o.out)
		}
		t.Logf("%.3000s", o.out)
	})
	c.makeHelpers(t, fleet)
	t.Run("waiting helpers", func(t *testing.T) {
		h.reset()
		o := run(t, c, "verify", "-A", "--all-nodes", "--helper-namespace", helperNamespace, "-o", "json")
		checkVerify(t, fleet, &o)
		within(t, fleet, &o, 90*time.Second)
		t.Logf("%d judgements of helpers took %v; %d kB were sent for each node", len(h.judged),
			h.working.Round(time.Millisecond), h.bytes/int64(len(answering))>>10)
		// What is right stays where it is.
		if want := named(fleet, broken); !slices.Equal(slices.SortedFunc(maps.Keys(h.read), natural.Compare), want) {
			t.Errorf("the files were read of %v, want those of %v", h.read, want)
		}
	})
}

// build is the plugin's version.
func build(t *testing.T) string {
	t.Helper()
	var v struct{ Version string }
	out, err := exec.CommandContext(t.Context(), plugin(), "version", "-o", "json").Output()
	if err == nil {
		err = json.Unmarshal(out, &v)
	}
	if err != nil || v.Version == "" {
		t.Fatalf("the plugin's version: %v, %s", err, out)
	}
	return v.Version
}

// plugin is the path of the plugin.
func plugin() string {
	if p := os.Getenv("FLEET_PLUGIN"); p != "" {
		return p
	}
	return filepath.Join("..", "..", "bin", "kubectl-svcproxy")
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

// checkStatus compares what status says with what is so.
func checkStatus(t *testing.T, fleet []node, o *outcome) {
	t.Helper()
	var r report.StatusReport
	if err := json.Unmarshal([]byte(o.out), &r); err != nil {
		t.Fatalf("%v\n%.2000s\n%.4000s", err, o.out, o.errOut)
	}
	if o.code != 1 {
		t.Errorf("exit code %d, want 1:\n%s", o.code, o.errOut)
	}
	bad, lost := named(fleet, broken), named(fleet, notReady, unwatched)
	s := &r.Summary
	if s.Nodes != len(fleet) || s.Mismatched != len(bad) || s.NotKnown != len(lost) ||
		s.Right != len(fleet)-len(bad)-len(lost) {
		t.Errorf("%+v, want %d wrong and %d not known", s, len(bad), len(lost))
	}
	var patterns []report.Pattern
	for i := range r.Groups {
		g := &r.Groups[i]
		patterns = append(patterns, g.Pattern)
		if g.Service == nil || g.Service.Name != faultyService || g.Without != s.Right || g.NotKnown != len(lost) {
			t.Errorf("%+v", g)
		}
	}
	checkShared(t, fleet, patterns)
}
