// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Nodes of several modes at once are each told theirs, and kube-proxy's own state.
func TestModes(t *testing.T) {
	r := svcproxy(t, append([]string{"mode", "-o", "json"}, nodes...)...)
	if r.code != 0 || len(r.report.Nodes) != len(nodes) {
		t.Fatal(r)
	}
	for i := range r.report.Nodes {
		n := &r.report.Nodes[i]
		m := n.Mode
		want := modeOf(t, n.Node)
		if m == nil || m.Actual != want || m.Reported != want || m.Health != "healthy" || m.LastSync == "" ||
			m.PendingChanges == nil || m.SyncFailures == nil || len(m.Leftovers) > 0 ||
			(m.Backend == "") != (want == "nftables") {
			t.Errorf("node %s, whose kube-proxy says %s: %+v", n.Node, want, m)
		}
	}
	noHelperPods(t)
}

// A node without a running kube-proxy is told so.
func TestModeWithoutKubeProxy(t *testing.T) {
	node := nodes[len(nodes)-1]
	stopKubeProxy(t, node)
	r := svcproxy(t, "mode", node, "-o", "json")
	startKubeProxy(t, node)
	if r.code != 4 || !slices.Equal(codes(&r.report), []string{judge.KubeProxyDown}) ||
		r.report.Nodes[0].Mode.Health != "down" {
		t.Errorf("%v\n%s", codes(&r.report), r)
	}
	wait(t, "kube-proxy is well again", func() (bool, error) {
		r := svcproxy(t, "mode", node, "-o", "json")
		return r.code == 0, fmt.Errorf("%s", r)
	})
}

// Where kube-proxy neither runs nor has rules, and another program serves Services, nothing is claimed.
func TestReplaced(t *testing.T) {
	node := nodes[0]
	at := siteOf(t, node)
	stopKubeProxy(t, node)
	defer func() {
		startKubeProxy(t, node)
		wait(t, "all is right again", func() (bool, error) {
			r := svcproxy(t, "trace", app, "--node", node, "-o", "json")
			return r.code == 0, fmt.Errorf("%s", r)
		})
	}()
	for _, program := range []string{at.program, strings.Replace(at.program, "iptables", "ip6tables", 1)} {
		at.run(program, "-t", "nat", "-F", "KUBE-SERVICES")
	}
	at.run("ip", "link", "add", "cilium_host", "type", "bridge")
	defer at.run("ip", "link", "del", "cilium_host")
	for _, args := range [][]string{{"trace", app, "--node", node}, {"verify", "-A", "--node", node}, {"mode", node}} {
		r := svcproxy(t, append(args, "-o", "json")...)
		n := &r.report.Nodes[0]
		if r.code != 3 || n.Verdict != report.Unknown || len(n.Paths) > 0 ||
			!slices.Equal(codes(&r.report), []string{judge.Replaced}) || n.Mode.ReplacedBy != "Cilium" {
			t.Errorf("%v: %v\n%s", args, codes(&r.report), r)
		}
	}
}
