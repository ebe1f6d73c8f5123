// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"os"
	"path/filepath"
	"testing"
)

// Files returns what the files hold whose paths match a pattern (filepath.Glob), as they are: a fuzz target begins
// with what real nodes and clusters said. The test fails where there are none.
func Files(t testing.TB, pattern string) [][]byte {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("no file matches %s (%v)", pattern, err)
	}
	files := make([][]byte, len(names))
	for i, name := range names {
		if files[i], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	return files
}
