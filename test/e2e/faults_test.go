// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Faults made for real on a node are found there, with the right code, and after the repair all is right again.
func TestFaults(t *testing.T) {
	node := nodes[0]
	if mode := modeOf(t, node); mode != "iptables" {
		t.Skipf("%s runs kube-proxy in %s mode: the faults are those of iptables mode", node, mode)
	}
	for _, tt := range []struct {
		name    string
		make    func(at site) (repair func())
		verdict report.Verdict
		code    string
	}{
		{"a rule to an endpoint is gone", func(at site) func() {
			chain, rules := at.endpointRules()
			at.run(at.program, "-t", "nat", "-D", chain, strconv.Itoa(len(rules)))
			return func() { restartKubeProxy(at.T, at.node) }
		}, report.Mismatch, "MissingEndpoint"},
		{"a firewall drops what goes to an endpoint", func(at site) func() {
			rule := []string{"FORWARD", "-p", "tcp", "-d", endpointOf(at.T) + "/32", "-j", "DROP"}
			at.run(append([]string{at.program, "-t", "filter", "-I"}, rule...)...)
			return func() { at.run(append([]string{at.program, "-t", "filter", "-D"}, rule...)...) }
		}, report.Mismatch, "Dropped"},
		{"kube-proxy is gone, and the endpoints have moved", func(at site) func() {
			stopKubeProxy(at.T, at.node)
			moveEndpoints(at.T)
			return func() { startKubeProxy(at.T, at.node) }
		}, report.Mismatch, "StaleEndpoint"},
		{"all rules were flushed", func(at site) func() {
			stopKubeProxy(at.T, at.node)
			at.run(at.program, "-t", "nat", "-F", "PREROUTING")
			at.run(at.program, "-t", "nat", "-F", "OUTPUT")
			return func() { startKubeProxy(at.T, at.node) }
		}, report.Mismatch, "NotProgrammed"},
		{"the rules are in the other backend, too", func(at site) func() {
			saved := at.run(at.program+"-save", "-t", "nat")
			onNode(at.T, at.node, strings.NewReader(saved), at.other+"-restore")
			return func() {
				at.run(at.other, "-t", "nat", "-F")
				at.run(at.other, "-t", "nat", "-X")
			}
		}, report.Warning, "SplitBackend"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			repair := sync.OnceFunc(tt.make(siteOf(t, node)))
			defer repair()
			r := svcproxy(t, "trace", app, "--node", node, "-o", "json")
			if r.report.Verdict != tt.verdict || !slices.Contains(codes(&r.report), tt.code) {
				t.Errorf("%s with %v, want %s with %s\n%s", r.report.Verdict, codes(&r.report), tt.verdict, tt.code, r)
			}
			repair()
			wait(t, "all is right again", func() (bool, error) {
				r = svcproxy(t, "trace", app, "--node", node, "-o", "json")
				return r.code == 0 && r.report.Verdict == report.Match, fmt.Errorf("%s", r)
			})
		})
	}
}

// A node whose kube-proxy was switched to another mode is judged in that mode, and again after it was switched back.
func TestModeSwitch(t *testing.T) {
	node := nodes[0]
	if modeOf(t, node) != "iptables" {
		t.Skip("the first node does not run iptables mode")
	}
	at := siteOf(t, node)
	saved := at.run(at.program+"-save", "-t", "nat")
	harness(t, "proxy", node, "nftables")
	defer func() {
		harness(t, "proxy", node, "iptables")
		wait(t, "all is right again", func() (bool, error) {
			r := svcproxy(t, "trace", app, "--node", node, "-o", "json")
			return r.code == 0, fmt.Errorf("%s", r)
		})
	}()
	wait(t, "all is right in nftables mode", func() (bool, error) {
		r := svcproxy(t, "trace", app, "--node", node, "-o", "json")
		return r.code == 0 && r.report.Nodes[0].Mode.Actual == "nftables", fmt.Errorf("%s", r)
	})
	onNode(t, node, strings.NewReader(saved), at.program+"-restore")
	r := svcproxy(t, "mode", node, "-o", "json")
	if r.code != 4 || !slices.Contains(codes(&r.report), judge.ModeLeftover) ||
		len(r.report.Nodes[0].Mode.Leftovers) == 0 {
		t.Errorf("rules of iptables mode beside those of nftables mode: %v\n%s", codes(&r.report), r)
	}
}

// codes lists the codes of all findings of a report.
func codes(r *report.Report) []string {
	var out []string
	for i := range r.Nodes {
		for _, f := range r.Nodes[i].Findings {
			out = append(out, f.Code)
		}
		for k := range r.Nodes[i].Paths {
			for _, f := range r.Nodes[i].Paths[k].Findings {
				out = append(out, f.Code)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// site is a node to make a fault on, with the iptables that kube-proxy uses there, and the other one.
type site struct {
	*testing.T

	node           string
	program, other string
}

func siteOf(t *testing.T, node string) site {
	t.Helper()
	const nft, legacy = "/usr/sbin/iptables-nft", "/usr/sbin/iptables-legacy"
	if strings.Contains(onNode(t, node, nil, nft+"-save", "-t", "nat"), "KUBE-SERVICES") {
		return site{t, node, nft, legacy}
	}
	return site{t, node, legacy, nft}
}

func (s site) run(argv ...string) string {
	s.Helper()
	return onNode(s.T, s.node, nil, argv...)
}

var endpointRule = regexp.MustCompile(`(?m)^-A (KUBE-SVC-\S+) .*-> ([0-9.]+):\d+".*-j KUBE-SEP-\S+$`)

// endpointRules returns the chain that chooses among the endpoints of the Service web, and its rules.
func (s site) endpointRules() (chain string, rules []string) {
	s.Helper()
	for _, m := range endpointRule.FindAllStringSubmatch(s.run(s.program+"-save", "-t", "nat"), -1) {
		if strings.Contains(m[0], `"`+namespace+"/"+app+":http") {
			chain = m[1]
			rules = append(rules, m[0])
		}
	}
	if len(rules) < 2 {
		s.Fatalf("the Service has %d endpoint rules", len(rules))
	}
	return chain, rules
}

// endpointOf returns the address of an endpoint on the other node, so that a packet to it is forwarded.
func endpointOf(t *testing.T) string {
	t.Helper()
	pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Spec.NodeName == nodes[1] && p.DeletionTimestamp == nil && p.Status.PodIP != "" {
			return p.Status.PodIP
		}
	}
	t.Fatal("no endpoint runs on " + nodes[1])
	return ""
}

// moveEndpoints replaces every pod of the Deployment, so that no endpoint has its old address.
func moveEndpoints(t *testing.T) {
	t.Helper()
	pods := client.CoreV1().Pods(namespace)
	old, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		t.Fatal(err)
	}
	for i := range old.Items {
		if err := pods.Delete(t.Context(), old.Items[i].Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, "the old pods are gone", func() (bool, error) {
		for i := range old.Items {
			p, err := pods.Get(t.Context(), old.Items[i].Name, metav1.GetOptions{})
			if err == nil {
				return false, fmt.Errorf("%s is %s", p.Name, p.Status.Phase)
			}
		}
		return true, nil
	})
	if err := endpointsReady(t.Context(), replicas); err != nil {
		t.Fatal(err)
	}
}
