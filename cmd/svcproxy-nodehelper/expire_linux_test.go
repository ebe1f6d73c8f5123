// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/program"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// The command expire undoes a record that nobody holds, when its time is over.
func TestExpire(t *testing.T) {
	testutil.Long(t)
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "nft") {
		return
	}
	file := build(t)
	to := plan.Destination{Endpoints: []netip.AddrPort{netip.MustParseAddrPort("10.244.1.1:8080")}}
	r := program.Record{
		Version: 1, Mode: wire.NFTables, Run: "a", By: "someone", Expires: time.Now().Add(4 * time.Second), Complete: true,
		Holder: program.Process{PID: 1, Started: 1}, // not the first process, but an earlier one of its number
		Plan: plan.Plan{Name: "0123abcd", Services: []string{"shop/web"}, Mark: 0x4000, Frontends: []plan.Frontend{{
			Port: "shop/web:http", Kind: "ClusterIP", Address: netip.MustParseAddrPort("10.96.0.10:80"), Protocol: "TCP",
			ForNode: to, ForOthers: to,
		}}},
	}
	var start unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &start); err != nil {
		t.Fatal(err)
	}
	r.Ends = time.Duration(start.Nano()) + time.Until(r.Expires)
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var ns unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &ns); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	journal := filepath.Join(root, "run", "svcproxy", strconv.FormatUint(ns.Ino, 10))
	if err := os.MkdirAll(journal, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(journal, r.Plan.Name+".json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	testutil.Run(t, "", "nft", "add", "table", "ip", "svcproxy-"+r.Plan.Name)
	testutil.Run(t, "", "nft", "add", "chain", "ip", "svcproxy-"+r.Plan.Name, "made-by-kubectl-svcproxy")

	answer, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Close()
	cmd := exec.CommandContext(t.Context(), file, "expire", "--root", root, r.Plan.Name)
	cmd.ExtraFiles = []*os.File{theirs}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	if said, err := io.ReadAll(answer); err != nil || len(said) == 0 {
		t.Errorf("it says %q %v", said, err)
	}
	now := testutil.Run(t, "", "nft", "list", "tables")
	if !strings.Contains(now, r.Plan.Name) && time.Now().Before(r.Expires) {
		t.Error("it is undone ahead of its time")
	}
	if err := cmd.Wait(); err != nil || time.Now().Before(r.Expires) {
		t.Errorf("%v: %s", err, stderr.String())
	}
	if now := testutil.Run(t, "", "nft", "list", "tables"); strings.Contains(now, r.Plan.Name) {
		t.Errorf("left: %s", now)
	}
	if left, err := filepath.Glob(root + "/run/*"); len(left) > 0 || err != nil {
		t.Errorf("%v %v is left", left, err)
	}
}
