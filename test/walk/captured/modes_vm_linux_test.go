// SPDX-License-Identifier: Apache-2.0

//go:build vm

package captured

import (
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// modes is the one for which there is a virtual machine.
var modes = []mode{{wire.IPVS, wire.BackendNFT}}

// ipvsStates are for state.
var ipvsStates = []string{"ipvsadm-save -n", "sysctl net.ipv4.vs.conntrack net.ipv4.vs.expire_nodest_conn"}

// sends is how many connections are opened to one frontend from one origin: the endpoints have their turns.
const sends = 2

// prepare has the kernel's modules loaded, which cannot be done from the namespaces of the tests.
func prepare(t *testing.T) {
	t.Helper()
	for _, module := range []string{"dummy", "ip_vs", "nf_conntrack", "sctp"} {
		testutil.Run(t, "", "modprobe", module)
	}
}
