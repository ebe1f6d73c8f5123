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
