// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"strings"
	"syscall"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// Filters of tc are found at the interface and in the direction that they are attached to.
func TestFiltersOfTC(t *testing.T) {
	if !testutil.Isolate(t, syscall.CLONE_NEWNET, "ip", "tc") {
		return
	}
	testutil.Run(t, "", "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
	before, err := readPrograms(t.Context(), &reader{})
	if err != nil && len(before) > 0 || strings.Contains(string(before), "tc v0") {
		t.Fatalf("%s, %v", before, err)
	}
	testutil.Run(t, "", "tc", "qdisc", "add", "dev", "v0", "clsact")
	testutil.Run(t, "", "tc", "filter", "add", "dev", "v0", "egress", "protocol", "ip", "pref", "7", "u32", "match", "ip",
		"dst", "10.96.0.10/32", "classid", "1:1")
	after, err := readPrograms(t.Context(), &reader{})
	if err != nil {
		t.Fatal(err)
	}
	if text := string(after); !strings.Contains(text, "tc v0 egress filter protocol ip pref 7 u32") ||
		strings.Contains(text, "tc v0 ingress") {
		t.Errorf("got %q", text)
	}
}
