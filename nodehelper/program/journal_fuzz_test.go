// SPDX-License-Identifier: Apache-2.0

package program

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// FuzzRecord feeds records of the journal, and plans: a record is read back as it is written.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"version":1,"mode":"iptables","backend":"nft","by":"me","run":"r","plan":{"services":["shop/web"]}}`))
	f.Add([]byte(`{"version":1,"earlier":{},"before":{"tables":["ip nat"],"ipvs":{}},"complete":true}`))
	f.Add([]byte(strings.Repeat(`{"plan":`, 1000)))
	f.Add([]byte(`{"before":{"tables":[` + strings.TrimSuffix(strings.Repeat(`"",`, 1000), ",") + `]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		testutil.Promptly(t, func() {
			var r Record
			if err := json.Unmarshal(data, &r); err == nil {
				if _, err := json.Marshal(r); err != nil {
					t.Errorf("a record that was read cannot be written: %v", err)
				}
			}
			if q, err := DecodeRequest(wire.ProgramParams{Plan: data}); err == nil {
				_ = q.Check() // it refuses what may not be programmed
			}
		})
	})
}
