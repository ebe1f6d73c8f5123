// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/sockets"
)

// readStopped lists those of the processes that hold the sockets of readListeners which are stopped.
func readStopped(_ context.Context, r *reader) ([]byte, error) {
	if r.holders == nil {
		return nil, errors.New("the processes that listen were not read")
	}
	var pids []string
	for _, all := range r.holders {
		for _, u := range all {
			pids = append(pids, u.PID)
		}
	}
	return stoppedOf(pids), nil
}

// readAllStopped lists all processes of the node that are stopped: on most nodes none is.
func readAllStopped(context.Context, *reader) ([]byte, error) {
	if os.Getpid() == 1 {
		return nil, errOwnProcesses
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []string
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, e.Name())
		}
	}
	return stoppedOf(pids), nil
}

// stoppedOf lists those of some processes that are stopped, by a signal or by a debugger, as ps -o pid=,stat= does.
func stoppedOf(pids []string) []byte {
	slices.Sort(pids)
	var out bytes.Buffer
	for _, pid := range slices.Compact(pids) {
		if state := sockets.State(pid); state == "T" || state == "t" {
			fmt.Fprintf(&out, "%s T\n", pid)
		}
	}
	return out.Bytes()
}
