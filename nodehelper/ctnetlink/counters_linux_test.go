// SPDX-License-Identifier: Apache-2.0

package ctnetlink

import (
	"maps"
	"testing"
)

func TestCountersOfConnectionTracking(t *testing.T) {
	for text, want := range map[string]map[string]uint64{
		"entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop\n" +
			"00000010 00 00 00 0000000f 00 00 00 00 00000002 00000001 00\n" +
			"00000010 00 00 00 00000001 00 00 00 00 00000010 00000000 03\n": {
			"entries": 32, "clashres": 0, "found": 0, "new": 0, "invalid": 16, "ignore": 0, "delete": 0, "chainlength": 0,
			"insert": 0, "insert_failed": 18, "drop": 1, "early_drop": 3,
		},
		"":                                    {},
		"invalid insert_failed drop\n00 00\n": nil,
		"invalid insert_failed drop\nx 0 0\n": nil,
		"invalid insert_failed drop\n":        {"invalid": 0, "insert_failed": 0, "drop": 0},
	} {
		got, err := countersOf(text)
		if !maps.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: %v %v, want %v", text, got, err, want)
		}
	}
}
