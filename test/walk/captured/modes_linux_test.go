// SPDX-License-Identifier: Apache-2.0

//go:build !vm

package captured

import (
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// modes are those that need no module that a kernel may lack.
var modes = []mode{{wire.IPTables, wire.BackendNFT}, {wire.IPTables, wire.BackendLegacy}, {wire.NFTables, ""}}

// ipvsStates are for state; the kernel may have none of it.
var ipvsStates []string

// sends is how many connections are opened to one frontend from one origin: enough to come to each of a few endpoints.
const sends = 4

func prepare(*testing.T) {}
