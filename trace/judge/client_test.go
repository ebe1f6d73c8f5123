// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"testing"
)

// What a client sees is known of every kind of finding of a path that is more than information, but for those of the
// Service's name, and those of which the comparison of shares tells it.
func TestClientsOfEveryKind(t *testing.T) {
	without := []string{
		MissingEndpoint, StaleEndpoint, UnevenShare,
		DNSServerUnreachable, DNSOverTCPUnreachable, DNSAnswer, DNSNoAnswer,
	}
	for code := range clients {
		if kinds[code] == nil {
			t.Errorf("%s is no kind of finding", code)
		}
	}
	for code, k := range kinds {
		if k.scope == onPath && k.severity != note && clients[code] == nil && !slices.Contains(without, code) {
			t.Errorf("%s: what does a client see of it? (clients in client.go)", code)
		}
	}
}
