// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"os"
	"strconv"
	"testing"
)

// Kills is the environment variable that says how often tests kill what they test: few times in CI, hundreds in a
// nightly run.
const Kills = "SVCPROXY_KILLS"

// Count is how often a test does what it does: the number that an environment variable holds, or the one for CI.
func Count(t testing.TB, variable string, ci int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return ci
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q: it may be a number from 1 on", variable, text)
	}
	return n
}

// EveryFault says whether every fault of the long lists is to be made (SVCPROXY_FAULTS=all, nightly), and not a part of
// them, as in CI.
func EveryFault() bool { return os.Getenv("SVCPROXY_FAULTS") == "all" }

// OneIn says whether the i-th case of a list is made: one in n, or all where EveryFault is.
func OneIn(n, i int) bool { return i%n == 0 || EveryFault() }

// Long says that a test computes or waits for seconds: it is left out of hack/test.sh quick, which runs with -short.
func Long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes long, and -short was given")
	}
}
