// SPDX-License-Identifier: Apache-2.0

package report

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// documented are the codes that docs/findings.md has sections of, with their severity.
func documented(t *testing.T) map[string]Severity {
	t.Helper()
	page, err := os.ReadFile("../../docs/findings.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Severity{}
	for _, m := range regexp.MustCompile(`(?m)^### (\w+)\n\n\*(\w+)\*`).FindAllStringSubmatch(string(page), -1) {
		out[m[1]] = Severity(m[2])
	}
	if len(out) < 40 {
		t.Fatalf("only %d codes were found", len(out))
	}
	return out
}

// Of a mismatch, what happens never reads like what should, whatever finding makes it one.
func TestMismatchDiffers(t *testing.T) {
	paths := map[string]Path{
		"endpoints": {Expected: expecting(2), Actual: Actual{Outcomes: sent(1, 1, 2)}},
		"by load":   {Expected: expecting(2), Actual: Actual{Outcomes: sent(1, 1, 2), Sharing: "load"}},
		"reject":    {Expected: Expected{Action: "Reject"}, Actual: Actual{Outcomes: []Outcome{ended("Reject", 1, 0)}}},
		"drop":      {Expected: Expected{Action: "Drop"}, Actual: Actual{Outcomes: []Outcome{ended("Drop", 1, 0)}}},
		"nothing":   {Expected: Expected{Action: "None"}},
		"proxy":     {Expected: Expected{Action: "Proxy"}, Actual: Actual{Outcomes: []Outcome{ended("Accept", 1, 0)}}},
	}
	tried := 0
	for code, severity := range documented(t) {
		if severity != Error {
			continue
		}
		tried++
		for name, p := range paths {
			for _, actual := range []string{"", "none", "Never", "Always"} {
				f := finding(code, Error, 2)
				f.Actual = actual
				p.Verdict, p.Findings = Mismatch, []Finding{f}
				Complete(&p)
				if p.Expected.Summary == "" || p.Actual.Summary == "" || p.Expected.Summary == p.Actual.Summary {
					t.Errorf("%s of %s: expected %q, actual %q", code, name, p.Expected.Summary, p.Actual.Summary)
				}
			}
		}
	}
	if tried < 30 {
		t.Errorf("only %d codes of severity error were tried", tried)
	}
}

// The table of effects names findings that there are.
func TestEffectsAreOfCodes(t *testing.T) {
	codes := documented(t)
	for _, e := range effectsByCode {
		if codes[e.code] == "" {
			t.Errorf("%s is no finding", e.code)
		}
	}
}

func TestEffects(t *testing.T) {
	for _, tt := range []struct{ code, actual, want string }{
		{"WrongMasquerade", "Never", "not masqueraded"},
		{"WrongMasquerade", "Always", "masqueraded"},
		{"WrongMasquerade", "", "wrong masquerade"},
		{"AffinityMissing", "", "no session affinity"},
		{"AffinityTimeout", "300s", "session affinity for 300s"},
		{"AffinityTimeout", "", "affinity timeout"},
		{"EndpointRefused", "7 of 20 refused", "7 of 20 refused"},
		{"IPSetMissing", "none", "IP set missing"},
		{"VIPMissing", "", "VIP missing"},
		{"RealServerWeightZero", "weight 0", "real server weight zero"},
		{"ForwardingOff", "", "forwarding off"},
		{"NodeLocalDNS", "", "node local DNS"},
	} {
		p := Path{Findings: []Finding{
			{Code: "NotCollected", Severity: Info},
			{Code: tt.code, Severity: Error, Actual: tt.actual},
			{Code: tt.code, Severity: Error, Actual: tt.actual},
		}}
		if got := effects(&p); !slices.Equal(got, []string{tt.want}) {
			t.Errorf("%s (%q): got %q, want %q", tt.code, tt.actual, got, tt.want)
		}
	}
}

func TestCodes(t *testing.T) {
	findings := []Finding{
		{Code: "A", Severity: Info}, {Code: "B", Severity: Error}, {Code: "B", Severity: Error}, {Code: "C", Severity: Warn},
	}
	for verdict, want := range map[Verdict][]string{
		Mismatch: {"B", "C"}, Warning: {"B", "C"},
		Unknown: {"A", "B", "C"}, ByDesign: {"A", "B", "C"}, Match: {"A", "B", "C"},
	} {
		p := Path{Verdict: verdict, Findings: findings}
		if got := p.Codes(); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", verdict, got, want)
		}
	}
	n := NodeReport{Findings: findings}
	if got := n.Codes(); !slices.Equal(got, []string{"B", "C"}) {
		t.Errorf("of a node: got %q", got)
	}
	n.Error = "it does not answer"
	if got := n.Codes(); !slices.Equal(got, []string{"A", "B", "C"}) {
		t.Errorf("of a node that was not inspected: got %q", got)
	}
}

func TestVerdictOn(t *testing.T) {
	for _, tt := range []struct {
		severity Severity
		path     *Path
		want     Verdict
	}{
		{Error, nil, Mismatch},
		{Warn, &Path{Verdict: Mismatch}, Warning},
		{Info, nil, ""},
		{Info, &Path{Verdict: Mismatch}, ""},
		{Info, &Path{Verdict: ByDesign}, ByDesign},
		{Info, &Path{Verdict: Unknown}, Unknown},
	} {
		if got := (&Finding{Severity: tt.severity}).VerdictOn(tt.path); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.severity, got, tt.want)
		}
	}
}
