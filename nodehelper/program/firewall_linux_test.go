// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// dualStack is web with its frontends in IPv6, too.
func dualStack() *plan.Plan {
	p := web(0, "10.244.1.1:8080", "10.244.2.2:8080")
	six := web(0, "[fd00::1]:8080", "[fd00::2]:8080").Frontends
	for i := range six {
		six[i].Address = netip.MustParseAddrPort([]string{"[fd00:96::a]:80", "[2001:db8::10]:30080"}[i])
		six[i].Pods = &plan.Pods{Iface: "cali", Prefix: true}
	}
	p.Frontends = append(p.Frontends, six...)
	return p
}

// filterChains are the built-in chains that can have a policy in iptables.
var filterChains = []string{"INPUT", "FORWARD", "OUTPUT"}

// policies returns the policies of the built-in chains of the table filter.
func policies(t *testing.T, backend string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, tool := range []string{"iptables", "ip6tables"} {
		for line := range strings.Lines(testutil.Run(t, "", tool+"-"+backend+"-save", "-t", "filter")) {
			if words := strings.Fields(line); strings.HasPrefix(line, ":") && !strings.Contains(line, "SVCPROXY") {
				out[tool+" "+words[0][1:]] = words[1]
			}
		}
	}
	return out
}

// setPolicies are the programs by which others make a firewall.
var setPolicies = map[string]func(t *testing.T, backend string){
	"iptables -P": func(t *testing.T, backend string) {
		t.Helper()
		for _, tool := range []string{"iptables", "ip6tables"} {
			for _, chain := range filterChains {
				testutil.Run(t, "", tool+"-"+backend, "-P", chain, "DROP")
			}
		}
	},
	"iptables-restore --noflush": func(t *testing.T, backend string) {
		t.Helper()
		for _, tool := range []string{"iptables", "ip6tables"} {
			testutil.Run(t, dropAll, tool+"-"+backend+"-restore", "--noflush")
		}
	},
	"iptables-restore": func(t *testing.T, backend string) {
		t.Helper()
		for _, tool := range []string{"iptables", "ip6tables"} {
			testutil.Run(t, dropAll, tool+"-"+backend+"-restore")
		}
	},
}

const dropAll = "*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT DROP [0:0]\nCOMMIT\n"

// endings are the ways in which a path endings.
var endings = map[string]func(t *testing.T, prog *Programmer){
	"undo": func(t *testing.T, prog *Programmer) {
		t.Helper()
		if _, err := prog.Undo(t.Context(), wire.UndoMine); err != nil {
			t.Error(err)
		}
	},
	"the end of its time": func(t *testing.T, prog *Programmer) {
		t.Helper()
		prog.Held()[0].Expires = time.Now()
		if err := prog.Hold(t.Context()); err != nil {
			t.Error(err)
		}
	},
	"SIGTERM": func(t *testing.T, prog *Programmer) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := prog.Hold(ctx); err != nil {
			t.Error(err)
		}
	},
	"cleanup": func(t *testing.T, prog *Programmer) {
		t.Helper()
		if _, err := dies(t, prog, func(*Record) {}).Undo(t.Context(), wire.UndoDead); err != nil {
			t.Error(err)
		}
	},
	"the next helper": func(t *testing.T, prog *Programmer) {
		t.Helper()
		if err := dies(t, prog, func(r *Record) { r.Complete = false }).Adopt(t.Context(), "a"); err != nil {
			t.Error(err)
		}
	},
}

// dies changes the record of a Programmer as if its process had ended, and returns another Programmer.
func dies(t *testing.T, prog *Programmer, change func(*Record)) *Programmer {
	t.Helper()
	r := *prog.Held()[0]
	r.Holder.Started++ // another process of that number
	change(&r)
	if err := prog.journal.write(&r); err != nil {
		t.Fatal(err)
	}
	return newProgrammer(t, prog.o.Root)
}

// A policy that somebody sets while a path is programmed stays when the path endings, however that is.
func TestUndoNeverOpensAFirewall(t *testing.T) {
	testutil.Long(t)
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	for _, w := range modes {
		if w.backend == "" {
			w.backend = wire.BackendNFT // of the firewall
		}
		for how, set := range setPolicies {
			for end, do := range endings {
				t.Run(w.mode+" "+w.backend+", "+how+", "+end, func(t *testing.T) {
					resetRules(t)
					prog := newProgrammer(t, t.TempDir())
					req := params(dualStack(), w.mode, w.backend, "a")
					if w.mode == wire.NFTables {
						req.Backend = ""
					}
					if _, err := prog.Apply(t.Context(), req); err != nil {
						t.Fatal(err)
					}
					set(t, w.backend)
					want := policies(t, w.backend)
					do(t, prog)
					if got := policies(t, w.backend); !mapsEqual(got, want) || len(got) != 6 {
						t.Errorf("the policies are %v, and were %v", got, want)
					}
					if got := testutil.Listing(t, testutil.Rules...); strings.Contains(strings.ToUpper(got), "SVCPROXY-") {
						t.Errorf("of ours is left: %s", got)
					}
				})
			}
		}
	}
}

func mapsEqual(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v || v != "DROP" {
			return false
		}
	}
	return true
}

// resetRules removes all rules.
func resetRules(t *testing.T) {
	t.Helper()
	testutil.Run(t, "", "nft", "flush", "ruleset")
	for _, tool := range []string{"iptables-legacy", "ip6tables-legacy"} {
		for _, chain := range filterChains {
			testutil.Run(t, "", tool, "-P", chain, "ACCEPT")
		}
		for _, table := range iptTables {
			testutil.Run(t, "", tool, "-t", table, "-F")
			testutil.Run(t, "", tool, "-t", table, "-X")
		}
	}
}

// A policy is set after undoing has read that there is none.
func TestPolicyIsSetWhileUndoing(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	for _, table := range []string{"filter", "nat"} {
		for _, chain := range []string{"OUTPUT", "FORWARD"} {
			if table == "nat" && chain == "FORWARD" {
				continue
			}
			resetRules(t)
			testutil.Run(t, "", "iptables-nft", "-t", table, "-S")
			testutil.Run(t, "*"+table+"\n-A "+chain+" -j ACCEPT\n-D "+chain+" -j ACCEPT\nCOMMIT\n", "iptables-nft-restore", "-n")
			conn, err := dialNF()
			if err != nil {
				t.Fatal(err)
			}
			reads := 0
			left, err := conn.removeUnused(t.Context(), &Before{}, func() {
				reads++
				if reads == 1 {
					testutil.Run(t, "", "nft", "chain", "ip", table, chain, "{ policy drop ; }")
				}
			})
			conn.Close()
			if err != nil || len(left) != 1 || !strings.Contains(left[0], chain+" (its policy is DROP)") {
				t.Errorf("%s %s: said %q, %v", table, chain, left, err)
			}
			if got := testutil.Run(t, "", "nft", "list", "ruleset"); !strings.Contains(got, "policy drop") {
				t.Errorf("%s %s: the policy is gone: %s", table, chain, got)
			}
			if reads != 2 {
				t.Errorf("read %d times", reads)
			}
		}
	}
}

// What others do with the tables of iptables-nft that were made for a path stays, and is said.
func TestUsedByOthersMeanwhile(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	for name, c := range map[string]struct {
		do   []string // commands
		stay string   // what is in the ruleset afterwards
		said []string // parts of what is said; none: nothing is
	}{
		"a policy of nat": {
			do: []string{"nft chain ip nat OUTPUT { policy drop ; }"}, stay: "policy drop",
			said: []string{"of table ip nat the chains OUTPUT (its policy is DROP) stay"},
		},
		"a rule": {
			do: []string{"iptables-nft -A FORWARD -s 192.0.2.1 -j DROP"}, stay: "192.0.2.1",
			said: []string{"of table ip filter the chains FORWARD (it has rules) stay"},
		},
		"a jump to a chain of theirs": {
			do: []string{"iptables-nft -N THEIRS", "iptables-nft -A INPUT -j THEIRS"}, stay: "jump THEIRS",
			said: []string{"of table ip filter the chains INPUT (it has rules) stay"},
		},
		"a chain of theirs": {
			do: []string{"ip6tables-nft -t nat -N THEIRS"}, stay: "chain THEIRS",
			said: []string{"table ip6 nat stays: it was created for this path, and others have chains, sets or objects in it"},
		},
		"a set": {
			do: []string{"nft add set ip nat theirs { type ipv4_addr ; }"}, stay: "set theirs",
			said: []string{"table ip nat stays"},
		},
		"a counter": {
			do: []string{"nft add counter ip filter theirs"}, stay: "counter theirs", said: []string{"table ip filter stays"},
		},
		"a base chain of theirs": {
			do:   []string{"nft add chain ip filter theirs { type filter hook forward priority 5 ; policy drop ; }"},
			stay: "chain theirs", said: []string{"table ip filter stays"},
		},
		"a table that is dormant": {
			do: []string{"nft add table ip filter { flags dormant ; }"}, stay: "flags dormant",
			said: []string{"table ip filter stays: it was created for this path, and it has flags"},
		},
		"a chain that is renamed": {
			do:   []string{"nft rename chain ip filter FORWARD WALL", "nft chain ip filter WALL { policy drop ; }"},
			stay: "chain WALL", said: []string{"table ip filter stays"},
		},
		"a chain that is created again": {
			do: []string{
				"nft flush chain ip filter FORWARD", "nft delete chain ip filter FORWARD",
				"nft add chain ip filter FORWARD { type filter hook forward priority 7 ; }",
			},
			stay: "priority filter + 7", said: []string{"of table ip filter the chains FORWARD (it is another one) stay"},
		},
		"a comment": {
			do: []string{
				"nft flush chain ip filter FORWARD", "nft delete chain ip filter FORWARD",
				`nft add chain ip filter FORWARD { type filter hook forward priority 0 ; comment "theirs" ; }`,
			},
			stay: `comment "theirs"`, said: []string{"of table ip filter the chains FORWARD (it has a comment) stay"},
		},
		"a rule that jumps to ours": {
			do: []string{"iptables-nft -N THEIRS", "iptables-nft -A THEIRS -j SVCPROXY-0123abcd-DROP"}, stay: "chain THEIRS",
			said: []string{"table ip filter stays"},
		},
		"a map that leads to ours": {
			do: []string{
				"nft add map ip filter theirs { type inet_service : verdict ; }",
				"nft add element ip filter theirs { 80 : jump SVCPROXY-0123abcd-DROP }",
			},
			stay: "map theirs",
			said: []string{
				"chain SVCPROXY-0123abcd-DROP of table ip filter stays, without rules: something other than a rule refers to it",
				"table ip filter stays",
			},
		},
		"nothing":        {},
		"what is listed": {do: []string{"iptables-nft -t nat -S", "ip6tables-nft -S"}},
	} {
		t.Run(name, func(t *testing.T) {
			resetRules(t)
			prog := newProgrammer(t, t.TempDir())
			var logged []string
			prog.o.Log = func(line string) { logged = append(logged, line) }
			if _, err := prog.Apply(t.Context(), params(dualStack(), wire.IPTables, wire.BackendNFT, "a")); err != nil {
				t.Fatal(err)
			}
			for _, line := range c.do {
				out, err := exec.CommandContext(t.Context(), "sh", "-c", strings.NewReplacer("{", "'{", "}", "}'").
					Replace(line)).CombinedOutput()
				if err != nil {
					t.Fatalf("%s: %v: %s", line, err, out)
				}
			}
			undone, err := prog.Undo(t.Context(), wire.UndoMine)
			if err != nil || len(undone) != 1 {
				t.Fatalf("%v %v", undone, err)
			}
			got := testutil.Run(t, "", "nft", "list", "ruleset")
			if !strings.Contains(got, c.stay) {
				t.Errorf("%s is gone: %s", c.stay, got)
			}
			if strings.Contains(got, "10.244.1.1") || c.stay == "" && got != "" {
				t.Errorf("left: %s", got)
			}
			said := undone[0].Left
			if len(said) != len(c.said) || len(logged) != len(said) {
				t.Errorf("said %q, logged %q", said, logged)
			}
			for _, part := range c.said {
				if !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, part) }) {
					t.Errorf("%q is not in %q", part, said)
				}
			}
			_, err = prog.Apply(t.Context(), params(dualStack(), wire.NFTables, "", "a"))
			if slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, "chain SVCPROXY-") }) {
				// Without a record a chain of ours is left over, until whoever refers to it does not any more.
				_, refused := errors.AsType[RefusalError](err)
				if !refused || !strings.Contains(err.Error(), "SVCPROXY-0123abcd-DROP") {
					t.Errorf("afterwards, with a chain of ours: %v", err)
				}
			} else if err != nil {
				t.Errorf("afterwards nothing can be programmed: %v", err)
			}
		})
	}
}

// A policy that is changed on a chain that was there before is changed by nobody else.
func TestPolicyOfAnEarlierChain(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	for _, backend := range []string{wire.BackendNFT, wire.BackendLegacy} {
		for before, after := range map[string]string{"ACCEPT": "DROP", "DROP": "ACCEPT"} {
			resetRules(t)
			policy := func(to string) {
				for _, chain := range filterChains {
					testutil.Run(t, "", "iptables-"+backend, "-P", chain, to)
				}
			}
			policy(before)
			prog := newProgrammer(t, t.TempDir())
			if _, err := prog.Apply(t.Context(), params(web(0, "10.244.1.1:8080"), wire.IPTables, backend, "a")); err != nil {
				t.Fatal(err)
			}
			policy(after)
			undone, err := prog.Undo(t.Context(), wire.UndoMine)
			if err != nil || len(undone) != 1 || len(undone[0].Left) != 0 {
				t.Errorf("%s: %v %v", backend, undone, err)
			}
			got := policies(t, backend)
			for _, chain := range filterChains {
				if got["iptables "+chain] != after {
					t.Errorf("%s: the policy of %s is %s, and was set to %s", backend, chain, got["iptables "+chain], after)
				}
			}
		}
	}
}

// While a path is programmed, somebody restores all rules, and with them removes ours.
func TestOthersRestoreEverythingMeanwhile(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	const rules = "*nat\n:PREROUTING ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n" +
		":POSTROUTING ACCEPT [0:0]\n:THEIRS - [0:0]\n-A PREROUTING -j THEIRS\n-A THEIRS -d 192.0.2.7/32 -j ACCEPT\nCOMMIT\n" +
		"*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n-A INPUT -s 192.0.2.8/32 -j ACCEPT\nCOMMIT\n"
	for _, backend := range []string{wire.BackendNFT, wire.BackendLegacy} {
		for end, do := range endings {
			resetRules(t)
			prog := newProgrammer(t, t.TempDir())
			if _, err := prog.Apply(t.Context(), params(web(0, "10.244.1.1:8080"), wire.IPTables, backend, "a")); err != nil {
				t.Fatal(err)
			}
			testutil.Run(t, rules, "iptables-"+backend+"-restore")
			want := testutil.Listing(t, "iptables-"+backend+"-save")
			do(t, prog)
			if got := testutil.Listing(t, "iptables-"+backend+"-save"); got != want {
				t.Errorf("%s, %s: the rules are\n%s\nand were\n%s", backend, end, got, want)
			}
		}
	}
}
