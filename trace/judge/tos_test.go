// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// TestRoutesByATOSThatARuleSets: a rule of routing that asks for a type of service was taken not to apply, although a
// target in mangle had set one.
func TestRoutesByATOSThatARuleSets(t *testing.T) {
	const std = `[{"priority":0,"src":"all","table":"local"},{"priority":32766,"src":"all","table":"main"},` +
		`{"priority":32767,"src":"all","table":"default"}`
	const byTOS, blackhole = `,{"priority":9,"src":"all","tos":"0x10","table":"100"}`,
		`{"type":"blackhole","dst":"default","dev":"lo","table":"100"},`
	for _, tt := range []struct {
		name, rule, target string
		want               report.Verdict
	}{
		{"no rule for it", "", "-p tcp -j TOS --set-tos 0x10/0x3f", report.Match},
		{"nothing sets it", byTOS, "", report.Match},
		{"TOS", byTOS, "-p tcp -j TOS --set-tos 0x10/0x3f", report.Mismatch},
		{"DSCP", byTOS, "-p tcp -j DSCP --set-dscp 0x04", report.Mismatch},
		{"another DSCP", byTOS, "-p tcp -j DSCP --set-dscp 0x05", report.Match},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, base(""))
			w.files["ip-rule.json"] = []byte(std + tt.rule + "]")
			w.files["ip-route.json"] = []byte(strings.Replace(string(w.files["ip-route.json"]), "[", "["+blackhole, 1))
			if tt.target != "" {
				w.first(v4, "mangle", "OUTPUT", tt.target)
			}
			found := false
			for _, p := range w.run().Paths {
				if p.Service.Name != "ep3" || p.Origin.Kind != string(expect.FromNode) ||
					strings.Contains(p.Frontend.Address, ":") {
					continue
				}
				found = true
				if p.Verdict != tt.want {
					t.Errorf("%s, want %s: %+v", p.Verdict, tt.want, p.Findings)
				}
			}
			if !found {
				t.Error("there is no such path")
			}
		})
	}
}
