// SPDX-License-Identifier: Apache-2.0

//go:build vm

package endtoend_test

import (
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// As TestAgainstTheKernel, with tunnels that need a kernel of their own: that of a virtual machine.
//
//	go test -tags vm -run '^TestTunnelsAgainstTheKernel$' -exec "$PWD/test/vm/vm run" ./trace/endtoend
func TestTunnelsAgainstTheKernel(t *testing.T) {
	testutil.Long(t)
	if !isolate(t, "modprobe", "wg") {
		return
	}
	testutil.Run(t, "", "modprobe", "-a", "ipip", "ip_gre", "geneve", "wireguard", "tcp_diag", "udp_diag")
	for i := range tunnelFaults {
		c := &tunnelFaults[i]
		t.Run(c.name, func(t *testing.T) {
			n := newTopology(t, false, false)
			n.tunnel = c.tunnel
			n.run(tunnelLines(c.tunnel)...)
			n.measure(c)
		})
	}
}
