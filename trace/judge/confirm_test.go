// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"reflect"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// wrongPath is a path with findings.
func wrongPath(address string, v report.Verdict, fs ...report.Finding) report.Path {
	return report.Path{
		Frontend: report.Frontend{Kind: "ClusterIP", Address: address, Port: 80, Protocol: "TCP"},
		Origin:   report.Origin{Kind: "pod"},
		Verdict:  v,
		Findings: fs,
	}
}

func errorOf(code, subject string) report.Finding {
	return report.Finding{Code: code, Subject: subject, Severity: report.Error}
}

func reportOf(paths ...report.Path) *report.NodeReport {
	r := &report.NodeReport{Node: "n", Verdict: report.Match, Paths: paths}
	r.Summary.Count(report.Match) // one that is not listed
	for i := range paths {
		r.Summary.Count(paths[i].Verdict)
		r.Verdict = report.Together(r.Verdict, paths[i].Verdict)
	}
	return r
}

func TestConfirmed(t *testing.T) {
	missing := reportOf(wrongPath("10.0.0.1", report.Mismatch, errorOf(MissingEndpoint, "a"), errorOf(UnevenShare, "b")))
	for _, tt := range []struct {
		name           string
		earlier, later *report.NodeReport
		want           bool
	}{
		{"nothing is wrong any more", missing, reportOf(), true},
		{"wrong in the same way", missing, missing, true},
		{
			"wrong in part the same way",
			missing,
			reportOf(wrongPath("10.0.0.1", report.Mismatch, errorOf(MissingEndpoint, "a"), errorOf(StaleEndpoint, "c"))),
			true,
		},
		{"wrong for the first time", reportOf(), missing, false},
		{
			"wrong in another way",
			missing,
			reportOf(wrongPath("10.0.0.1", report.Mismatch, errorOf(StaleEndpoint, "c"))),
			false,
		},
		{
			"connections fail in another way", // the next hop had not been given up in the first reading
			reportOf(wrongPath("10.0.0.1", report.Mismatch, errorOf(EndpointTimeout, "a"))),
			reportOf(wrongPath("10.0.0.1", report.Mismatch, errorOf(EndpointUnreachable, "a"))),
			true,
		},
		{
			"packets are discarded, and it is not known which endpoint they were for",
			reportOf(wrongPath("10.0.0.1", report.Mismatch, errorOf(PacketDropped, "a"))),
			reportOf(wrongPath("10.0.0.1", report.Mismatch, errorOf(PacketDropped, ""))),
			true,
		},
		{
			"connections fail, and where packets are lost is known the second time alone",
			reportOf(wrongPath("10.0.0.1", report.Mismatch, errorOf(EndpointTimeout, "a"))),
			reportOf(wrongPath("10.0.0.1", report.Mismatch, errorOf(PacketDropped, ""))),
			true,
		},
		{
			"packets are lost, and connections fail in no way",
			reportOf(wrongPath("10.0.0.1", report.Mismatch, errorOf(PacketDropped, "a"))),
			reportOf(wrongPath("10.0.0.1", report.Mismatch, errorOf(MissingEndpoint, "a"))),
			false,
		},
		{
			"connections to another endpoint fail",
			reportOf(wrongPath("10.0.0.1", report.Mismatch, errorOf(EndpointTimeout, "a"))),
			reportOf(wrongPath("10.0.0.1", report.Mismatch, errorOf(EndpointTimeout, "b"))),
			false,
		},
		{"another path", missing, reportOf(wrongPath("10.0.0.2", report.Mismatch, errorOf(MissingEndpoint, "a"))), false},
		{
			"a node-wide finding for the first time",
			missing,
			&report.NodeReport{Findings: []report.Finding{errorOf(StaleService, "x")}},
			false,
		},
		{"unknown needs no proof", reportOf(), reportOf(wrongPath("10.0.0.1", report.Unknown)), true},
	} {
		if got := Confirmed(tt.earlier, tt.later); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
	if Right(missing) || !Right(reportOf()) || !Right(reportOf(wrongPath("10.0.0.1", report.Unknown))) {
		t.Error("Right is wrong")
	}
}

func TestDoubt(t *testing.T) {
	lasting := wrongPath("10.0.0.1", report.Mismatch, errorOf(MissingEndpoint, "a"))
	passing := wrongPath("10.0.0.2", report.Mismatch, errorOf(StaleEndpoint, "b"))
	later := reportOf(lasting, passing)
	later.Findings = []report.Finding{{Code: StaleService, Subject: "x", Severity: report.Error, Message: "m"}}
	Doubt(reportOf(lasting), later, "it keeps changing")
	if later.Verdict != report.Mismatch || later.Paths[0].Verdict != report.Mismatch ||
		later.Paths[1].Verdict != report.Unknown {
		t.Errorf("verdicts %s, %s, %s", later.Verdict, later.Paths[0].Verdict, later.Paths[1].Verdict)
	}
	if f := later.Paths[1].Findings; len(f) != 2 || f[1].Code != Changing || f[1].Message != "it keeps changing" {
		t.Errorf("findings %+v", f)
	}
	if f := later.Findings[0]; f.Severity != report.Info || f.Message != "m (seen once: it keeps changing)" {
		t.Errorf("the node's finding %+v", f)
	}
	if want := (report.Summary{Paths: 3, Matched: 1, Mismatched: 1, Unknown: 1}); !reflect.DeepEqual(later.Summary, want) {
		t.Errorf("summary %+v, want %+v", later.Summary, want)
	}
	only := reportOf(passing)
	Doubt(reportOf(), only, "it keeps changing")
	if only.Verdict != report.Unknown {
		t.Errorf("nothing else is wrong: %s", only.Verdict)
	}
}
