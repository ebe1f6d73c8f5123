// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/test/tenant"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// tenantsShort are the cases that CI has; SVCPROXY_TENANTS=all has all of them.
var tenantsShort = []string{
	"100 ports, 100 slices of 1,000 endpoints", "2,000 Services at one external IP, with rules",
	"20,000 source ranges, 500 addresses",
}

// TestTenants judges a node beside what one tenant has written, in a process of its own within the limits, and traces
// the Service of another tenant there, which takes little of either.
func TestTenants(t *testing.T) {
	plugin := builtPlugin(t)
	cluster, node := snap.Node(t, "../../testdata/snapshots/iptables", "node1")
	files := snap.Files(t, node)
	delete(files, snapshot.NFTFile) // the rules once more
	for i := range tenant.Cases {
		c := &tenant.Cases[i]
		if os.Getenv("SVCPROXY_TENANTS") != "all" && !slices.Contains(tenantsShort, c.Name) {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "snap.tar.gz")
			out, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			objects, changed := c.Beside(cluster, files)
			err = snapshot.Write(out, snapshot.Meta{Version: 1}, objects, []*snapshot.Node{snapshot.NewNode("node1", changed)})
			if err != nil {
				t.Fatal(err)
			}
			if err := out.Close(); err != nil {
				t.Fatal(err)
			}
			code, stdout, stderr, memory, spent := measured(t, plugin, path)
			t.Logf("verify -A: exit code %d, %d MB, %v", code, memory>>20, spent.Round(time.Millisecond))
			if memory > hostileMemory || spent > hostileTime || code == run.ExitUsage ||
				strings.Contains(stdout, "NOT INSPECTED") {
				t.Errorf("exit code %d, %d MB and %v; want at most %d MB and %v\n%.600s", code, memory>>20, spent,
					hostileMemory>>20, hostileTime, stderr)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, plugin, "trace", "shop/lb", "--snapshot", path)
			cmd.Env = append(os.Environ(), "KUBECONFIG=/nonexistent")
			said, err := cmd.CombinedOutput()
			if err != nil || !bytes.Contains(said, []byte("MATCH")) {
				t.Fatalf("%v: %.600s", err, said)
			}
			used := cmd.ProcessState
			if took := used.UserTime() + used.SystemTime(); took > hostileTime/4 {
				t.Errorf("the trace took %v", took)
			} else {
				t.Logf("trace: %v", took.Round(time.Millisecond))
			}
		})
	}
}
