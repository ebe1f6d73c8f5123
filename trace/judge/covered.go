// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// part is something of a node that decides a connection, and the files that hold it: where one of them was not read, a
// Match does not cover the part.
type part struct {
	name  string
	files [2][]string // of IPv4, and of IPv6; a file of both stands in the first
}

// parts are what a judgement looks at beside the rules, in the order in which people are told.
var parts = []part{
	{"routes", [2][]string{{snapshot.AddrFile, snapshot.RouteFile}, {snapshot.Route6File}}},
	{"routing policy", [2][]string{{snapshot.RuleFile}, {snapshot.Rule6File}}},
	{"settings", [2][]string{{snapshot.SysctlFile}}},
	{"bridges", [2][]string{{snapshot.LinkFile}}},
	{"neighbours", [2][]string{{snapshot.NeighbourFile}}},
	{"ends of tunnels", [2][]string{{snapshot.BridgeFDBFile}}},
	{"programs of tc and BPF", [2][]string{{snapshot.ProgramsFile}}},
	{"IPsec policies", [2][]string{{snapshot.XfrmFile}}},
}

// covered tells what the verdicts of a node's paths rest on, and what they leave open. Settings of all interfaces alone
// leave open what each of them has.
func (n *node) covered() *report.Coverage {
	out := &report.Coverage{Judged: []string{"rules"}}
	for i := range parts {
		p := &parts[i]
		gap := report.Gap{Part: p.name}
		for at, f := range nodestate.Families {
			if f == netfilter.IPv6 && !n.survey.hasFrontends[f] {
				continue
			}
			for _, file := range p.files[at] {
				if !n.knows(file) || file == snapshot.SysctlFile && !n.net.HasInterfaceSettings() {
					gap.Files = append(gap.Files, file)
				}
			}
		}
		if gap.Files == nil {
			out.Judged = append(out.Judged, p.name)
		} else {
			out.NotJudged = append(out.NotJudged, gap)
		}
	}
	return out
}

// younger are files that older helpers did not know: those that do write programs.txt, whatever there is.
var younger = map[string]bool{
	snapshot.NeighbourFile: true, snapshot.BridgeFDBFile: true, snapshot.ProgramsFile: true, snapshot.XfrmFile: true,
}

// knows tells whether all that a file has to tell is known: it was read, or what it would list is not on the node.
func (n *node) knows(file string) bool {
	switch n.Reading(file).State {
	case nodestate.Whole:
		return true
	case nodestate.Absent:
		return n.ListsUnread() && (!younger[file] || n.Has(snapshot.ProgramsFile))
	case nodestate.Unreadable, nodestate.Partial:
	}
	return false
}
