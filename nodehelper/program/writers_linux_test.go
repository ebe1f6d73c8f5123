// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// writer is another program that writes rules: it runs the command lines begin, and then does write again and again.
type writer struct {
	begin []string
	write func(ctx context.Context, i int) error
}

// shell runs command lines, and fails where one does.
func shell(ctx context.Context, lines ...string) error {
	out, err := exec.CommandContext(ctx, "sh", "-ec", strings.Join(lines, "\n")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%q: %w: %s", lines, err, out)
	}
	return nil
}

// foreignRule is a rule of iptables that a writer adds in one round and removes in the next.
func foreignRule(tool string) func(context.Context, int) error {
	return func(ctx context.Context, i int) error {
		verb := "-A"
		if i%2 == 1 {
			verb = "-D"
		}
		return shell(ctx, tool+" -t nat "+verb+" THEIRS -d 192.0.2.1 -j ACCEPT", tool+" "+verb+" THEIRS -d 192.0.2.1 -j DROP")
	}
}

// foreignChains has rules of a writer in the tables of iptables: one stays, and one comes and goes.
func foreignChains(tool string) []string {
	return []string{
		tool + " -w -t nat -N THEIRS", tool + " -w -t nat -A THEIRS -s 192.0.2.9 -j RETURN",
		tool + " -w -t nat -A PREROUTING -j THEIRS",
		tool + " -w -N THEIRS", tool + " -w -A THEIRS -s 192.0.2.9 -j RETURN", tool + " -w -A FORWARD -j THEIRS",
		tool + " -w -P FORWARD DROP",
	}
}

// writers are the other programs, by their names.
var writers = map[string]writer{
	"iptables-nft":    {foreignChains("iptables-nft"), foreignRule("iptables-nft")},
	"iptables-legacy": {foreignChains("iptables-legacy"), foreignRule("iptables-legacy -w")},
	"nft": {
		[]string{"nft 'add table ip theirs; add chain ip theirs wall { type filter hook forward priority 9; policy drop; }'"},
		func(ctx context.Context, i int) error {
			line := "add rule ip theirs wall ip saddr 192.0.2.1 drop"
			if i%2 == 1 {
				line = "flush chain ip theirs wall"
			}
			return shell(ctx, "nft "+line)
		},
	},
	// Far more changes than programs make, and all of them change the generation.
	"netlink": {
		[]string{"nft add table ip pauseless"},
		func(_ context.Context, i int) error {
			conn, err := netlink.Dial()
			if err != nil {
				return err
			}
			defer conn.Close()
			for n := range 1000 {
				err := conn.Commit(nfRequest(unix.NFT_MSG_NEWCHAIN, false, unix.NLM_F_CREATE,
					netlink.String(unix.NFTA_CHAIN_TABLE, "pauseless"), netlink.String(unix.NFTA_CHAIN_NAME, fmt.Sprint("c", i, n))),
					deleteChain(false, "pauseless", fmt.Sprint("c", i, n)))
				if err != nil {
					return err
				}
			}
			return nil
		},
	},
	// Somebody has the lock of iptables nearly all the time.
	"lock": {nil, func(ctx context.Context, _ int) error {
		f, err := os.OpenFile("/run/xtables.lock", os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			return errors.Join(err, f.Close())
		}
		select {
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
		}
		if err := f.Close(); err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
		return nil
	}},
}

// startWriters starts writers, and returns a function that ends them, in an even round.
func startWriters(t *testing.T, names ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	for _, name := range names {
		w := writers[name]
		if err := shell(t.Context(), w.begin...); err != nil {
			t.Fatal(err)
		}
		wait.Go(func() {
			for i := 0; ctx.Err() == nil || i%2 == 1; i++ {
				if err := w.write(context.WithoutCancel(ctx), i); err != nil {
					t.Errorf("%s, round %d: %v", name, i, err)
					return
				}
			}
		})
	}
	return sync.OnceFunc(func() {
		cancel()
		wait.Wait()
	})
}

// ownRun gives the test a /run of its own, and with it a lock of iptables.
func ownRun(t *testing.T) {
	t.Helper()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
}

// manyPorts is a plan of n ports of an address, the first of which is 1001.
func manyPorts(n int, to ...string) *plan.Plan {
	d := plan.Destination{}
	for _, e := range to {
		d.Endpoints = append(d.Endpoints, netip.MustParseAddrPort(e))
	}
	p := &plan.Plan{Name: "0123abcd", Services: []string{"shop/web"}, Mark: 0x4000}
	for i := range n {
		p.Frontends = append(p.Frontends, plan.Frontend{
			Port: fmt.Sprintf("shop/web:p%d", i), Kind: "ClusterIP", Protocol: "TCP", ForNode: d, ForOthers: d,
			Address: netip.AddrPortFrom(netip.MustParseAddr("10.96.0.10"), uint16(1001+i)),
		})
	}
	return p
}

// connects tells whether somebody answers at an address.
func connects(address string) bool {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// soon is how soon packets have left our rules; on a busy machine it may take longer, as writing them does.
const soon = 2 * time.Second

// Undoing a large plan beside programs that write rules without a pause: packets leave our rules soon, and then the
// rules go; those of the others stay.
func TestUndoBesideWritersThatNeverPause(t *testing.T) {
	testutil.Long(t)
	if !testutil.Isolate(t, unix.CLONE_NEWNET|unix.CLONE_NEWNS, executables...) {
		return
	}
	ownRun(t)
	testutil.Run(t, "", "ip", "link", "set", "lo", "up")
	for _, a := range []string{"10.96.0.10/32", "10.244.1.1/32"} {
		testutil.Run(t, "", "ip", "address", "add", a, "dev", "lo")
	}
	testutil.Echo(t, nil, "tcp", "10.244.1.1:8080")
	ports := testutil.Count(t, "SVCPROXY_UNDO_PORTS", 1000)
	front := fmt.Sprint("10.96.0.10:", 1000+ports)
	for _, c := range []struct {
		mode, backend string
		writers       []string
	}{
		{wire.IPTables, wire.BackendNFT, []string{"iptables-nft", "netlink"}},
		{wire.IPTables, wire.BackendNFT, []string{"nft"}},
		{wire.IPTables, wire.BackendLegacy, []string{"iptables-legacy", "lock"}},
		{wire.NFTables, "", []string{"nft", "netlink"}},
		{wire.NFTables, "", []string{"iptables-nft"}},
		{wire.Userspace, wire.BackendNFT, []string{"iptables-nft", "netlink"}},
		{wire.Userspace, wire.BackendLegacy, []string{"iptables-legacy", "lock"}},
	} {
		t.Run(fmt.Sprint(c.mode, " ", c.backend, " ", c.writers), func(t *testing.T) {
			resetRules(t)
			prog := newProgrammer(t, t.TempDir())
			req := params(manyPorts(ports, "10.244.1.1:8080", "10.244.1.1:8080"), c.mode, c.backend, "a")
			begin := time.Now()
			if _, err := prog.Apply(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			written := time.Since(begin)
			stop := startWriters(t, c.writers...)
			defer stop()
			time.Sleep(300 * time.Millisecond)
			if !connects(front) {
				t.Fatal("the path is not there")
			}
			begin = time.Now()
			undone := make(chan error, 1)
			go func() {
				_, err := prog.Undo(t.Context(), wire.UndoMine)
				undone <- err
			}()
			for connects(front) && time.Since(begin) < 20*time.Second {
				time.Sleep(time.Millisecond)
			}
			left := time.Since(begin)
			if err := <-undone; err != nil {
				t.Error(err)
			}
			all := time.Since(begin)
			stop()
			t.Logf("written in %v; packets left after %v, all was gone after %v", written.Round(time.Millisecond),
				left.Round(time.Millisecond), all.Round(time.Millisecond))
			if left > max(soon, 3*written) {
				t.Errorf("packets left our rules after %v", left)
			}
			got := testutil.Listing(t, testutil.Rules...)
			if strings.Contains(strings.ToUpper(got), "SVCPROXY-") {
				t.Errorf("left: %s", got[:min(len(got), 2000)])
			}
			for _, w := range c.writers {
				if lost := lostOf(t, w); lost != "" {
					t.Error(lost)
				}
			}
		})
	}
}

// lostOf says what of a writer is lost after its end: what it began with has to be there, and nothing else.
func lostOf(t *testing.T, name string) string {
	t.Helper()
	check := func(got string, want ...string) string {
		for _, line := range want {
			if strings.Count(got, line) != 1 {
				return fmt.Sprintf("%s: %q is there %d times in %s", name, line, strings.Count(got, line), got)
			}
		}
		if strings.Contains(got, "192.0.2.1 ") || strings.Contains(got, "192.0.2.1/32") {
			return fmt.Sprintf("%s: what was removed is there: %s", name, got)
		}
		return ""
	}
	switch name {
	case "iptables-nft", "iptables-legacy":
		const rule = "-A THEIRS -s 192.0.2.9/32 -j RETURN"
		return check(testutil.Run(t, "", name+"-save", "-t", "nat"), rule, "-A PREROUTING -j THEIRS") +
			check(testutil.Run(t, "", name+"-save", "-t", "filter"), rule, "-A FORWARD -j THEIRS", ":FORWARD DROP")
	case "nft":
		return check(testutil.Run(t, "", "nft", "list", "table", "ip", "theirs"), "policy drop")
	case "netlink":
		return check(testutil.Run(t, "", "nft", "list", "table", "ip", "pauseless"), "table ip pauseless")
	}
	return ""
}
