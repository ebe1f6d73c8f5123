// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"strings"
	"testing"
)

// TestAffinityTimeoutQuotesWhatRemembers: of the chain that chooses among the endpoints only the rules with the wrong
// time, and where a rule has none, the set that has it.
func TestAffinityTimeoutQuotesWhatRemembers(t *testing.T) {
	for _, tt := range []struct {
		mode string
		do   func(w *capturedNode)
		want []string // what pieces of evidence hold, in their order
	}{
		{"iptables", func(w *capturedNode) {
			sep := w.sep("shop/affinity", "10.244.1.56:8080")
			w.replace(v4, "--seconds 600 --reap --name "+sep, "--seconds 10 --reap --name "+sep, "--rcheck", sep)
		}, []string{"--seconds 10 "}},
		{"nftables", func(w *capturedNode) {
			w.change("set", `"timeout": 600`, `"timeout": 10`, "affinity-J73M3FEA")
		}, []string{": timeout 10s", "@affinity-J73M3FEA"}},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			w := openCaptured(t, tt.mode)
			tt.do(w)
			found := 0
			for _, p := range w.run().Paths {
				for _, f := range p.Findings {
					if f.Code != AffinityTimeout {
						continue
					}
					found++
					if len(f.Evidence) != len(tt.want) {
						t.Fatalf("%+v", f.Evidence)
					}
					for i, want := range tt.want {
						if !strings.Contains(f.Evidence[i].Text, want) {
							t.Errorf("%q is not in %+v", want, f.Evidence[i])
						}
					}
				}
			}
			if found == 0 {
				t.Error("no AffinityTimeout")
			}
		})
	}
}
