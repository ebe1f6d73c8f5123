// SPDX-License-Identifier: Apache-2.0

package captured

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/collect"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/program"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// mode is what to program in, and iptables' backend.
type mode struct{ Name, Backend string }

// programmed is what is programmed in one network namespace.
type programmed struct {
	Fixture string
	Only    []string // names of Services; none: all
	// Unbound: the node does not have the addresses that kube-proxy has bound in ipvs mode, so that what it sends comes
	// from another one.
	Unbound bool
	// Ranges take the place of loadBalancerSourceRanges; what is programmed is compared with the expectation alone, as the
	// captured rules have others.
	Ranges []string
	Mode   mode
}

func (c *programmed) String() string {
	return strings.TrimSpace(strings.Join(append(slices.Concat([]string{c.Fixture}, c.Only, c.Ranges), c.Mode.Name,
		c.Mode.Backend), " "))
}

// The whole of each fixture, programmed by us on a node without kube-proxy: the walk of our rules, and packets through
// them, end as kube-proxy's own rules have them end. Then it is taken away, and the node is as before. CI takes one in
// three.
func TestProgramFixtures(t *testing.T) {
	testutil.Long(t)
	testutil.NeedRoot(t, tools...)
	prepare(t)
	for i, p := range programmings {
		for j, w := range modes {
			c := p
			if c.Mode = w; c.Unbound && w.Name == wire.IPVS || !testutil.OneIn(3, i+j) {
				continue // IPVS binds them
			}
			t.Run(c.String(), func(t *testing.T) {
				t.Parallel() // each has a network namespace of its own
				if testutil.Isolate(t, unix.CLONE_NEWNET) {
					c.run(t)
				}
			})
		}
	}
}

// programmings are all of them, but for the modes.
var programmings = []programmed{
	{Fixture: "iptables"},
	{Fixture: "real-2node-iptables"},
	{Fixture: "nftables"},
	{Fixture: "real-2node-nftables"},
	{Fixture: "ipvs"},
	// What the node sends to a load-balancer IP that is not its own is not restricted to source ranges on a node of ipvs
	// mode, whatever it is programmed in.
	{Fixture: "ipvs", Only: []string{"dual-lb", "lb-ranges"}, Unbound: true},
	// What it sends from a load-balancer IP is dropped, though that be in the ranges, where its own IP is not.
	{Fixture: "ipvs", Only: []string{"lb-ranges"}, Ranges: []string{"203.0.113.0/24"}},
}

// plan plans every Service that can be programmed, or of the named ones.
func (c *programmed) plan(t *testing.T, prog *program.Programmer, cluster *snapshot.Cluster,
	node *snapshot.Node,
) *plan.Plan {
	t.Helper()
	var all plan.Plan
	for _, svc := range cluster.Services {
		if len(c.Only) > 0 && !slices.Contains(c.Only, svc.Name) {
			continue
		}
		req := plan.Request{Services: []*corev1.Service{svc}}
		if c.Mode.Name == wire.IPVS {
			req.NoLoopback = plan.NoLoopbackInIPVS
		}
		p, left, _, err := judge.PlanFiles(cluster, node, req)
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
	if c.Mode.Name == wire.IPVS {
		leaveOut(t, &all, func() error {
			dry := c.params(&all)
			dry.DryRun = true
			_, err := prog.Apply(t.Context(), dry)
			return err
		})
	}
	return &all
}

// leaveOut takes a Service out of the plan for each refusal, as one virtual server cannot treat clients differently.
func leaveOut(t *testing.T, p *plan.Plan, try func() error) {
	t.Helper()
	var out []string
	for err := try(); err != nil; err = try() {
		if _, refused := errors.AsType[program.RefusalError](err); !refused ||
			!strings.Contains(err.Error(), "cannot be served by IPVS") {
			t.Fatal(err)
		}
		at := slices.IndexFunc(p.Frontends, func(f plan.Frontend) bool {
			return strings.HasPrefix(err.Error(), fmt.Sprintf("%s %s/%s ", f.Kind, f.Address, f.Protocol))
		})
		if at < 0 {
			t.Fatal("of no frontend: ", err)
		}
		service := func(f plan.Frontend) string { s, _, _ := strings.Cut(f.Port, ":"); return s }
		name := service(p.Frontends[at])
		out = append(out, name)
		p.Frontends = slices.DeleteFunc(p.Frontends, func(f plan.Frontend) bool { return service(f) == name })
	}
	if len(out) > 8 {
		t.Errorf("IPVS cannot serve %d Services: %q", len(out), out)
	}
	if len(out) > 0 {
		t.Logf("compared are all but %d Services, which IPVS cannot serve: %s", len(out), strings.Join(out, ", "))
	}
}

func (c *programmed) params(p *plan.Plan) *program.Request {
	return &program.Request{Plan: p, ProgramOptions: wire.ProgramOptions{
		Mode: c.Mode.Name, Backend: c.Mode.Backend, TTL: 10 * time.Minute, Run: "run", By: "the tests",
		Allow: plan.Askable(), // this is not the captured node
	}}
}

// bindAsIPVS gives the node the addresses that kube-proxy has bound in ipvs mode, on lo as not every kernel has other
// interfaces for them.
func bindAsIPVS(t *testing.T, node *snapshot.Node) {
	t.Helper()
	data, _, err := node.File("ip-addr.json")
	if err != nil {
		t.Fatal(err)
	}
	var links []struct {
		Name      string                       `json:"ifname"`
		Addresses []struct{ Local netip.Addr } `json:"addr_info"`
	}
	if err := json.Unmarshal(data, &links); err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		for _, a := range l.Addresses {
			if l.Name == "kube-ipvs0" && !a.Local.IsLinkLocalUnicast() {
				words := []string{"ip", "address", "add", netip.PrefixFrom(a.Local, a.Local.BitLen()).String(), "dev", "lo"}
				if a.Local.Is6() {
					words = append(words, "nodad") // else it is tentative for a moment, and the listing changes by itself
				}
				testutil.Run(t, "", words...)
			}
		}
	}
}

// state is what a programming may change.
func state(t *testing.T) string {
	t.Helper()
	return testutil.Listing(t, slices.Concat(testutil.Rules, []string{"ip -o address"}, ipvsStates)...)
}

func (c *programmed) run(t *testing.T) {
	t.Helper()
	cluster, node := captured(t, c.Fixture)
	for _, svc := range cluster.Services {
		if c.Ranges != nil && slices.Contains(c.Only, svc.Name) {
			svc.Spec.LoadBalancerSourceRanges = c.Ranges
		}
	}
	want := judge.Files(cluster, node, judge.Request{Matching: true, PerPathService: true})
	sources := remoteSources(&want)
	w := emptyNodeNetwork(t, sources)
	if !c.Unbound && c.Mode.Name != wire.IPVS {
		bindAsIPVS(t, node)
	}
	// In the legacy backend a table appears as it is first asked for, and stays.
	if c.Mode.Backend == wire.BackendLegacy {
		testutil.LegacyTables(t)
	}
	before := state(t)
	prog, err := program.New(program.Options{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	p := c.plan(t, prog, cluster, node)
	begin := time.Now()
	res, err := prog.Apply(t.Context(), c.params(p))
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
	ours := func(path *report.Path) bool {
		a, err := netip.ParseAddr(path.Frontend.Address)
		return err == nil && has[netip.AddrPortFrom(a, uint16(path.Frontend.Port)).String()+path.Frontend.Protocol]
	}
	got := judge.Files(cluster, withRules(t, node), judge.Request{Matching: true, PerPathService: true})
	if got.Error != "" {
		t.Fatal(got.Error)
	}
	byKey := map[string]*report.Path{}
	for i := range got.Paths {
		byKey[pathKey(&got.Paths[i])] = &got.Paths[i]
	}
	walked := 0
	var paths []report.Path
	for i := range want.Paths {
		k := &want.Paths[i]
		if !ours(k) {
			continue
		}
		walked++
		mine := byKey[pathKey(k)]
		if mine == nil {
			t.Errorf("%s is not judged", pathKey(k))
			continue
		}
		paths = append(paths, *mine)
		if a, b := shares(k), shares(mine); !slices.Equal(a, b) && c.Ranges == nil &&
			!(c.Unbound && k.Origin.Kind == "node") {
			t.Errorf("%s: kube-proxy's rules %q, ours %q", pathKey(k), a, b)
		}
		if mine.Verdict != report.Match && mine.Verdict != report.ByDesign {
			t.Errorf("%s from %s is judged %s: %+v", pathKey(k), mine.Origin.Address, mine.Verdict, mine.Findings)
		}
	}
	// Packets through them.
	w.listen(paths)
	w.compare(c.String(), paths)
	if c.Ranges == nil {
		t.Logf("%d paths compared with kube-proxy's by the walk", walked)
	}

	if _, err := prog.Undo(t.Context(), wire.UndoMine); err != nil {
		t.Fatal(err)
	}
	if after := state(t); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// withRules is the captured node with the rules, virtual servers and addresses that are here.
func withRules(t *testing.T, node *snapshot.Node) *snapshot.Node {
	t.Helper()
	files := ruleFiles
	if slices.Contains(modes, mode{wire.IPVS, wire.BackendNFT}) {
		files = slices.Concat(files, ipvsFiles, []string{"sysctl.txt"})
	}
	out := map[string][]byte{}
	for _, f := range snapshot.NodeFiles {
		data, ok, err := node.File(f)
		if err != nil {
			t.Fatal(err)
		}
		if ok && !slices.Contains(files, f) && !slices.Contains(ipvsFiles, f) &&
			!strings.HasSuffix(f, "tables-save.txt") {
			out[f] = data
		}
	}
	err := collect.Collect(t.Context(), collect.Options{Root: "/", Files: files}, func(f collect.File) error {
		if f.Unread != "" {
			return errors.New(f.Name + ": " + f.Unread)
		}
		out[f.Name] = f.Data
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	out[snapshot.UnreadFile] = snapshot.EncodeUnread(nil)
	return snapshot.NewNode(node.Name, out)
}

// ruleFiles are collected here, and ipvsFiles where there is IPVS; what the captured kube-proxy made is in all of them.
var (
	ruleFiles = []string{
		"iptables-nft-save.txt", "ip6tables-nft-save.txt", "iptables-legacy-save.txt",
		"ip6tables-legacy-save.txt", "nft-ruleset.json", "ip-addr.json", snapshot.TimeFile,
	}
	ipvsFiles = []string{"ipvsadm.txt", "ipset-save.txt"}
)

// pathKey names a path. The node asks from the frontend's address where that is its own, as IPVS needs it.
func pathKey(p *report.Path) string {
	from := p.Origin.Address
	if p.Origin.Kind == "node" && p.Frontend.Kind != "NodePort" {
		from = "-"
	}
	return strings.Join([]string{
		p.Service.Namespace, p.Service.Name, p.Frontend.Kind, p.Frontend.Address,
		p.Frontend.PortName, p.Frontend.Protocol, p.Origin.Kind, from,
	}, " ")
}

// shares are the outcomes of a path; what is refused is dropped where we refuse it.
func shares(p *report.Path) []string {
	out := outcomes(*p)
	for i, o := range out {
		if o == "Reject" {
			out[i] = "Drop"
		}
	}
	slices.Sort(out)
	// what is dropped behind IPVS is dropped once for each endpoint; of DNAT there is one for each
	return slices.Compact(out)
}
