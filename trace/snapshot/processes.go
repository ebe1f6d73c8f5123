// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ProcessesFile lists processes as ps -e -o pid=,cgroup:512=,comm= does, or without the control groups, as ps -e -o
// pid=,comm=. A collector may leave out those that are not in [ServiceProcesses].
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
	// Cgroup is its control group as /proc/PID/cgroup has it, "0::/system.slice/kube-proxy.service"; of version 1 several
	// with commas. Empty: not known.
	Cgroup string
	// Not says of a process that merely has this name why it is not taken for the program, a clause; empty: it is.
	Not string
}

// notTaken begins what follows the name of such a process.
const notTaken = ": not taken for it, "

// maxCgroup is the longest control group that is written or read, in bytes; ps cuts off what is longer.
const maxCgroup = 512

// EncodeProcesses makes the content of [ProcessesFile].
func EncodeProcesses(list []Process) []byte {
	out := []byte{}
	for _, p := range list {
		if p.Not != "" { // a comment, for who reads the file with other programs
			out = fmt.Appendf(out, "# %d %s%s%s\n", p.PID, p.Name, notTaken, strings.Join(strings.Fields(p.Not), " "))
			continue
		}
		out = fmt.Appendf(out, "%7d ", p.PID)
		if isCgroup(p.Cgroup) {
			out = fmt.Appendf(out, "%s ", p.Cgroup)
		}
		out = fmt.Appendf(out, "%s\n", p.Name)
	}
	return out
}

// Processes reads [ProcessesFile]; ok is false where it was not collected. The error names the line that is no process,
// or says that the text ends within a line; the list then has those of the other lines.
func (n *Node) Processes() (list []Process, ok bool, err error) {
	data, ok, err := n.File(ProcessesFile)
	if err != nil || !ok {
		return nil, ok, err
	}
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if text[len(text)-1] != '\n' {
			err = cmp.Or(err, fmt.Errorf("%s: it is cut off in line %d", ProcessesFile, line))
			break
		}
		comment, isNot := bytes.CutPrefix(text, []byte("# "))
		if isNot {
			text = comment
		}
		pid, name, _ := bytes.Cut(bytes.TrimSpace(text), []byte(" "))
		if len(pid) == 0 || string(pid) == "PID" {
			continue
		}
		p := Process{Name: string(bytes.TrimSpace(name))}
		switch first, rest, _ := strings.Cut(p.Name, " "); {
		case isNot:
			p.Name, p.Not, _ = strings.Cut(p.Name, notTaken)
		case rest == "":
		case isCgroup(first):
			p.Cgroup, p.Name = first, strings.TrimSpace(rest)
		case first == "-": // as ps prints none
			p.Name = strings.TrimSpace(rest)
		}
		var bad error
		if p.PID, bad = strconv.Atoi(string(pid)); bad == nil && p.Name != "" && utf8.Valid(text) &&
			isNot == (p.Not != "") {
			list = append(list, p)
		} else if err == nil {
			err = fmt.Errorf("%s: line %d: %q is not a process's number and name, as ps -e -o pid=,cgroup:512=,comm= "+
				"prints them", ProcessesFile, line, bytes.TrimSpace(text))
		}
	}
	slices.SortFunc(list, func(a, b Process) int { return a.PID - b.PID })
	return list, true, ErrorOf(n.Name, err)
}

// isCgroup tells whether a text is a control group, or several: printable, without spaces, and of a reasonable length.
func isCgroup(s string) bool {
	number, rest, ok := strings.Cut(s, ":")
	if !ok || len(s) > maxCgroup || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return false
	}
	_, err := strconv.Atoi(number)
	return err == nil && strings.Contains(rest, ":/")
}
