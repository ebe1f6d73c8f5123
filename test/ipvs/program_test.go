// SPDX-License-Identifier: Apache-2.0

//go:build vm

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	helper "github.com/svcproxy/kubectl-svcproxy/nodehelper/program"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// captures is the node as the helper's code collects it now, beside the captured objects.
func captures(t *testing.T) (*snapshot.Cluster, map[string][]byte) {
	t.Helper()
	_, cluster := snap.Open(t, captured)
	addClient(cluster)
	files := map[string][]byte{}
	for name, data := range collected(t) {
		files[name] = []byte(data)
	}
	return cluster, files
}

func judgedFiles(t *testing.T, cluster *snapshot.Cluster, files map[string][]byte) *report.NodeReport {
	t.Helper()
	r := judge.Files(cluster, snapshot.NewNode(nodeName, files), judge.Request{Matching: true, PerPathService: true})
	if r.Error != "" {
		t.Fatal(r.Error)
	}
	return &r
}

// planned are all Services, or the named ones, as one plan.
func planned(t *testing.T, cluster *snapshot.Cluster, files map[string][]byte, only ...string) *plan.Plan {
	t.Helper()
	all := &plan.Plan{}
	for _, svc := range cluster.Services {
		name := svc.Namespace + "/" + svc.Name
		if len(only) > 0 && !slices.Contains(only, name) {
			continue
		}
		p, _, _, err := judge.PlanFiles(cluster, snapshot.NewNode(nodeName, files),
			plan.Request{Services: []*corev1.Service{svc}})
		if _, no := errors.AsType[plan.RefusalError](err); no {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		all.Name, all.Mark = p.Name, p.Mark
		all.Services = append(all.Services, p.Services...)
		all.Frontends = append(all.Frontends, p.Frontends...)
	}
	if err := all.Check(); err != nil {
		t.Fatal(err)
	}
	return all
}

func programmer(t *testing.T) *helper.Programmer {
	t.Helper()
	p, err := helper.New(helper.Options{Root: "/"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func asking(p *plan.Plan, scheduler string) *helper.Request {
	return &helper.Request{Plan: p, ProgramOptions: wire.ProgramOptions{
		Mode: wire.IPVS, Backend: wire.BackendNFT, Scheduler: scheduler, TTL: time.Hour, Run: "run", By: "the tests",
		Allow: plan.Askable(),
	}}
}

func apply(t *testing.T, p *helper.Programmer, req *helper.Request) *wire.ProgramResult {
	t.Helper()
	begin := time.Now()
	r, err := p.Apply(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d frontends in %v", r.What, len(req.Plan.Frontends), time.Since(begin).Round(time.Millisecond))
	return r
}

func undo(t *testing.T, p *helper.Programmer, which string) {
	t.Helper()
	begin := time.Now()
	undone, err := p.Undo(t.Context(), which)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d undone in %v", len(undone), time.Since(begin).Round(time.Millisecond))
	if left, err := filepath.Glob("/run/svcproxy/*"); len(left) > 0 || err != nil {
		t.Errorf("%v is left of the journal (%v)", left, err)
	}
}

// exactly is the node as undoing has to leave it: in the order in which the tools print it, without counters.
func exactly(t *testing.T) string {
	t.Helper()
	return testutil.Listing(t, "ipvsadm-save -n", "iptables-save", "ip6tables-save", "ip -o addr", "ipset save",
		"sysctl net.ipv4.vs.conntrack net.ipv4.vs.expire_nodest_conn")
}

func unchanged(t *testing.T, before string) {
	t.Helper()
	after := exactly(t)
	if after == before {
		return
	}
	same(t, sorted(before), sorted(after))
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("line %d was %q, and is %q", i, a[i], b[i])
		}
	}
	t.Errorf("%d lines, and %d", len(a), len(b))
}

// origin names a path but for the address that the node asks from: with a frontend's address for its own it is that
// one.
func origin(p *report.Path) string {
	q := *p
	if q.Origin.Kind == "node" && q.Frontend.Kind != "NodePort" {
		q.Origin.Address = ""
	}
	return pathName(&q)
}

// comparePaths compares every planned path with what it was when kube-proxy served it, and returns how many there are.
func comparePaths(t *testing.T, p *plan.Plan, before, after *report.NodeReport) []*report.Path {
	t.Helper()
	has := map[string]bool{}
	for i := range p.Frontends {
		has[p.Frontends[i].Address.String()+p.Frontends[i].Protocol] = true
	}
	was := map[string]*report.Path{}
	for i := range before.Paths {
		was[origin(&before.Paths[i])] = &before.Paths[i]
	}
	var out []*report.Path
	for i := range after.Paths {
		path := &after.Paths[i]
		a, err := netip.ParseAddr(path.Frontend.Address)
		if err != nil || !has[netip.AddrPortFrom(a, uint16(path.Frontend.Port)).String()+path.Frontend.Protocol] {
			continue
		}
		out = append(out, path)
		switch old := was[origin(path)]; {
		case old == nil:
			t.Errorf("%s was no path before", origin(path))
		case outcomes(path) != outcomes(old):
			t.Errorf("%s: %s; kube-proxy's: %s", origin(path), outcomes(path), outcomes(old))
		}
		if path.Verdict != report.Match && path.Verdict != report.ByDesign {
			t.Errorf("%s is judged %s: %+v", origin(path), path.Verdict, path.Findings)
		}
		if strings.Contains(outcomes(path), "DNAT") &&
			!slices.ContainsFunc(path.Findings, func(f report.Finding) bool { return f.Code == judge.Programmed }) {
			t.Errorf("%s: nothing says that it was programmed: %s %+v", origin(path), path.Verdict, path.Findings)
		}
	}
	return out
}

// ask opens connections on paths, and says how many there were.
func askPaths(t *testing.T, paths []*report.Path) (asked, packets int) {
	t.Helper()
	places := map[string]testutil.Thread{
		"node": threadAt(t, ""), "pod": threadAt(t, "client"), "external": threadAt(t, "outside"),
	}
	arrived := map[string]bool{}
	for _, p := range paths {
		if p.Origin.Address == "" || p.Frontend.Protocol == "SCTP" {
			continue
		}
		from := netip.MustParseAddr(p.Origin.Address)
		if p.Origin.Kind == "external" && !arrived[p.Origin.Address] {
			arrived[p.Origin.Address] = true
			fromOutside(t, from)
		}
		asked++
		n, problem := compare(places[p.Origin.Kind], p, from)
		packets += n
		if problem != "" {
			t.Errorf("%s: %s; the walk says %s", pathName(p), problem, outcomes(p))
		}
	}
	return asked, packets
}

// Beside a kube-proxy that works, all of its virtual servers are changed, and put back.
func TestProgramBesideKubeProxy(t *testing.T) {
	cluster, files := captures(t)
	was := judgedFiles(t, cluster, files)
	p := planned(t, cluster, files)
	before := exactly(t)
	prog := programmer(t)
	req := asking(p, "wlc")
	req.DryRun = true
	if r := apply(t, prog, req); r.What != wire.Planned || len(r.Commands) < len(p.Frontends) ||
		len(r.Added) < len(p.Frontends) || len(r.Removed) < len(p.Frontends) {
		t.Errorf("%s: %d commands, %d lines added, %d removed", r.What, len(r.Commands), len(r.Added), len(r.Removed))
	}
	unchanged(t, before)
	req.DryRun = false
	apply(t, prog, req)
	_, files = captures(t)
	paths := comparePaths(t, p, was, judgedFiles(t, cluster, files))
	t.Logf("%d paths", len(paths))
	if len(paths) < 150 {
		t.Errorf("only %d paths were planned", len(paths))
	}
	if n := strings.Count(do(t, "ipvsadm-save -n"), " -s wlc"); n != len(p.Frontends) {
		t.Errorf("%d virtual servers have the scheduler, and %d frontends are planned", n, len(p.Frontends))
	}
	if r := apply(t, prog, req); r.What != wire.Unchanged {
		t.Errorf("a second time: %s", r.What)
	}
	undo(t, prog, wire.UndoMine)
	unchanged(t, before)
}

// ep3 is a Service of three endpoints, with a cluster IP; ep3Server is its virtual server.
const (
	ep3       = "shop/ep3"
	ep3Server = "10.96.180.79:80"
)

// broken makes what a kube-proxy that no longer syncs leaves behind: an endpoint that is missing, one that gets
// nothing, and one that is gone.
func broken(t *testing.T) (repair func()) {
	t.Helper()
	do(t, "ipvsadm -e -t "+ep3Server+" -r 10.244.2.20:8080 -m -w 0")
	do(t, "ipvsadm -d -t "+ep3Server+" -r 10.244.1.19:8080")
	do(t, "ipvsadm -a -t "+ep3Server+" -r 10.244.2.99:8080 -m -w 1")
	return func() {
		do(t, "ipvsadm -D -t "+ep3Server)
		do(t, "ipvsadm -A -t "+ep3Server+" -s rr")
		for _, r := range []string{"10.244.2.20", "10.244.1.19", "10.244.3.21"} {
			do(t, "ipvsadm -a -t "+ep3Server+" -r "+r+":8080 -m -w 1")
		}
	}
}

// A virtual server that is not right is while it is programmed, in each of its states, and then as wrong as before.
func TestProgramRepairsAVirtualServer(t *testing.T) {
	listen(t)
	cluster, files := captures(t)
	was := judgedFiles(t, cluster, files)
	p := planned(t, cluster, files, ep3)
	defer broken(t)()
	before := exactly(t)
	prog := programmer(t)
	for _, scheduler := range []string{"", "sh", "nq"} {
		apply(t, prog, asking(p, scheduler))
		_, files = captures(t)
		paths := comparePaths(t, p, was, judgedFiles(t, cluster, files))
		if asked, n := askPaths(t, paths); asked < 2 {
			t.Errorf("%d paths asked, %d connections", asked, n)
		}
	}
	// An update: of three endpoints one, and back. The real server that stays was never away.
	const gone = "10.96.251.251"
	own := p.Frontends[0]
	own.Address = netip.MustParseAddrPort(gone + ":80")
	two := *p
	two.Frontends = append(slices.Clone(p.Frontends), own)
	apply(t, prog, asking(&two, ""))
	if !strings.Contains(do(t, "ip -o addr"), gone) {
		t.Errorf("the address of a new frontend is not bound")
	}
	all := p.Frontends[0].ForOthers.Endpoints
	if len(all) != 3 {
		t.Fatalf("%v", all)
	}
	one := *p
	one.Frontends = slices.Clone(p.Frontends)
	for i := range one.Frontends {
		f := &one.Frontends[i]
		f.Local = nil
		for _, w := range []*plan.Destination{&f.ForNode, &f.ForOthers} {
			w.Endpoints = w.Endpoints[:1]
		}
		if f.ForPods != nil {
			f.ForPods = &plan.Destination{Endpoints: f.ForPods.Endpoints[:1], Masquerade: f.ForPods.Masquerade}
		}
	}
	if r := apply(t, prog, asking(&one, "")); r.What != wire.Updated {
		t.Errorf("%s", r.What)
	}
	if strings.Contains(do(t, "ip -o addr"), gone) || strings.Contains(do(t, "ipvsadm-save -n"), gone) {
		t.Errorf("a frontend that has gone is still served")
	}
	for line := range strings.Lines(do(t, "ipvsadm-save -n")) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "-a -t "+ep3Server) &&
			strings.HasSuffix(line, "-w 1") != strings.Contains(line, all[0].String()) {
			t.Errorf("%s is %v", line, all)
		}
	}
	if _, err := prog.Apply(t.Context(), asking(p, "dh")); err == nil || !strings.Contains(err.Error(), "dh") {
		t.Errorf("the scheduler dh with real servers that are to get nothing: %v", err)
	}
	undo(t, prog, wire.UndoMine)
	unchanged(t, before)
}

// kube-proxy writes a virtual server anew while it is programmed: from then on it is kube-proxy's again.
func TestKubeProxySyncsMeanwhile(t *testing.T) {
	cluster, files := captures(t)
	p := planned(t, cluster, files)
	right := exactly(t)
	broken(t)
	prog := programmer(t)
	apply(t, prog, asking(p, "lc"))
	sync(t)
	var left []string
	for line := range strings.Lines(do(t, "ipvsadm-save -n")) {
		if strings.Contains(line, " -s lc") {
			left = append(left, line)
		}
	}
	if len(left) > 0 {
		t.Errorf("kube-proxy has left virtual servers as they were, and with them nothing is shown: %q", left)
	}
	undo(t, prog, wire.UndoMine)
	same(t, sorted(right), sorted(exactly(t)))
}

// sync has kube-proxy write everything, by a Service of both families that comes and goes: each family syncs for its
// own.
func sync(t *testing.T) {
	t.Helper()
	client, err := kubernetes.NewForConfig(access())
	if err != nil {
		t.Fatal(err)
	}
	addresses := []string{"10.96.250.250", "fd00:10:96::fafa"}
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "trigger", Namespace: "shop"},
		Spec: corev1.ServiceSpec{
			ClusterIP: addresses[0], ClusterIPs: addresses, IPFamilyPolicy: new(corev1.IPFamilyPolicyRequireDualStack),
			Ports: []corev1.ServicePort{{Port: 80}},
		},
	}
	if _, err := client.CoreV1().Services("shop").Create(t.Context(), svc, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await := func(there bool) {
		err := kubeProxy.await(func() error {
			for _, a := range addresses {
				if strings.Contains(do(t, "ipvsadm-save -n"), a) != there {
					return fmt.Errorf("the virtual server %s: want %v", a, there)
				}
			}
			return programmed(t.Context())
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	await(true)
	if err := client.CoreV1().Services("shop").Delete(t.Context(), "trigger", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(false)
}

// child is the test's own process, started again to be killed; its value is the file of what it programs.
const child = "SVCPROXY_TEST_PROGRAM"

// TestProgramAndUndoForever is what is killed.
// Whenever a helper is killed as it programs, updates or undoes, the journal leads back.
// killed runs a helper for a time.
// Without kube-proxy, and with nothing of it on the node, what is programmed brings every packet where kube-proxy has
// brought it.
func TestProgramWithoutKubeProxy(t *testing.T) {
	listen(t)
	cluster, files := captures(t)
	was := judgedFiles(t, cluster, files)
	p := planned(t, cluster, files)
	if err := kubeProxy.process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-kubeProxy.ended; err == nil {
		t.Error("kube-proxy has ended by itself")
	}
	defer func() {
		if err := startKubeProxy(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	// kube-proxy --cleanup leaves chains to which other chains of its own still jump.
	for _, tool := range []string{"iptables", "ip6tables"} {
		for _, table := range []string{"nat", "filter", "mangle"} {
			do(t, tool+" -t "+table+" -F")
			do(t, tool+" -t "+table+" -X")
		}
	}
	for _, line := range []string{"ipvsadm -C", "ipset destroy", "ip link del kube-ipvs0"} {
		do(t, line)
	}
	if left := exactly(t); strings.Contains(left, "KUBE-") || strings.Contains(left, "kube-ipvs0") ||
		strings.Contains(left, "ipvsadm-save -n: ") {
		t.Fatalf("kube-proxy's work is still there: %s", left)
	}
	do(t, "sysctl -qw net.ipv4.vs.conntrack=0")
	before := exactly(t)
	prog := programmer(t)
	apply(t, prog, asking(p, ""))
	now := map[string]string{}
	for _, f := range []string{
		"iptables-nft-save.txt", "ip6tables-nft-save.txt", "iptables-legacy-save.txt", "ip6tables-legacy-save.txt",
		"nft-ruleset.json", "ipset-save.txt", "ipvsadm.txt",
		"ip-addr.json", "ip-link.json", "ip-route.json", "ip6-route.json", "sysctl.txt", "time.txt", "journal.json",
	} {
		delete(files, f)
		maps.Copy(now, collected(t, f))
	}
	for name, data := range now {
		files[name] = []byte(data)
	}
	paths := comparePaths(t, p, was, judgedFiles(t, cluster, files))
	asked, packets := askPaths(t, paths)
	t.Logf("%d paths compared with kube-proxy's by the walk, %d with %d connections", len(paths), asked, packets)
	if len(paths) < 150 || asked < 150 {
		t.Errorf("only %d paths, %d of them asked", len(paths), asked)
	}
	undo(t, prog, wire.UndoMine)
	unchanged(t, before)
}
