// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/cgroup"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/sockets"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
)

// readStopped lists those of the processes that hold the sockets of readListeners which are stopped, by a signal or by
// a debugger, or are in a control group that is frozen.
func readStopped(ctx context.Context, r *reader) ([]byte, error) {
	if _, err := readListeners(ctx, r); err != nil {
		return nil, fmt.Errorf("the processes that listen were not read: %w", err)
	}
	stopped, all := map[string]string{}, map[string]bool{}
	for _, holders := range r.listeners.holders {
		for _, u := range holders {
			all[u.PID] = true
			if state := sockets.State(u.PID); state == "T" || state == "t" {
				stopped[u.PID] = "T"
			}
		}
	}
	frozen, unread := cgroup.Frozen(cmp.Or(r.Root, "/"), slices.Sorted(maps.Keys(all)))
	for _, pid := range frozen {
		stopped[pid] = host.Frozen
	}
	var out bytes.Buffer
	for _, pid := range slices.Sorted(maps.Keys(stopped)) {
		fmt.Fprintf(&out, "%s %s\n", pid, stopped[pid])
	}
	if unread != nil { // what is stopped by a signal is known all the same
		fmt.Fprintf(&out, "# control groups of processes that listen were not read: %s\n", sentence(unread))
	}
	return out.Bytes(), nil
}
