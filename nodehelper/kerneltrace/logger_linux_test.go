// SPDX-License-Identifier: Apache-2.0

package kerneltrace

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// set returns the loggers of both families.
func set(t *testing.T) string {
	t.Helper()
	var out []string
	for _, family := range loggedFamilies {
		data, err := os.ReadFile(loggerSysctl(family))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.TrimSpace(string(data)))
	}
	return strings.Join(out, " ")
}

// left returns what is below a node's /run.
func left(t *testing.T, root string) []string {
	t.Helper()
	out, err := filepath.Glob(filepath.Join(root, "run", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The kernel reports the rules of iptables-legacy that one connection's packets traverse, among those of nf_tables and
// in their order; afterwards the loggers are those that were there before.
func TestRulesOfLegacyAreTraced(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "iptables-legacy-restore", "nft", "ip") {
		return
	}
	must(t, "", "ip", "link", "set", "lo", "up")
	listener := listening(t)
	if has, err := HasLegacy(); has || err != nil {
		t.Fatalf("before there was a rule: %v, %v", has, err)
	}
	must(t, legacyText, "iptables-legacy-restore")
	must(t, nativeText, "nft", "-f", "-")
	if has, err := HasLegacy(); !has || err != nil {
		t.Fatalf("with rules: %v, %v", has, err)
	}
	before, root := set(t), t.TempDir()
	table := opened(t)
	logger, err := Log(listener, root)
	if err != nil {
		t.Fatal(err)
	}
	if now := set(t); !strings.Contains(now, netlinkLogger) {
		t.Errorf("the loggers are %s", now)
	}
	other, err := Listen(ReceiveBuffer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Log(other, root); err == nil || !strings.Contains(err.Error(), "another helper") {
		t.Errorf("a second one: %v", err)
	}
	if _, err := Log(other, t.TempDir()); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("one that does not see the journal: %v", err)
	}
	if err := Restore(root); err != nil || set(t) == before {
		t.Errorf("restored while it is used: %v", err)
	}
	if err := table.Trace(testConnection); err != nil {
		t.Fatal(err)
	}
	send(t, "127.0.0.1:6002", "127.0.0.1:7001")
	send(t, "127.0.0.1:6001", "127.0.0.1:7001")
	events, err := listener.Collect(50 * time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range events {
		e := &events[i]
		if e.Legacy && e.Source != testConnection.From {
			t.Errorf("%+v is not of the connection", e)
		}
		if e.Legacy || e.Table == "own" {
			got = append(got, fmt.Sprintf("%s %s %s %d %t", e.Family, e.Table, e.Chain, e.Rule, e.Policy()))
		}
	}
	want := []string{
		"ip nat OUTPUT 2 false", "ip nat MINE 2 false", "ip filter OUTPUT 1 false", "ip filter OUTPUT 2 true",
		"ip nat POSTROUTING 1 true", "ip filter INPUT 1 true", "inet own c 0 false",
	}
	if !slices.Equal(slices.Compact(got), want) {
		t.Errorf("told:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if err := logger.Close(); err != nil {
		t.Fatal(err)
	}
	if now := set(t); now != before {
		t.Errorf("the loggers were %s, and are %s", before, now)
	}
	if l := left(t, root); len(l) > 0 {
		t.Errorf("%v is left", l)
	}
}

// TestLoggersOfAKilledProcess kills processes that trace, at different moments: the next one restores the loggers,
// which it knows from the journal.
func TestLoggersOfAKilledProcess(t *testing.T) {
	testutil.Long(t)
	if root := os.Getenv(killedEnv); root != "" {
		_, _ = os.Stdout.WriteString("open\n")
		for {
			listener, err := Listen(ReceiveBuffer)
			if err != nil {
				t.Fatal(err)
			}
			logger, err := Log(listener, root)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
			if err := errorsOf(logger.Close(), listener.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "iptables-legacy-restore") {
		return
	}
	must(t, legacyText, "iptables-legacy-restore")
	before, root := set(t), t.TempDir()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	for i := range 200 {
		cmd := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), killedEnv+"="+root)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i*137) * time.Microsecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if set(t) != before {
			changed++
		}
		if i%2 == 0 { // otherwise the next process finds it
			if err := Restore(root); err != nil {
				t.Fatal(err)
			}
			if now := set(t); now != before {
				t.Fatalf("killed after %d: the loggers were %s, and are %s", i, before, now)
			}
			if l := left(t, root); len(l) > 0 {
				t.Fatalf("killed after %d: %v is left", i, l)
			}
		}
	}
	t.Logf("%d of 200 were killed while the log came to them", changed)
	if changed == 0 {
		t.Error("none was killed while the log came to it")
	}
}
