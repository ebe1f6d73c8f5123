// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"os"
	"path/filepath"
	"testing"
)

// An agent that once had no file descriptor left took nothing for known until it was started again.
func TestSymbolsAreReadAgainAfterAFailure(t *testing.T) {
	s := &symbolTable{file: filepath.Join(t.TempDir(), "kallsyms")}
	if _, err := s.read(); err == nil {
		t.Fatal("there is no file, and no error")
	}
	if err := os.WriteFile(s.file, []byte("0000 T wg_get_device_dump\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := s.read(); err != nil || !all["wg_get_device_dump"] {
		t.Errorf("%v, %v", all, err)
	}
}
