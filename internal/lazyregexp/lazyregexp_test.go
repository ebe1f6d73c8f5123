// SPDX-License-Identifier: Apache-2.0

package lazyregexp

import "testing"

func TestNew(t *testing.T) {
	re := New("^a+$")
	if first := re(); first != re() || !first.MatchString("aa") || first.MatchString("b") {
		t.Error("it is not one expression")
	}
	defer func() {
		if recover() == nil {
			t.Error("what cannot be parsed does not panic")
		}
	}()
	New("(")()
}
