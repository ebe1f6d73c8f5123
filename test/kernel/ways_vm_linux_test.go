// SPDX-License-Identifier: Apache-2.0

//go:build vm

package kernel

import (
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// ways is the one for which there is a virtual machine.
var ways = []way{{wire.IPVS, wire.BackendNFT}}

// ipvsStates are for state.
var ipvsStates = []string{"ipvsadm-save -n", "sysctl net.ipv4.vs.conntrack net.ipv4.vs.expire_nodest_conn"}

// sends is how many connections are opened to one frontend from one origin: the endpoints have their turns.
const sends = 2

// prepare has the kernel's modules loaded, which cannot be done from the namespaces of the tests.
func prepare(t *testing.T) {
	t.Helper()
	for _, module := range []string{"dummy", "ip_vs", "nf_conntrack", "sctp"} {
		run(t, nil, "modprobe", module)
	}
}
