// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
)

func TestExplain(t *testing.T) {
	code, stdout, stderr := runPlugin(t, "explain", "missingendpoint")
	if code != run.ExitRight || stderr != "" || !strings.HasPrefix(stdout, "MissingEndpoint\n\nerror · ") ||
		!strings.Contains(stdout, "\n- Remedy: ") || !strings.HasSuffix(stdout, "docs/findings.md#missingendpoint\n") {
		t.Errorf("got %d, %s and %s", code, stdout, stderr)
	}
	code, stdout, _ = runPlugin(t, "explain")
	if code != run.ExitRight || !strings.HasPrefix(stdout, "Mismatches of endpoints\n  MissingEndpoint") ||
		strings.Count(stdout, "\n") < len(codes()) {
		t.Errorf("got %d and %s", code, stdout)
	}
	for args, want := range map[string]string{
		"explain MissingEndpont": `there is no finding "MissingEndpont"; did you mean MissingEndpoint?`,
		"explain Missing":        "did you mean MissingEndpoint or ",
		"explain dnsserver":      "did you mean DNSServerUnreachable?",
		"explain MISMATCH":       `there is no finding "MISMATCH": it is a verdict`,
		"explain A B":            "explain takes one code",
		"MissingEndpoint":        `"MissingEndpoint" is a finding: kubectl svcproxy explain MissingEndpoint`,
	} {
		code, stdout, stderr := runPlugin(t, strings.Fields(args)...)
		if code != run.ExitUsage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: got %d, %q and %q", args, code, stdout, stderr)
		}
	}
	_, stdout, _ = runPlugin(t, "__completeNoDesc", "explain", "Missing")
	if !strings.HasPrefix(stdout, "MissingEndpoint\n") {
		t.Errorf("got %q", stdout)
	}
}

// Every report that names something wrong names the command that explains it, in a table, a page and as an object.
func TestReportsLeadToTheExplanation(t *testing.T) {
	for format, want := range map[string]string{
		"table": "\nExplain  kubectl svcproxy explain MissingEndpoint\n",
		"html":  "docs/findings.md#missingendpoint",
		"json":  `"page": "https://github.com/svcproxy/kubectl-svcproxy/blob/main/docs/findings.md#missingendpoint"`,
	} {
		_, stdout, stderr := runPlugin(t, "trace", "shop/web", "--snapshot", broken, "-o", format)
		if !strings.Contains(stdout, want) {
			t.Errorf("%s: got %s and %s", format, stdout, stderr)
		}
	}
	if _, stdout, _ := runPlugin(t, "trace", "shop/frontend", "--snapshot", broken); strings.Contains(stdout, "Explain") {
		t.Errorf("nothing is wrong: got %s", stdout)
	}
}
