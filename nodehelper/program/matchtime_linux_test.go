// SPDX-License-Identifier: Apache-2.0

package program

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// The match time is used where a rule with it can be written, which is tried where nobody is; and only for a time that
// it knows.
func TestTheMatchTimeIsTried(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	before := testutil.Listing(t, "iptables-nft-save", "nft list ruleset")
	for _, backend := range []string{wire.BackendNFT, wire.BackendLegacy} {
		for _, p := range []struct {
			name string
			has  bool
			make func(t *testing.T) *Programmer
		}{
			{"this kernel", true, func(t *testing.T) *Programmer {
				t.Helper()
				return newProgrammer(t, t.TempDir())
			}},
			{"a node whose kernel has no such module", false, func(t *testing.T) *Programmer {
				t.Helper()
				var u unix.Utsname
				if err := unix.Uname(&u); err != nil {
					t.Fatal(err)
				}
				root := t.TempDir()
				modules := filepath.Join(root, "lib", "modules", unix.ByteSliceToString(u.Release[:]))
				if err := os.MkdirAll(modules, 0o755); err != nil {
					t.Fatal(err)
				}
				list := []byte("kernel/net/netfilter/xt_mark.ko:\n")
				if err := os.WriteFile(filepath.Join(modules, "modules.dep"), list, 0o600); err != nil {
					t.Fatal(err)
				}
				return newProgrammer(t, root)
			}},
			{"an iptables that does not take it", false, func(t *testing.T) *Programmer {
				t.Helper()
				root := t.TempDir()
				if err := os.MkdirAll(filepath.Join(root, "sbin"), 0o755); err != nil {
					t.Fatal(err)
				}
				// It cannot even be started there.
				tool := filepath.Join(root, "sbin", "iptables-"+backend+"-restore")
				if err := os.WriteFile(tool, []byte("#!/no/such/shell\n"), 0o755); err != nil {
					t.Fatal(err)
				}
				prog := newProgrammer(t, t.TempDir())
				prog.modes[wire.IPTables].(*iptables).roots = func() []string { return []string{root} }
				return prog
			}},
		} {
			prog := p.make(t)
			r := &Record{Plan: *web(0, "10.244.1.1:8080"), Backend: backend, Expires: time.Now().Add(time.Hour)}
			mode := prog.modes[wire.IPTables]
			if got := mode.endsByItself(r); got != p.has {
				t.Errorf("%s, %s: %t", backend, p.name, got)
			}
			r.Expires = time.Date(2038, 1, 1, 0, 0, 1, 0, time.UTC)
			if mode.endsByItself(r) {
				t.Errorf("%s, %s: it knows %v", backend, p.name, r.Expires)
			}
		}
	}
	if got := testutil.Listing(t, "iptables-nft-save", "nft list ruleset"); got != before {
		t.Errorf("trying left %s", got)
	}
	// Not /proc/self: where the trial was the first thread of the process, that stays in a namespace of its own.
	if _, err := os.Stat("/proc/thread-self/net/ip_tables_names"); err == nil {
		if names, err := os.ReadFile("/proc/thread-self/net/ip_tables_names"); err != nil || len(names) > 0 {
			t.Errorf("trying made the legacy tables %q %v", names, err)
		}
	}
}
