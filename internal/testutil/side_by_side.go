// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"flag"
	"fmt"
	"testing"
)

// SideBySide runs the tests of a package, for its TestMain: so many of those that call t.Parallel at once, whatever
// processors there are. It is for tests that mostly wait: for links, and for connections that fail.
func SideBySide(m *testing.M, tests int) {
	flag.Parse()
	if err := flag.Set("test.parallel", fmt.Sprint(tests)); err != nil {
		panic(err)
	}
	m.Run() // the testing package ends the process with its result
}
