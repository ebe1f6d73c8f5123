// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/collect"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/program"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/diagnose"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// modes are the ways to program that need no module that this kernel may lack.
var modes = []struct{ mode, backend string }{{wire.IPTables, wire.BackendNFT}, {wire.IPTables, wire.BackendLegacy}, {wire.NFTables, ""}}

// The whole of each fixture, programmed by us on a node without kube-proxy: the walk of our rules, and packets through them, end as kube-proxy's own rules have
// them end. Then it is taken away, and the node is as before.
func TestProgramFixtures(t *testing.T) {
	if v := os.Getenv(inside); v != "" {
		words := strings.Fields(v)
		runProgrammed(t, words[1], words[2], words[3])
		return
	}
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for _, tool := range []string{"unshare", "nsenter", "ip", "conntrack", "iptables-nft-restore", "iptables-legacy-restore", "sysctl", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: %v", tool, err)
		}
	}
	for _, name := range []string{"iptables", "real-2node-iptables", "nftables"} {
		for _, m := range modes {
			backend := m.backend
			if backend == "" {
				backend = "-"
			}
			t.Run(name+" "+m.mode+" "+backend, func(t *testing.T) {
				cmd := exec.Command("unshare", "-n", os.Args[0], "-test.run=^TestProgramFixtures$", "-test.v", "-test.timeout=5m")
				cmd.Env = append(os.Environ(), inside+"=node "+name+" "+m.mode+" "+backend)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				for line := range strings.Lines(string(out)) {
					if strings.Contains(line, "compared") {
						t.Log(strings.TrimSpace(line))
					}
				}
			})
		}
	}
}

// planAll plans every Service that can be programmed.
func planAll(t *testing.T, c *snapshot.Cluster, node *snapshot.Node) *plan.Plan {
	t.Helper()
	var all plan.Plan
	for _, svc := range c.Services {
		p, left, _, err := diagnose.Read(node).Plan(c, plan.Request{Services: []*corev1.Service{svc}})
		if _, refused := errors.AsType[plan.RefusalError](err); refused {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range left {
			t.Log("left out:", svc.Name, l)
		}
		all.Name, all.Mark = p.Name, p.Mark
		all.Services = append(all.Services, p.Services...)
		all.Frontends = append(all.Frontends, p.Frontends...)
	}
	if err := all.Check(); err != nil {
		t.Fatal(err)
	}
	return &all
}

// state is what the save programs show, without counters and comments.
func state(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for _, words := range []string{"iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save", "ip6tables-legacy-save", "nft list ruleset"} {
		argv := strings.Fields(words)
		for line := range strings.Lines(run(t, nil, argv[0], argv[1:]...)) {
			if !strings.HasPrefix(line, "#") {
				line, _, _ = strings.Cut(line, " [") // counters of policies
				out.WriteString(line)
			}
		}
	}
	return out.String()
}

func runProgrammed(t *testing.T, name, mode, backend string) {
	t.Helper()
	c, node := captured(t, name)
	want := diagnose.Node(c, node, diagnose.Request{Matching: true, PerPathService: true})
	p := planAll(t, c, node)
	sources := senders(&want)
	w := emptyWorld(t, sources)
	// In the legacy backend a table appears as it is first asked for, and stays.
	if backend == wire.BackendLegacy {
		for _, words := range []string{"iptables-legacy", "ip6tables-legacy"} {
			run(t, nil, words, "-t", "nat", "-S")
			run(t, nil, words, "-t", "filter", "-S")
		}
	}
	before := state(t)
	prog, err := program.New(program.Options{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if backend == "-" {
		backend = ""
	}
	begin := time.Now()
	res, err := prog.Apply(t.Context(), &wire.ProgramParams{Plan: p, Mode: mode, Backend: backend, TTL: time.Minute, Run: "run", By: "the tests"})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d frontends in %s", res.What, len(p.Frontends), time.Since(begin).Round(time.Millisecond))
	w.serve()

	// The walk of our rules.
	has := map[string]bool{}
	for i := range p.Frontends {
		has[p.Frontends[i].Address.String()+p.Frontends[i].Protocol] = true
	}
	ours := func(path *diagnose.Path) bool {
		a, err := netip.ParseAddr(path.Frontend.Address)
		return err == nil && has[netip.AddrPortFrom(a, uint16(path.Frontend.Port)).String()+path.Frontend.Protocol]
	}
	got := diagnose.Node(c, withRules(t, node), diagnose.Request{Matching: true, PerPathService: true})
	if got.Error != "" {
		t.Fatal(got.Error)
	}
	byKey := map[string]*diagnose.Path{}
	for i := range got.Paths {
		byKey[pathKey(&got.Paths[i])] = &got.Paths[i]
	}
	walked := 0
	var paths []diagnose.Path
	for i := range want.Paths {
		k := &want.Paths[i]
		if !ours(k) {
			continue
		}
		walked++
		paths = append(paths, *k)
		mine := byKey[pathKey(k)]
		if mine == nil {
			t.Errorf("%s is not judged", pathKey(k))
			continue
		}
		if a, b := shares(k), shares(mine); !slices.Equal(a, b) {
			t.Errorf("%s: kube-proxy's rules %q, ours %q", pathKey(k), a, b)
		}
		if mine.Verdict != diagnose.Match && mine.Verdict != diagnose.ByDesign {
			t.Errorf("%s is judged %s: %+v", pathKey(k), mine.Verdict, mine.Findings)
		}
	}
	// Packets through them.
	w.listen(paths)
	w.compare(name+" "+mode+" "+backend, paths)
	t.Logf("%d paths compared with kube-proxy's by the walk", walked)

	if _, err := prog.Undo(t.Context(), wire.UndoMine); err != nil {
		t.Fatal(err)
	}
	if after := state(t); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// withRules is the captured node with the rules that are here.
func withRules(t *testing.T, node *snapshot.Node) *snapshot.Node {
	t.Helper()
	files := map[string][]byte{}
	for _, f := range snapshot.NodeFiles {
		data, ok, err := node.File(f)
		if err != nil {
			t.Fatal(err)
		}
		if ok && !slices.Contains(ruleFiles, f) && !strings.HasSuffix(f, "tables-save.txt") {
			files[f] = data
		}
	}
	err := collect.Collect(t.Context(), collect.Options{Root: "/", Files: ruleFiles}, func(f collect.File) error {
		if f.Unread != "" {
			return errors.New(f.Name + ": " + f.Unread)
		}
		files[f.Name] = f.Data
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	files[snapshot.UnreadFile] = snapshot.EncodeUnread(nil)
	return snapshot.NewNode(node.Name, files)
}

var ruleFiles = []string{"iptables-nft-save.txt", "ip6tables-nft-save.txt", "iptables-legacy-save.txt", "ip6tables-legacy-save.txt", "nft-ruleset.json"}

func pathKey(p *diagnose.Path) string {
	return strings.Join([]string{p.Service.Namespace, p.Service.Name, p.Frontend.Kind, p.Frontend.Address, p.Frontend.PortName, p.Frontend.Protocol, p.Origin.Kind, p.Origin.Address}, " ")
}

// shares are the outcomes of a path; what is refused is dropped where we refuse it.
func shares(p *diagnose.Path) []string {
	out := outcomes(*p)
	for i, o := range out {
		if o == "Reject" {
			out[i] = "Drop"
		}
	}
	slices.Sort(out)
	return out
}
