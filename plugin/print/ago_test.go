// SPDX-License-Identifier: Apache-2.0

package print

import (
	"testing"
	"time"
)

func TestAgo(t *testing.T) {
	at := "2026-01-02T03:04:05Z"
	then, err := time.Parse(time.RFC3339, at)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		now  time.Time
		want string
	}{
		{then.Add(4 * time.Second), "4s ago"},
		{then.Add(3 * time.Hour), "3h ago"},
		{time.Time{}, at},
		{then.Add(-time.Minute), at},
	} {
		if got := ago(at, tt.now); got != tt.want {
			t.Errorf("at %v: %q, want %q", tt.now, got, tt.want)
		}
	}
	if got := ago("never", then); got != "never" {
		t.Error(got)
	}
}
