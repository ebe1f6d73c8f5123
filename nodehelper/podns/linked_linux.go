// SPDX-License-Identifier: Apache-2.0

package podns

import (
	"os"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
)

// Only returns which of several network namespaces that have a pod's address is the pod's: the only one, or the only
// one with a link to the thread's namespace. Containers of others (Docker, a cluster within the node) may have the
// address, too, behind a namespace of their own. It is -1 where none is the pod's for certain.
func Only(files []*os.File) int {
	if len(files) == 1 {
		return 0
	}
	found := -1
	for i, f := range files {
		switch {
		case !linked(f):
		case found >= 0:
			return -1
		default:
			found = i
		}
	}
	return found
}

// linked tells whether the thread's network namespace has a number for another one: it has got one when a link between
// them was announced (rtnl_fill_link_netnsid in net/core/rtnetlink.c).
func linked(file *os.File) bool {
	ok, err := netlink.NumbersNamespace(file)
	return err == nil && ok
}
