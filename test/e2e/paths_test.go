// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// What is right is said to be right: every kind of Service, from every origin, seen from every node.
func TestRightPaths(t *testing.T) {
	pod, err := client.CoreV1().Pods(namespace).Get(t.Context(), "client", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, n := range nodes {
		all = append(all, "--node", n)
	}
	for _, tt := range []struct {
		name    string
		args    []string
		verdict report.Verdict
		nodes   []string
	}{
		{"a cluster IP", append([]string{"trace", app}, all...), report.Match, nodes},
		{"a NodePort", append([]string{"trace", "svc/" + app + "-nodeport:http"}, all...), report.Match, nodes},
		{"traffic policy Local", append([]string{"trace", app + "-local"}, all...), report.Match, nodes},
		{"a headless Service", append([]string{"trace", app + "-headless"}, all...), report.ByDesign, nodes},
		{"from the node", []string{"trace", app, "--node", nodes[1], "--from", "node"}, report.Match, nodes[1:2]},
		{"from a pod, on its node", []string{"trace", app, "--from", "pod/client"}, report.Match, nodes[:1]},
		{"from an address, on its node", []string{"trace", app, "--from", pod.Status.PodIP}, report.Match, nodes[:1]},
		{
			"by labels",
			[]string{"trace", app, "-l", "kubernetes.io/hostname=" + hostname(t, nodes[1])},
			report.Match, nodes[1:2],
		},
		{"all Services of the namespace", append([]string{"verify"}, all...), report.Match, nodes},
		{
			"with few rights",
			[]string{"trace", app, "--node", nodes[0], "--security-profile", "netadmin"},
			report.Match, nodes[:1],
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := svcproxy(t, append(tt.args, "-o", "json")...)
			if r.code != 0 || r.report.Verdict != tt.verdict {
				t.Errorf("%s: want %s and exit code 0\n%s", r.report.Verdict, tt.verdict, r)
			}
			var got []string
			for i := range r.report.Nodes {
				n := &r.report.Nodes[i]
				got = append(got, n.Node)
				if n.Mode == nil || n.Mode.KubeProxyVersion == "" || n.Mode.Actual == "" {
					t.Errorf("node %s: kube-proxy was not recognised: %+v", n.Node, n.Mode)
				}
			}
			if !slices.Equal(got, tt.nodes) {
				t.Errorf("nodes %v, want %v", got, tt.nodes)
			}
		})
	}
	noHelperPods(t)
}

// Without --node a few are chosen, and named.
func TestChosenNodesAreNamed(t *testing.T) {
	r := svcproxy(t, "trace", app)
	if r.code != 0 {
		t.Fatal(r)
	}
	if !strings.Contains(r.errOut, "note: no --node given: reading ") || !strings.Contains(r.errOut, nodes[0]) {
		t.Errorf("the nodes are not named:\n%s", r)
	}
}

// What was dumped says offline what it said live.
func TestDump(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dump.tar.gz")
	if r := svcproxy(t, "dump", "--node", nodes[0], "--node", nodes[1], "-o", file); r.code != 0 ||
		!strings.Contains(r.out, ": 2 nodes, ") {
		t.Fatal(r)
	}
	r := svcproxy(t, "verify", "-o", "json", "--snapshot", file)
	if r.code != 0 || r.report.Verdict != report.Match || len(r.report.Nodes) != 2 {
		t.Errorf("the dump says\n%s", r)
	}
	live := svcproxy(t, "verify", "-o", "json", "--node", nodes[0], "--node", nodes[1])
	if live.report.Summary != r.report.Summary {
		t.Errorf("live %+v, from the dump %+v", live.report.Summary, r.report.Summary)
	}
	if r := svcproxy(t, "dump", "--node", nodes[0], "-o", filepath.Join(t.TempDir(), "no", "where.tar.gz")); r.code != 2 {
		t.Error(r)
	}
	entries, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(entries) != 1 {
		t.Errorf("beside the dump there is %v, %v", entries, err)
	}
}

// Resolve asks the API alone: it makes no pod.
func TestResolve(t *testing.T) {
	noHelperPods(t)
	r := svcproxy(t, "resolve", app)
	if r.code != 0 || !strings.Contains(r.out, "3 of 3 endpoints of "+namespace+"/"+app+" are used") {
		t.Error(r)
	}
	if names, err := helperPods(t.Context()); err != nil || len(names) > 0 {
		t.Errorf("helper pods: %v, %v", names, err)
	}
}

func hostname(t *testing.T, node string) string {
	t.Helper()
	n, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n.Labels["kubernetes.io/hostname"]
}
