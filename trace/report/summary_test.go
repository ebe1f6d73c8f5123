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

// What an error means for connections is its effect, else its code in words; each is said once.
func TestEffects(t *testing.T) {
	for _, tt := range []struct{ code, effect, want string }{
		{"WrongMasquerade", "not masqueraded", "not masqueraded"},
		{"WrongMasquerade", "", "wrong masquerade"},
		{"AffinityTimeout", "", "affinity timeout"},
		{"IPSetMissing", "", "IP set missing"},
		{"VIPMissing", "", "VIP missing"},
		{"RealServerWeightZero", "", "real server weight zero"},
		{"ForwardingOff", "", "forwarding off"},
		{"NodeLocalDNS", "", "node local DNS"},
	} {
		p := Path{Findings: []Finding{
			{Code: "NotCollected", Severity: Info, Effect: "nothing"},
			{Code: tt.code, Severity: Error, Effect: tt.effect},
			{Code: tt.code, Severity: Error, Effect: tt.effect},
		}}
		if got := effects(&p); !slices.Equal(got, []string{tt.want}) {
			t.Errorf("%s: got %q, want %q", tt.code, got, tt.want)
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
