// SPDX-License-Identifier: Apache-2.0

package expect

import "testing"

func TestMinorOf(t *testing.T) {
	for version, want := range map[string]int{"v1.36.3": 36, "v1.33.0-rc.1": 33, "1.28.15-gke.1": 28, "v1.30+": 30} {
		if got, known := minorOf(version); got != want || !known {
			t.Errorf("%s: got %d, %v", version, got, known)
		}
	}
	for _, version := range []string{"", "v2.1.0", "main", "v1."} {
		if got, known := minorOf(version); got != newest || known {
			t.Errorf("%s: got %d, %v", version, got, known)
		}
	}
}
