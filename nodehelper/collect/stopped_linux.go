// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/sockets"
)

// readStopped lists those of the processes that hold the sockets of readListeners which are stopped, by a signal or by
// a debugger.
func readStopped(ctx context.Context, r *reader) ([]byte, error) {
	if _, err := readListeners(ctx, r); err != nil {
		return nil, fmt.Errorf("the processes that listen were not read: %w", err)
	}
	stopped := map[string]bool{}
	for _, all := range r.listeners.holders {
		for _, u := range all {
			if state := sockets.State(u.PID); state == "T" || state == "t" {
				stopped[u.PID] = true
			}
		}
	}
	var out bytes.Buffer
	for _, pid := range slices.Sorted(maps.Keys(stopped)) {
		fmt.Fprintf(&out, "%s T\n", pid)
	}
	return out.Bytes(), nil
}
