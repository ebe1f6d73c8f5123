// SPDX-License-Identifier: Apache-2.0

//go:build vm

package ipvs

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

func TestProgramAndUndoForever(t *testing.T) {
	file := os.Getenv(child)
	if file == "" {
		return
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var p plan.Plan
	if err := json.Unmarshal(data, &p); err != nil {
		t.Fatal(err)
	}
	prog := programmer(t)
	fmt.Println("ready")
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	other := p
	other.Frontends = slices.Clone(p.Frontends[:len(p.Frontends)-1])
	for i := range other.Frontends {
		f := &other.Frontends[i]
		f.Local, f.ForNode.Endpoints, f.ForOthers.Endpoints = nil, f.ForNode.Endpoints[1:], f.ForOthers.Endpoints[1:]
		if f.ForPods != nil {
			f.ForPods = &plan.Destination{Endpoints: f.ForPods.Endpoints[1:], Masquerade: f.ForPods.Masquerade}
		}
	}
	for {
		for _, state := range []*plan.Plan{&p, &other} {
			if _, err := prog.Apply(t.Context(), asking(state, "wrr")); err != nil {
				fmt.Println("failed:", err)
				os.Exit(1)
			}
		}
		if _, err := prog.Undo(t.Context(), wire.UndoMine); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
	}
}

// Helpers are killed at any moment, beside another program that writes rules, policies and virtual servers.
func TestKilledAtAnyMoment(t *testing.T) {
	cluster, files := captures(t)
	p := planned(t, cluster, files, ep3)
	// One that kube-proxy has no virtual server of, and whose address the node does not have.
	own := p.Frontends[0]
	own.Address = netip.MustParseAddrPort("10.96.251.251:80")
	p.Frontends = append(p.Frontends, own)
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	defer broken(t)()
	do(t, "sysctl -qw net.ipv4.vs.conntrack=0")
	defer do(t, "sysctl -qw net.ipv4.vs.conntrack=1")
	other := writeBeside(t)
	defer other.end()
	var before string
	prog := programmer(t)
	// How long a round takes.
	var round time.Duration
	other.paused(func() {
		before = exactly(t)
		begin := time.Now()
		apply(t, prog, asking(p, "wrr"))
		undo(t, prog, wire.UndoMine)
		unchanged(t, before)
		round = time.Since(begin) * 3 / 2
	})
	dirty := 0
	kills := testutil.Count(t, testutil.Kills, 4) // each takes some ten seconds here
	for n := range kills {
		killed(t, file, time.Duration(rand.Int64N(int64(round))))
		undone, err := prog.Undo(t.Context(), wire.UndoDead)
		if err != nil {
			t.Fatalf("kill %d: %v", n, err)
		}
		dirty += len(undone)
		other.paused(func() { unchanged(t, before) })
		if t.Failed() {
			t.Fatalf("after kill %d", n)
		}
	}
	written := 0
	other.paused(func() { written = other.rounds })
	t.Logf("%d kills within %v each; %d found something to undo; the other program wrote %d times", kills,
		round.Round(time.Millisecond), dirty, written)
	if dirty < kills/3 {
		t.Errorf("only %d of %d kills came while something was programmed", dirty, kills)
	}
}

func killed(t *testing.T, file string, after time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestProgramAndUndoForever$", "-test.v")
	cmd.Env = append(os.Environ(), child+"="+file)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == "ready" {
			break
		}
	}
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(after)
	_ = cmd.Process.Kill()
	rest, err := io.ReadAll(out)
	if strings.Contains(string(rest), "failed") || err != nil {
		t.Errorf("the helper: %s %v", rest, err)
	}
	_ = cmd.Wait() // it was killed
}
