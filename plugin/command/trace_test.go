// SPDX-License-Identifier: Apache-2.0

package command

import (
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

func TestTraceSelects(t *testing.T) {
	shop := " -n shop --snapshot " + broken
	for _, tt := range []struct{ args, want string }{
		{
			"api",
			"ClusterIP 10.96.62.156 pod, ClusterIP 10.96.62.156 node, NodePort 10.77.0.11 external, NodePort 10.77.0.11 " +
				"node, NodePort 127.0.0.1 node",
		},
		{"10.96.62.156:80", "ClusterIP 10.96.62.156 pod, ClusterIP 10.96.62.156 node"},
		{"10.77.0.11:30080", "NodePort 10.77.0.11 external, NodePort 10.77.0.11 node"},
		{"127.0.0.1:30080", "NodePort 127.0.0.1 node"},
		{"10.96.62.156 --from node", "ClusterIP 10.96.62.156 node"},
		{"10.96.62.156 --from pod", "ClusterIP 10.96.62.156 pod"},
		{"10.96.62.156 --from 192.0.2.1", "ClusterIP 10.96.62.156 external"},
		{"10.96.62.156 --from 10.77.0.11", "ClusterIP 10.96.62.156 node"},
		{"10.96.62.156 --from 10.77.0.12 --node worker-1", "ClusterIP 10.96.62.156 external"},
		{"10.96.62.156 --from 10.244.1.15", "ClusterIP 10.96.62.156 pod"},
		{"10.96.62.156 --from pod/web-7c9d8f6b5d-2xkqp", "ClusterIP 10.96.62.156 pod"},
		{"10.96.62.156 --from pod/shop/web-7c9d8f6b5d-2xkqp -n default", "ClusterIP 10.96.62.156 pod"},
	} {
		r := reportOf(t, "trace "+tt.args+shop)
		if got := frontends(r); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.args, got, tt.want)
		}
	}
	r := reportOf(t, "trace api --from pod/web-7c9d8f6b5d-2xkqp"+shop)
	if r.Nodes[0].Paths[0].Origin.Pod != "shop/web-7c9d8f6b5d-2xkqp" {
		t.Errorf("got %+v", r.Nodes[0].Paths[0].Origin)
	}
}

// A named pod and the address of a NodePort settle the node.
func TestTracePins(t *testing.T) {
	two := " -n shop --snapshot " + twoNodes(t)
	for _, args := range []string{"trace web --from pod/web-7c9d8f6b5d-2xkqp", "trace 10.77.0.11:30080"} {
		if r := reportOf(t, args+two); len(r.Nodes) != 1 || r.Nodes[0].Node != "worker-1" {
			t.Errorf("%s: %d nodes were read", args, len(r.Nodes))
		}
	}
	for args, want := range map[string]string{
		"trace web --from pod/web-7c9d8f6b5d-2xkqp --node worker-2": "is on node worker-1, where its packets start: " +
			"give --node worker-1",
		"trace web --from pod/web-7c9d8f6b5d-2xkqp --all-nodes": "give --node worker-1",
		"trace web --from pod/web-7c9d8f6b5d-q9v4n": "is on node worker-3, which is not in the snapshot: " +
			"it holds worker-1, worker-2",
	} {
		code, _, stderr := runPlugin(t, strings.Fields(args+two)...)
		if code != run.ExitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: got %d and %q, want %q", args, code, stderr, want)
		}
	}
}

func TestTraceSteps(t *testing.T) {
	args := "trace web -n shop --snapshot " + broken
	if r := reportOf(t, args); len(r.Nodes[0].Paths[0].Steps) == 0 {
		t.Error("json has no steps")
	}
	if _, wide, _ := runPlugin(t, strings.Fields(args+" -o wide")...); !strings.Contains(wide, "rule by rule\n   HOOK") {
		t.Error("wide has no steps")
	}
}

func TestVerify(t *testing.T) {
	r := reportOf(t, "verify -A --snapshot "+broken)
	if r.Kind != report.KindVerify || r.Service != nil || len(r.Nodes[0].Paths) != 11 ||
		r.Nodes[0].Paths[0].Service == nil {
		t.Errorf("got kind %s with %d paths", r.Kind, len(r.Nodes[0].Paths))
	}
	if r := reportOf(t, "verify -A --show-all --snapshot "+broken); len(r.Nodes[0].Paths) != r.Summary.Paths {
		t.Errorf("--show-all lists %d of %d paths", len(r.Nodes[0].Paths), r.Summary.Paths)
	}
	r = reportOf(t, "verify api:http 10.96.21.191 -n shop --show-all --from pod --snapshot "+broken)
	if !strings.Contains(frontends(r), "NodePort") || !strings.Contains(frontends(r), "10.96.21.191") {
		t.Errorf("got %s", frontends(r))
	}
}

// The node's own packets are routed again where the nat chains of OUTPUT have translated them (ip_route_me_harder, by
// nf_nat_ipv4_local_fn in net/netfilter/nf_nat_proto.c): the filter chains of OUTPUT come behind that.
func TestRoutesStandWhereTheyAreTaken(t *testing.T) {
	r := reportOf(t, "trace web -n shop --from node --snapshot "+broken)
	p := &r.Nodes[0].Paths[0]
	again := 0
	for _, route := range p.Routes {
		if route.Before != "POSTROUTING" {
			continue
		}
		again++
		for i, s := range p.Steps {
			if before := i < route.Step; s.Hook == "OUTPUT" && before != (s.Table == "nat") {
				t.Errorf("%s %s is met before the route by %s: %v", s.Table, s.Chain, route.Dev, before)
			}
		}
	}
	if again == 0 {
		t.Error("there is no second routing decision")
	}
}

// A step says for which endpoints it is, where it is not for all of them.
func TestStepsSayTheirEndpoints(t *testing.T) {
	r := reportOf(t, "trace web -n shop --from pod --snapshot "+broken)
	got := map[string]string{}
	for _, s := range r.Nodes[0].Paths[0].Steps {
		got[s.Chain+" "+s.Verdict] = strings.Join(s.Endpoints, ",")
	}
	for step, want := range map[string]string{
		"KUBE-SERVICES jump KUBE-SVC-67NZLRHBNDSAWJRO":             "",
		"KUBE-SVC-67NZLRHBNDSAWJRO jump KUBE-SEP-LPRYETXTYMQCMNCE": "10.244.1.15:8080",
		"KUBE-SEP-LPRYETXTYMQCMNCE DNAT to 10.244.1.15 port 8080":  "10.244.1.15:8080",
		"KUBE-SVC-67NZLRHBNDSAWJRO jump KUBE-SEP-EMUAPVFCFHRD2FOR": "10.244.2.9:8080",
		"FORWARD jump KUBE-FORWARD":                                "",
	} {
		if have, ok := got[step]; !ok || have != want {
			t.Errorf("%s: got %q (%v), want %q", step, have, ok, want)
		}
	}
}

// The rules of a chain are met in their order, whichever of them the walk comes to first: it follows the connections to
// one endpoint after those to another.
func TestStepsAreInTheOrderOfTheRules(t *testing.T) {
	r := reportOf(t, "trace checkout -n shop --from pod --snapshot "+broken)
	var rules []int
	for _, s := range r.Nodes[0].Paths[0].Steps {
		if s.Hook == "FORWARD" && s.Chain == "FORWARD" {
			rules = append(rules, s.Rule)
		}
	}
	if !slices.IsSorted(rules) || len(rules) < 2 || rules[0] != 1 {
		t.Errorf("got %v: rule 1 drops those to one endpoint, the others are met behind it", rules)
	}
}

// After a Match the next thing to try is named: real connections, then what is behind the client's node.
func TestNextAfterAMatch(t *testing.T) {
	nodes := []report.NodeReport{{Node: "worker-1", Verdict: report.Match, Paths: []report.Path{
		{Verdict: report.Match, Origin: report.Origin{Kind: "pod", Address: "10.244.1.9", Pod: "shop/client", Sample: true}},
	}}}
	r := report.Combine(report.KindTrace, &report.ServiceInfo{Namespace: "shop", Name: "web"}, nodes)
	service := []string{"web", "-n", "shop"}
	const (
		live     = "kubectl svcproxy trace web -n shop --live --node worker-1"
		endToEnd = "kubectl svcproxy trace web -n shop --end-to-end --from pod/shop/client"
	)
	for name, tt := range map[string]struct {
		c    traceConfig
		want string
	}{
		"a cluster":          {traceConfig{live: true}, live + "\n" + endToEnd},
		"real connections":   {traceConfig{live: true, probes: 20}, endToEnd},
		"this machine alone": {traceConfig{live: true, local: true, again: []string{"--local"}}, live + " --local"},
		"a snapshot":         {traceConfig{}, ""},
	} {
		next := tt.c.afterMatch(r, service)
		var lines []string
		for _, command := range next.Commands {
			lines = append(lines, command.Line)
		}
		if got := strings.Join(lines, "\n"); got != tt.want || next.Text == "" {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}
