// SPDX-License-Identifier: Apache-2.0

package command

import (
	"html"
	"regexp"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
)

var htmlTag = regexp.MustCompile(`<[^>]*>`)

// A Service with a finding that another one has, too, is shown with its own evidence, in every format for people.
func TestVerifyShowsTheEvidenceOfEveryService(t *testing.T) {
	for _, format := range []string{"table", "wide", "markdown", "html"} {
		code, out, stderr := runPlugin(t, "verify", "-A", "--snapshot", broken, "-o", format)
		if code != run.ExitMismatch {
			t.Fatalf("-o %s: got %d and %q", format, code, stderr)
		}
		findings, _, _ := strings.Cut(out, "Paths that are not right") // the findings stand before, or alone
		findings = html.UnescapeString(htmlTag.ReplaceAllString(findings, ""))
		for _, chain := range []string{"KUBE-SVC-RUKNB3TURLFC6SGL", "KUBE-SVC-67NZLRHBNDSAWJRO"} {
			if !strings.Contains(findings, chain) {
				t.Errorf("-o %s: nothing of nat %s is among the findings", format, chain)
			}
		}
	}
}
