// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The names were read from a real kube-proxy.
func TestChain(t *testing.T) {
	if got, want := chain("SVC", servicePort("default", "echo", ""), "TCP"), "KUBE-SVC-HV6DMF63W6MGLRDE"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := chain("SEP", "default/echo", "TCP", "10.244.1.2:8080"), "KUBE-SEP-E5N75UJ6YD3SRFGF"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Services of the namespace default stay alone, so a snapshot with no others must not be taken for a doubled one.
func TestNothingToMultiply(t *testing.T) {
	if err := run("../../../testdata/snapshots/real-2node-iptables", t.TempDir(), 2, false); err == nil {
		t.Error("no error")
	}
}

// Every rule that names an original must be there a second time, with nothing of the original in it.
func TestMultiply(t *testing.T) {
	out := t.TempDir()
	if err := run("../../../testdata/snapshots/scale-iptables", out, 2, false); err != nil {
		t.Fatal(err)
	}
	before, err := readList("../../../testdata/snapshots/scale-iptables", "services")
	if err != nil {
		t.Fatal(err)
	}
	after, err := readList(filepath.Join(out, "snapshot"), "services")
	if err != nil {
		t.Fatal(err)
	}
	if want := 2*len(before) - 1; len(after) != want { // all but default/kubernetes
		t.Errorf("%d Services, want %d", len(after), want)
	}
	rules, err := readFile(filepath.Join(out, "snapshot", "nodes", "node1", "iptables-save.txt"))
	if err != nil {
		t.Fatal(err)
	}
	const original, copied = "scale/svc-00860", "scale/copy1-svc-00860"
	hash := func(name string) string { return strings.TrimPrefix(chain("SVC", name, "TCP"), "KUBE-SVC-") }
	var originals, copies int
	seen := map[string]bool{}
	for line := range strings.Lines(string(rules)) {
		if strings.HasPrefix(line, ":KUBE-S") && strings.Count(line, "-") > 3 {
			if seen[line] {
				t.Errorf("declared twice: %s", line)
			}
			seen[line] = true
		}
		o := strings.Contains(line, hash(original))
		c := strings.Contains(line, hash(copied))
		if o && c || c && strings.Contains(line, " 10.96.") {
			t.Errorf("original and copy are mixed: %s", line)
		}
		if o {
			originals++
		}
		if c {
			copies++
		}
	}
	if originals == 0 || originals != copies {
		t.Errorf("%d lines of the original, %d of the copy", originals, copies)
	}
	restore, err := os.ReadFile(filepath.Join(out, "restore.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(restore), "nfacct") {
		t.Error("nfacct matches are left, though they were not wanted")
	}
	if got, want := strings.Count(string(restore), "\n"), strings.Count(string(rules), "\n"); got != want {
		t.Errorf("restore.txt has %d lines, the snapshot's rules %d", got, want)
	}
}
