// SPDX-License-Identifier: Apache-2.0

package live

import (
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/ctnetlink"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Tracked reads the counters of connection tracking since the node's start; nil where there are none, or not all.
func Tracked() *snapshot.Tracked {
	all, err := ctnetlink.Counters()
	if err != nil {
		return nil
	}
	t := &snapshot.Tracked{}
	for name, to := range map[string]*uint64{
		"invalid": &t.Invalid, "insert_failed": &t.InsertFailed, "drop": &t.Drop,
	} {
		n, ok := all[name]
		if !ok {
			return nil
		}
		*to = n
	}
	return t
}
