// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// readProcesses lists the processes that may serve Services here: those of the names that matter, in this network
// namespace. One that ends meanwhile is left out.
func readProcesses(_ context.Context, _ *reader) ([]byte, error) {
	if os.Getpid() == 1 {
		return nil, errors.New("the helper sees only its own processes: its pod does not use the node's PID namespace " +
			"(hostPID)")
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
			list = append(list, snapshot.Process{PID: pid, Name: name, Cgroup: cgroupOf(e.Name())})
		}
	}
	slices.SortFunc(list, func(a, b snapshot.Process) int { return a.PID - b.PID })
	return snapshot.EncodeProcesses(list), nil
}

// cgroupOf returns the control group of a process: that of version 2, else that of systemd's own hierarchy; "" where
// neither is told. It is relative to this process's own (cgroup_namespaces(7)), so that it may begin with /../.
func cgroupOf(pid string) string {
	data, err := os.ReadFile("/proc/" + pid + "/cgroup")
	if err != nil {
		return ""
	}
	return cgroupIn(string(data))
}

func cgroupIn(text string) string {
	var systemd string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch fields := strings.SplitN(line, ":", 3); { //nolint:mnd // hierarchy-ID:controllers:path, cgroups(7)
		case len(fields) != 3:
		case fields[0] == "0" && fields[2] != "/":
			return line
		case fields[1] == "name=systemd":
			systemd = line
		}
	}
	return systemd
}

// elsewhere tells whether a process is known to be in another network namespace than this one.
func elsewhere(pid string) bool {
	_, err := os.Readlink("/proc/" + pid + "/ns/net")
	return err == nil && !sameNetwork(pid)
}
