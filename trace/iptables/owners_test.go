// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// The dumps in testdata are rules as other owners write them: Calico, Docker, flannel, CNI port mappings, Weave, istio,
// ufw, firewalld, libvirt, Cilium, Antrea. Those in testdata/sets need ipsets.
func owners(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	return files
}

func TestOtherOwnersRulesAreAllKnown(t *testing.T) {
	for _, f := range append(owners(t), "testdata/sets/weave-npc-kube-router.txt") {
		if u := opacity(parse(t, string(readFile(t, f)))); len(u) > 0 {
			t.Errorf("%s: %q", f, u)
		}
	}
}

func texts(ts []*netfilter.Table) []string {
	var out []string
	for _, tb := range ts {
		for _, c := range tb.Chains {
			for _, r := range c.Rules {
				out = append(out, tb.Name+" "+r.Text)
			}
		}
	}
	slices.Sort(out)
	return out
}

// The kernel is given the dumps, and what iptables-save prints of them is read: the same rules, in the notation of the
// iptables that is installed, and all of them known.
func TestOtherOwnersRulesThroughTheKernel(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for _, backend := range []string{"nft", "legacy"} {
		for _, tool := range []string{"unshare", "iptables-" + backend + "-restore", "iptables-" + backend + "-save"} {
			if _, err := exec.LookPath(tool); err != nil {
				t.Skipf("needs %s: %v", tool, err)
			}
		}
		for _, f := range owners(t) {
			cmd := exec.Command("unshare", "-n", "sh", "-ec", "iptables-"+backend+"-restore; iptables-"+backend+"-save")
			cmd.Stdin = bytes.NewReader(readFile(t, f))
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("%s %s: %v\n%s", backend, f, err, stderr.String())
				continue
			}
			ts := parse(t, string(out))
			if u := opacity(ts); len(u) > 0 {
				t.Errorf("%s %s: %q", backend, f, u)
			}
			want, got := texts(parse(t, string(readFile(t, f)))), texts(ts)
			if len(want) != len(got) {
				t.Errorf("%s %s: %d rules came back of %d", backend, f, len(got), len(want))
			}
		}
	}
}
