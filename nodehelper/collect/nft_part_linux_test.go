// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// partFaults are made in the kernel with the rules of the fixture "nftables" there; each is a script for nft, in which
// CHAIN(…) is the whole name of a chain or map that begins so.
var partFaults = []struct{ name, script string }{
	{"none", ""},
	{"a Service's chain is empty", "flush chain ip kube-proxy CHAIN(service-FXBA7JML-shop/ep3)"},
	{"a Service's chain drops", "insert rule ip kube-proxy CHAIN(service-FXBA7JML-shop/ep3) drop"},
	{"a map has lost a Service", "delete element ip kube-proxy service-ips { 10.96.77.154 . tcp . 80 }"},
	{
		"a Service leads to another one's chain",
		"delete element ip kube-proxy service-ips { 10.96.77.154 . tcp . 80 }\n" +
			"add element ip kube-proxy service-ips { 10.96.77.154 . tcp . 80 : goto CHAIN(service-R5PPCHH2-shop/np/tcp/) }",
	},
	{
		"another Service's chain drops",
		"insert rule ip kube-proxy CHAIN(service-R5PPCHH2-shop/np/tcp/) drop",
	},
	{"the services chain is empty", "flush chain ip kube-proxy services"},
	{"a base chain is empty", "flush chain ip kube-proxy nat-prerouting"},
	{"somebody else's table drops", "add table ip zz\nadd chain ip zz c { type filter hook prerouting priority 0; }\n" +
		"add rule ip zz c ip daddr 10.244.0.0/16 drop"},
	{"kube-proxy's table is gone", "delete table ip kube-proxy"},
}

// TestAPartIsJudgedAsTheWhole: for each Service, the report on a node of which the rules of other Services were left
// out is that on the whole node, or it says that the whole has to be read. Rules and faults are in the kernel.
func TestAPartIsJudgedAsTheWhole(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET|unix.CLONE_NEWNS, "nft", "ip") {
		return
	}
	must(t, "ip", "link", "set", "lo", "up")
	for _, name := range []string{"nftables", "real-2node-nftables"} {
		objects, node := snap.Node(t, "../../testdata/snapshots/"+name, "node1")
		for _, fault := range partFaults {
			loadRules(t, "../../testdata/snapshots/"+name+"/nodes/node1/"+snapshot.NFTFile)
			if fault.script != "" {
				if name != "nftables" {
					continue
				}
				feed(t, withNames(t, fault.script)+"\n", "nft", "-f", "-")
			}
			listed := node.With(snapshot.NFTFile, []byte("not read"))
			whole := listed.With(snapshot.NFTDumpFile, askKernel(t, nil))
			same, asked := 0, 0
			for _, svc := range objects.Services {
				of := types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}
				request := judge.Request{Services: []types.NamespacedName{of}, Matching: true, Steps: true}
				want := judge.Files(objects, whole, request)
				dump, err := ruleset(dial(t), nil, (&reader{Options: Options{Services: request.Services}}).otherServices(), nil)
				if err != nil {
					t.Fatal(err)
				}
				got := judge.Files(objects, listed.With(snapshot.NFTDumpFile, dump), request)
				if got.Whole != "" {
					asked++
					t.Logf("%s, %s, %s: %s", name, fault.name, of, got.Whole)
					continue
				}
				same++
				if a, b := inCommon(t, &want), inCommon(t, &got); a != b {
					t.Errorf("%s, %s, %s: of the whole\n%s\nof a part\n%s", name, fault.name, of, a, b)
				}
			}
			if same == 0 && !strings.Contains(fault.name, "gone") {
				t.Errorf("%s, %s: the whole was asked for each of %d times", name, fault.name, asked)
			}
			t.Logf("%s, %s: %d reports are the same, %d need the whole", name, fault.name, same, asked)
		}
	}
}

// inCommon is what a report has to have in common, whatever of the node was read: all but its coverage.
func inCommon(t *testing.T, r *report.NodeReport) string {
	t.Helper()
	c := *r
	c.Coverage = nil
	data, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// withNames replaces CHAIN(…) by the whole names.
func withNames(t *testing.T, script string) string {
	t.Helper()
	files := must(t, "nft", "-j", "list", "chains")
	for {
		before, rest, ok := strings.Cut(script, "CHAIN(")
		if !ok {
			return script
		}
		begins, after, _ := strings.Cut(rest, ")")
		_, name, ok := strings.Cut(files, `"name": "`+begins)
		if !ok {
			t.Fatalf("no chain begins with %s", begins)
		}
		name, _, _ = strings.Cut(name, `"`)
		script = before + begins + name + after
	}
}

// A part has the chains that are asked for, says so, and takes every other chain for unread.
func TestWhatAPartOfTheRulesHas(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET|unix.CLONE_NEWNS, "nft", "ip") {
		return
	}
	must(t, "ip", "link", "set", "lo", "up")
	_, node := snap.Node(t, "../../testdata/snapshots/nftables", "node1")
	loadRules(t, "../../testdata/snapshots/nftables/nodes/node1/"+snapshot.NFTFile)
	asked := Options{Services: []types.NamespacedName{{Namespace: "shop", Name: "ep3"}}}
	dump, err := ruleset(dial(t), nil, (&reader{Options: asked}).otherServices(), nil)
	if err != nil {
		t.Fatal(err)
	}
	state, err := nodestate.Load(node.With(snapshot.NFTFile, []byte("not read")).With(snapshot.NFTDumpFile, dump))
	if err != nil || !state.InPart() {
		t.Fatal(state.InPart(), err)
	}
	var of []string
	unread := 0
	for _, table := range state.Rules.Tables {
		for _, c := range table.Chains {
			if c.Unread != "" {
				unread++
				if len(c.Rules) > 0 || strings.Contains(c.Name, "shop/ep3/") || !strings.Contains(c.Name, "/") {
					t.Errorf("%s: %q with %d rules", c.Name, c.Unread, len(c.Rules))
				}
			} else if strings.Contains(c.Name, "/") {
				of = append(of, fmt.Sprintf("%s %s %d", table.Family, c.Name[:len("service-FXBA7JML-shop/ep3/")], len(c.Rules)))
			}
		}
	}
	slices.Sort(of)
	t.Logf("%d chains unread; read %q", unread, of)
	if unread == 0 || len(of) == 0 {
		t.Error("nothing was left out, or nothing of the Service was read")
	}
}
