// SPDX-License-Identifier: Apache-2.0

package podns

import (
	"errors"
	"net/netip"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// TestAnAddressOfOthersToo: of two network namespaces with a pod's address the one with a link to the node is the
// pod's, and none where both have one. Probes were sent from the other one: all of them timed out.
func TestAnAddressOfOthersToo(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "ip", "nsenter") {
		return
	}
	pod := Pod{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.79")}}
	spaces := []*testutil.Namespace{testutil.NewNamespace(t), testutil.NewNamespace(t)}
	for _, ns := range spaces {
		ns.Run(t, "ip", "addr", "add", "192.0.2.79/32", "dev", "lo")
	}
	find := func() string {
		n, err := Find(pod)
		if err != nil {
			if !errors.Is(err, ErrSeveral) {
				t.Error(err)
			}
			return ""
		}
		defer n.Close()
		return strconv.Itoa(n.PID)
	}
	if got := find(); got != "" {
		t.Errorf("neither has a link to the node: got process %s", got)
	}
	link := func(name string, ns *testutil.Namespace) {
		testutil.Run(t, "", "ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", ns.PID)
	}
	link("veth1", spaces[1])
	if got := find(); got != spaces[1].PID {
		t.Errorf("got process %q, want %s, which has a link", got, spaces[1].PID)
	}
	link("veth0", spaces[0])
	if got := find(); got != "" {
		t.Errorf("both have a link: got process %s", got)
	}
}
