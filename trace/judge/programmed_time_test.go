// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Rules that the command program has left are judged by the time at which the node was read: after the end of their
// time they decide over nothing, and nothing is uncertain because of them.
func TestProgrammedRulesEndAtTheirTime(t *testing.T) {
	const ep3 = "-d 10.96.77.154/32 -p tcp -m tcp --dport 80 "
	for name, tt := range map[string]struct {
		clock      string
		verdict    report.Verdict
		programmed bool
	}{
		"in time":            {"2026-11-22T11:59:59.9Z\n", report.Mismatch, true},
		"when it is over":    {"2026-11-22T12:00:00Z\n", report.Match, false},
		"without a time.txt": {"", report.Unknown, true},
	} {
		w := openCaptured(t, "iptables")
		if tt.clock != "" {
			w.files[snapshot.TimeFile] = []byte(tt.clock)
		}
		w.table(v4, "nat", func(l string) []string {
			switch l {
			case "*nat":
				return []string{l, ":SVCPROXY-0123abcd-NAT - [0:0]"}
			case "COMMIT":
				return []string{
					"-A SVCPROXY-0123abcd-NAT -m time --datestart 2026-11-22T12:00:00 --datestop 2038-01-19T03:14:07 -j RETURN",
					"-A SVCPROXY-0123abcd-NAT " + ep3 + "-j DNAT --to-destination 10.244.9.9:8080", // a wrong endpoint
					l,
				}
			}
			return []string{l}
		})
		w.first(v4, "nat", "PREROUTING", "-j SVCPROXY-0123abcd-NAT")
		r := w.run()
		if r.Error != "" {
			t.Fatal(r.Error)
		}
		seen := false
		for i := range r.Paths {
			p := &r.Paths[i]
			if p.Service.Name != "ep3" || p.Service.Namespace != "shop" || p.Frontend.Kind != "ClusterIP" ||
				p.Origin.Kind != "pod" {
				continue
			}
			seen = true
			programmed := slices.ContainsFunc(p.Findings, func(f report.Finding) bool { return f.Code == Programmed })
			if p.Verdict != tt.verdict || programmed != tt.programmed {
				t.Errorf("%s: %s %+v, want %s, programmed %t", name, p.Verdict, p.Findings, tt.verdict, tt.programmed)
			}
		}
		if !seen {
			t.Errorf("%s: the path is not judged", name)
		}
	}
}
