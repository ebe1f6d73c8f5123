// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"fmt"
	"testing"
)

// The reason of a node's error is what was given, also where it reads like the beginning of such an error.
func TestNodeError(t *testing.T) {
	cut := errors.New("iptables-save.txt: line 7: it is cut off")
	for _, tt := range []struct {
		err          error
		text, reason string
	}{
		{ErrorOf("n1", cut), "node n1: " + cut.Error(), cut.Error()},
		{ErrorOf("n1", ErrorOf("n1", cut)), "node n1: " + cut.Error(), cut.Error()},
		{ErrorOf("n1", errors.New("node n1: twice")), "node n1: node n1: twice", "node n1: twice"},
		{ErrorOf("n: 1", cut), "node n: 1: " + cut.Error(), cut.Error()},
		{
			fmt.Errorf("cannot read: %w", ErrorOf("n1", cut)),
			"cannot read: node n1: " + cut.Error(), "cannot read: node n1: " + cut.Error(),
		},
		{cut, cut.Error(), cut.Error()},
	} {
		if tt.err.Error() != tt.text || Reason(tt.err) != tt.reason {
			t.Errorf("%q, reason %q", tt.err, Reason(tt.err))
		}
	}
	if !errors.Is(ErrorOf("n1", cut), cut) {
		t.Error("the reason is not unwrapped")
	}
	if err := ErrorOf("n1", nil); err != nil {
		t.Error(err)
	}
}
