// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
)

// Every finding that is registered has a section that can be printed, and there are no others.
func TestFindingsAreExplained(t *testing.T) {
	known := map[string]string{}
	for _, k := range judge.Kinds() {
		known[k.Code] = string(k.Severity)
		f, ok := FindingOf(strings.ToLower(k.Code))
		if !ok || f.Code != k.Code || f.Severity != string(k.Severity) || f.Group == "" || f.Summary == "" {
			t.Errorf("%s: got %+v", k.Code, f)
		}
		if strings.ContainsAny(f.Text, "`") || strings.Contains(f.Text, "](") || strings.Contains(f.Text, "**") {
			t.Errorf("%s has marks of Markdown: %s", k.Code, f.Text)
		}
	}
	for _, f := range Findings() {
		if known[f.Code] == "" {
			t.Errorf("%s is not a finding", f.Code)
		}
	}
	if _, ok := FindingOf("Nonsense"); ok {
		t.Error("nonsense is explained")
	}
}

// The list of findings has a line for each, and the line tells it from the others: it is not what several sections
// begin with ("The path is Unknown"), nor a condition alone ("With --live"), nor cut within parentheses.
func TestSummariesTellFindingsApart(t *testing.T) {
	seen := map[string]string{}
	for _, f := range Findings() {
		if other := seen[f.Summary]; other != "" {
			t.Errorf("%s and %s: %q", other, f.Code, f.Summary)
		}
		seen[f.Summary] = f.Code
		alone := strings.HasPrefix(f.Summary, "With --") && !strings.Contains(f.Summary, ": ")
		if alone || strings.Count(f.Summary, "(") != strings.Count(f.Summary, ")") {
			t.Errorf("%s: %q", f.Code, f.Summary)
		}
	}
	for code, want := range map[string]string{
		"DNSNoAnswer": "With --live: no name server of the pod answers the query for the Service's name, or all answer " +
			"that they failed (SERVFAIL, REFUSED)",
		"Headless": "The Service has no ClusterIP (clusterIP: None)",
		"RoutedByPod": "The gateway of the route to an endpoint, or of the route of the answers to a client on this node, " +
			"is the address of a pod",
		"MissingEndpoint": "An endpoint that kube-proxy has to use gets no connections",
	} {
		if f, _ := FindingOf(code); f.Summary != want {
			t.Errorf("%s: got %q", code, f.Summary)
		}
	}
}

// What people report leads to the line of the table that is about it, first.
func TestSymptomsOfReports(t *testing.T) {
	for report, want := range map[string]string{
		"Connection timed out":     "connections hang, every time",
		"i/o timeout":              "connections hang, every time",
		"no route to host":         "connections hang, every time",
		"504 Gateway Timeout":      "connections hang, every time",
		"503":                      "connections are refused, every time",
		"ECONNREFUSED":             "connections are refused, every time",
		"connection reset by peer": "established connections break",
		"after a deploy":           "it fails since a deployment",
		"after an upgrade":         "it fails since a deployment",
		"only from one node":       "it fails from one node only",
		"sometimes fails":          "one connection in two or three fails",
		"one in three fails":       "one connection in two or three fails",
		"only large replies":       "only large requests or answers hang",
		"only from inside":         "it works inside the cluster, not from outside",
		"load balancer down":       "one endpoint gets no load, or too much",
		"health check fails":       "it works inside the cluster, not from outside",
		"no such host":             "a pod does not resolve a name, or it takes seconds",
		"wrong client IP":          "the server sees the wrong client address",
		"hello":                    "",
		"MISMATCH: 2 of 2 paths of shop/api on worker-1": "",
	} {
		first := ""
		if found := SymptomsOf(report); len(found) > 0 {
			first = found[0].Text
		}
		if first != want {
			t.Errorf("%q leads to %q, want %q", report, first, want)
		}
	}
}
