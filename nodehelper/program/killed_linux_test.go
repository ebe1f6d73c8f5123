// SPDX-License-Identifier: Apache-2.0

package program

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// ledger is what another program has on the node. It writes rules all the time; between two rounds all that it has is
// known.
type ledger struct {
	tool, save string
	table      string // of nftables; "" for iptables

	mu       sync.Mutex
	rules    []string // the addresses of its rules
	policies map[string]string
	rounds   int
}

// begin makes the ledger's own chains.
func (l *ledger) begin(t *testing.T) {
	t.Helper()
	lines := foreignChains(l.tool)
	if l.table != "" {
		lines = []string{
			"nft 'add table ip theirs; add chain ip theirs wall { type filter hook forward priority 9; policy drop; }'",
		}
	}
	if err := shell(t.Context(), lines...); err != nil {
		t.Fatal(err)
	}
	l.policies = map[string]string{"FORWARD": "DROP"}
	if l.table != "" {
		l.policies = nil
	}
}

// round adds a rule, removes the oldest of several, and now and then sets a policy.
func (l *ledger) round(t *testing.T) error {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rounds++
	address := fmt.Sprintf("198.18.%d.%d", l.rounds/250%250, l.rounds%250+1)
	var lines []string
	const kept = 4
	if l.table != "" {
		wall := fmt.Sprint("wall", l.rounds)
		lines = append(lines, "nft add rule ip theirs wall ip saddr "+address+" drop",
			// A base chain in a table of iptables-nft, which may have been made for a path.
			"nft 'add table ip filter; add chain ip filter "+wall+" { type filter hook forward priority 9; policy drop; }'",
			"nft delete chain ip filter "+wall)
		if len(l.rules) >= kept {
			lines = append([]string{"nft 'flush chain ip theirs wall'"}, lines...)
			l.rules = nil
		}
	} else {
		lines = append(lines, l.tool+" -t nat -A THEIRS -s "+address+" -j RETURN", l.tool+" -A THEIRS -s "+address+" -j DROP")
		if len(l.rules) >= kept {
			lines = append(lines, l.tool+" -t nat -D THEIRS -s "+l.rules[0]+" -j RETURN",
				l.tool+" -D THEIRS -s "+l.rules[0]+" -j DROP")
			l.rules = l.rules[1:]
		}
		chain, policy := filterChains[l.rounds%3], []string{"DROP", "ACCEPT"}[l.rounds/3%2]
		lines = append(lines, l.tool+" -P "+chain+" "+policy)
		l.policies[chain] = policy
	}
	l.rules = append(l.rules, address)
	return shell(t.Context(), lines...)
}

// check says what is lost or too much of what the ledger has. The ledger is locked.
func (l *ledger) check(t *testing.T) (wrong []string) {
	t.Helper()
	got := testutil.Run(t, "", strings.Fields(l.save)...)
	each := 2 // in nat and in filter
	if l.table != "" {
		each = 1
	}
	for _, address := range l.rules {
		if n := strings.Count(got, address+"/32 ") + strings.Count(got, address+" drop"); n != each {
			wrong = append(wrong, fmt.Sprintf("its rule for %s is there %d times", address, n))
		}
	}
	if n := strings.Count(got, "198.18."); n != each*len(l.rules) {
		wrong = append(wrong, fmt.Sprintf("%d rules are there, and it has %d", n, each*len(l.rules)))
	}
	filter := got[max(0, strings.Index(got, "*filter")):]
	for chain, want := range l.policies {
		if there := strings.Contains(filter, "\n:"+chain+" DROP ["); there != (want == "DROP") {
			wrong = append(wrong, fmt.Sprintf("the policy of %s is not %s", chain, want))
		}
	}
	for _, jump := range []string{"-A PREROUTING -j THEIRS", "-A FORWARD -j THEIRS"} {
		if l.table == "" && strings.Count(got, jump) != 1 {
			wrong = append(wrong, jump+" is not there")
		}
	}
	if l.table != "" && !strings.Contains(got, "policy drop") {
		wrong = append(wrong, "its chain is not there")
	}
	if len(wrong) > 0 {
		wrong = append(wrong, got)
	}
	return wrong
}

// Helpers are killed while they program, update and undo, beside other programs that write rules and policies all the
// time. The next helper undoes everything of ours, and nothing of theirs.
func TestKilledBesideWriters(t *testing.T) {
	testutil.Long(t)
	if !testutil.Isolate(t, unix.CLONE_NEWNET|unix.CLONE_NEWNS, executables...) {
		return
	}
	ownRun(t)
	ledgers := []*ledger{
		{tool: "iptables-nft", save: "iptables-nft-save"},
		{tool: "iptables-legacy -w", save: "iptables-legacy-save"},
		{tool: "nft", save: "nft list table ip theirs", table: "theirs"},
	}
	stop := make(chan struct{})
	var wait sync.WaitGroup
	for _, l := range ledgers {
		l.begin(t)
		wait.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := l.round(t); err != nil {
					t.Errorf("%s: %v", l.tool, err)
					return
				}
			}
		})
	}
	defer wait.Wait()
	defer close(stop)
	root := t.TempDir()
	prog := newProgrammer(t, root)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	found, killings := map[string]int{}, testutil.Count(t, testutil.Kills, 12)
	within := lifetime(t, prog, 600*time.Millisecond)
	var slowest time.Duration
	for i := range killings {
		w := modes[i%len(modes)]
		if i%7 == 6 {
			w.mode, w.backend = wire.Userspace, []string{wire.BackendNFT, wire.BackendLegacy}[random.IntN(2)]
		}
		kill(t, root+" "+w.mode+" "+w.backend, time.Duration(random.Int64N(int64(within))))
		begin := time.Now()
		undone, err := prog.Undo(t.Context(), wire.UndoDead)
		if err != nil {
			t.Fatalf("killing %d, %s: %v", i, w, err)
		}
		slowest = max(slowest, time.Since(begin))
		if len(undone) > 0 {
			found[w.mode+" "+w.backend]++
		}
		for _, l := range ledgers {
			l.mu.Lock()
		}
		got := testutil.Listing(t, testutil.Rules...)
		if strings.Contains(strings.ToUpper(got), "SVCPROXY-") {
			t.Errorf("killing %d, %s: of ours is left: %s", i, w, got)
		}
		if left, err := filepath.Glob(root + "/run/*"); len(left) > 0 || err != nil {
			t.Errorf("killing %d: %v %v is left", i, left, err)
		}
		for _, l := range ledgers {
			if wrong := l.check(t); len(wrong) > 0 {
				t.Errorf("killing %d, %s: of %s: %s", i, w, l.tool, strings.Join(wrong, "\n"))
			}
			l.mu.Unlock()
		}
		if t.Failed() {
			return
		}
	}
	rounds := map[string]int{}
	for _, l := range ledgers {
		l.mu.Lock()
		rounds[l.tool] = l.rounds
		l.mu.Unlock()
	}
	t.Logf("%d killed, with something to undo: %v; undoing took at most %v; rounds of others: %v", killings, found,
		slowest.Round(time.Millisecond), rounds)
	if len(found) < len(modes) {
		t.Errorf("something was to undo in %v only", found)
	}
}
