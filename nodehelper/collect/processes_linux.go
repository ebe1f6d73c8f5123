// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strconv"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// readProcesses lists the processes that may serve Services here: those of the names that matter, in this network
// namespace. One that ends meanwhile is left out.
func readProcesses(_ context.Context, _ *reader) ([]byte, error) {
	if os.Getpid() == 1 {
		return nil, errors.New("the helper sees no processes but its own: its pod is not in the node's (hostPID)")
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var list []snapshot.Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		comm, err := os.ReadFile("/proc/" + e.Name() + "/comm")
		if err != nil {
			continue
		}
		if name := string(bytes.TrimSpace(comm)); slices.Contains(snapshot.ServiceProcesses, name) && !elsewhere(e.Name()) {
			list = append(list, snapshot.Process{PID: pid, Name: name})
		}
	}
	slices.SortFunc(list, func(a, b snapshot.Process) int { return a.PID - b.PID })
	return snapshot.EncodeProcesses(list), nil
}

// elsewhere tells whether a process is known to be in another network namespace than this one.
func elsewhere(pid string) bool {
	_, err := os.Readlink("/proc/" + pid + "/ns/net")
	return err == nil && !sameNetwork(pid)
}
