// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
)

// ProcessesFile lists processes as ps -e -o pid=,comm= does. A collector may leave out those that are not in
// [ServiceProcesses].
const ProcessesFile = "processes.txt"

// ServiceProcesses are the names (/proc/PID/comm, at most 15 bytes) of the processes that may serve Services on a node:
// kube-proxy, programs that contain it (k3s, MicroK8s' kubelite), and programs that replace it.
var ServiceProcesses = []string{
	"kube-proxy", "k3s", "k3s-server", "k3s-agent", "kubelite",
	"cilium-agent", "kube-router", "antrea-agent", "ovnkube", "calico-node",
}

// Process is a process of the node.
type Process struct {
	PID  int
	Name string
}

// EncodeProcesses makes the content of [ProcessesFile].
func EncodeProcesses(list []Process) []byte {
	out := []byte{}
	for _, p := range list {
		out = fmt.Appendf(out, "%7d %s\n", p.PID, p.Name)
	}
	return out
}

// Processes reads [ProcessesFile]; ok is false where it was not collected. The error names the file and the line.
func (n *Node) Processes() (list []Process, ok bool, err error) {
	data, ok, err := n.File(ProcessesFile)
	if err != nil || !ok {
		return nil, ok, err
	}
	line := 0
	for text := range bytes.Lines(data) {
		line++
		pid, name, _ := bytes.Cut(bytes.TrimSpace(text), []byte(" "))
		if len(pid) == 0 || string(pid) == "PID" {
			continue
		}
		p := Process{Name: string(bytes.TrimSpace(name))}
		if p.PID, err = strconv.Atoi(string(pid)); err != nil || p.Name == "" {
			return nil, true, ErrorOf(n.Name, fmt.Errorf("%s line %d: %q is not a process's number and name, as "+
				"ps -e -o pid=,comm= prints them", ProcessesFile, line, bytes.TrimSpace(text)))
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b Process) int { return a.PID - b.PID })
	return list, true, nil
}
