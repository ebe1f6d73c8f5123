// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
)

// The formats that draw have the exit codes of the others, show the packet's path, and are refused by commands that
// have nothing to draw.
func TestDrawnFormats(t *testing.T) {
	for _, tt := range []struct {
		args   string
		code   int
		stdout []string
		stderr string
	}{
		{
			"trace web -n shop -o html", run.ExitMismatch,
			[]string{"<!doctype html>", "MissingEndpoint", "<svg", "Rule by rule", "KUBE-SEP-LPRYETXTYMQCMNCE"},
			"",
		},
		{
			"trace web -n shop -o mermaid", run.ExitMismatch,
			[]string{"flowchart LR\n", "KUBE-SVC-67NZLRHBNDSAWJRO #35;2,3  WRONG", "-.->|\"none, 33.3#37; expected\"|"},
			"",
		},
		{
			"verify -A -o html", run.ExitMismatch,
			[]string{"<!doctype html>", "Paths that are not right", "<svg", "Rule by rule"},
			"",
		},
		{"verify -A -o mermaid", run.ExitMismatch, []string{"flowchart LR\n", "shop/web", "PREROUTING"}, ""},
		{"mode -o html", run.ExitRight, []string{"<!doctype html>", "Which proxy each node runs", "worker-1"}, ""},
		{
			"mode -o mermaid", run.ExitUsage, nil,
			"-o mermaid is not an output format of this command: it may be table, wide, json, yaml, name, " +
				"jsonpath=…, jsonpath-file=…, go-template=…, go-template-file=…, html",
		},
		{"resolve web -n shop -o html", run.ExitUsage, nil, "-o html is not an output format of this command"},
		{"trace web -n shop -o htm", run.ExitUsage, nil, "html, markdown, mermaid; did you mean html?"},
		{
			"trace web -n shop -o dot", run.ExitUsage, nil,
			`-o "dot" is not an output format: it may be table, wide, json, yaml, name, ` +
				"jsonpath=…, jsonpath-file=…, go-template=…, go-template-file=…, html, markdown, mermaid; did you mean mermaid?",
		},
	} {
		code, stdout, stderr := runPlugin(t, append(strings.Fields(tt.args), "--snapshot", broken)...)
		if code != tt.code || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%s: got %d and %q, want %d and %q", tt.args, code, stderr, tt.code, tt.stderr)
		}
		for _, want := range tt.stdout {
			if !strings.Contains(stdout, want) {
				t.Errorf("%s: %q is not in %.400s", tt.args, want, stdout)
			}
		}
		if tt.stdout == nil && stdout != "" {
			t.Errorf("%s: something was printed: %.400s", tt.args, stdout)
		}
	}
}

// What -o completes to is what it takes.
func TestOutputCompletion(t *testing.T) {
	const all = "table wide json yaml name jsonpath= jsonpath-file= go-template= go-template-file="
	for command, want := range map[string]string{
		"trace":   all + " html markdown mermaid",
		"verify":  all + " html markdown mermaid",
		"mode":    all + " html markdown",
		"resolve": all,
		"status":  all,
	} {
		_, stdout, _ := runPlugin(t, "__completeNoDesc", command, "-o", "")
		values, _, _ := strings.Cut(stdout, "\n:")
		if got := strings.Join(strings.Fields(values), " "); got != want {
			t.Errorf("%s -o completes to %q, want %q", command, got, want)
		}
	}
}

// Behind a rule that drops the connections to one of two endpoints, packets to the other one alone go on: the rows say
// so.
func TestRowsBehindADropNameTheirEndpoint(t *testing.T) {
	_, stdout, stderr := runPlugin(t, "trace", "checkout", "-n", "shop", "--from", "pod", "--snapshot", broken,
		"-o", `jsonpath={range .nodes[*].paths[*].steps[*]}{.hook}{"/"}{.chain}{" "}{.rule}{" "}{.endpoints}{"\n"}{end}`)
	for _, want := range []string{
		"PREROUTING/KUBE-SERVICES 6 \n", "FORWARD/FORWARD 1 \n", "FORWARD/FORWARD 2 [\"10.244.1.16:8080\"]\n",
		"POSTROUTING/KUBE-POSTROUTING 1 [\"10.244.1.16:8080\"]\n",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("there is no %q in\n%s%s", want, stdout, stderr)
		}
	}
}
