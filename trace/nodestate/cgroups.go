// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// GroupProgram is a program of BPF that is attached to a control group: it sees the connections and packets of the
// processes in that group and in those below it (cgroup_bpf_run_filter_skb and cgroup_bpf_run_filter_sock_addr in
// kernel/bpf/cgroup.c).
type GroupProgram struct {
	Hook     string // connect4, …, as programs.txt has it
	Group    string // the group's path below the root of version 2, from "/" on; "/" for the root
	Text     string
	Families netfilter.Family
}

// datagrams are the hooks that see no connections of TCP.
var datagrams = map[string]bool{"sendmsg4": true, "sendmsg6": true, "recvmsg4": true, "recvmsg6": true}

// Sees tells whether the program sees packets of a family and a protocol.
func (g *GroupProgram) Sees(f netfilter.Family, proto uint8) bool {
	return g.Families&f != 0 && (proto != netfilter.TCP || !datagrams[g.Hook])
}

// groupPrograms reads the lines of programs.txt about control groups.
func groupPrograms(data []byte) (out []GroupProgram) {
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "cgroup" {
			continue
		}
		at, rest, ok := placeOf(words)
		if !ok {
			continue // parsePrograms has said so
		}
		g := GroupProgram{Hook: at.at, Group: at.dir, Text: short(strings.Join(rest, " ")), Families: programFamilies[at.at]}
		if g.Group == "" {
			g.Group = "/"
		}
		out = append(out, g)
	}
	return out
}
