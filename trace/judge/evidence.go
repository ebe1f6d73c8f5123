// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// FileNotRead says of a file that is evidence beside the rules, of a node or of the cluster, that it could not be read,
// or not all of it, or that it is not there, and what is not judged for it.
const FileNotRead = "FileNotRead"

var _ = register(kind{code: FileNotRead, severity: note, scope: onNode, by: fileCoverage})

// costs say what is not judged, or taken from elsewhere, without a file. A file that costs nothing has none.
var costs = map[string]string{
	snapshot.ConntrackFile: "connections that older rules decided about are not judged",
	snapshot.AddrFile: "only addresses in the routes and in the API count as the node's own, and what depends on others " +
		"is not judged",
	snapshot.LinkFile:      "the ports of bridges, and interfaces by which another proxy is known, are not judged",
	snapshot.RouteFile:     "where IPv4 packets leave the node is not judged",
	snapshot.Route6File:    "where IPv6 packets leave the node is not judged",
	snapshot.RuleFile:      "IPv4 routing policy is not judged",
	snapshot.Rule6File:     "IPv6 routing policy is not judged",
	snapshot.NeighbourFile: "whether the next hop's link-layer address is known and right is not judged",
	snapshot.BridgeFDBFile: "whether frames go to the right port or end of a tunnel is not judged",
	snapshot.WireGuardFile: "where tunnels of WireGuard lead is not judged",
	snapshot.SysctlFile:    "kernel settings (ip_forward, route_localnet, rp_filter, bridge-nf-call-*) are not judged",
	snapshot.ProgramsFile: "filters of tc, and programs of BPF (tcx, of control groups, of netfilter), are not looked " +
		"for",
	snapshot.XfrmFile:     "policies of IPsec are not looked for",
	snapshot.EbtablesFile: "rules of ebtables-legacy are not looked for",
	snapshot.NFTHooksFile: "the order of chains of the same priority is not known: each is tried",
	snapshot.ListenFile: "who listens where kube-proxy itself should, and at endpoints of the node's own addresses, is " +
		"not judged",
	snapshot.StoppedFile:     "whether processes at endpoints of the node's own addresses are stopped is not judged",
	snapshot.TimeFile:        "rules with -m time are not judged",
	snapshot.ConfigzFile:     "kube-proxy's configuration is taken from elsewhere",
	snapshot.ProxyConfigFile: "kube-proxy's configuration is taken from elsewhere",
	snapshot.FlagsFile:       "kube-proxy's command line is not known",
	snapshot.MetricsFile:     "kube-proxy's version, last sync, failed writes and pending changes are not known",
	snapshot.ProxyModeFile:   "the mode that kube-proxy reports is not known: that of the rules is used",
	snapshot.HealthzFile:     "whether the node drains is not known, and kube-proxy's health only by livez.json",
	snapshot.LivezFile:       "kube-proxy's health on a node that drains is not known",
	snapshot.ProcessesFile:   "whether kube-proxy runs, or another program in its place, is not known",
	snapshot.JournalFile:     "whether rules of kubectl svcproxy program are left over is not judged",
	snapshot.ProbesFile:      "what real connections showed is not known",
	snapshot.UnreadFile:      "what is missing does not count as absent from the node",
}

// partCosts are the costs of files of which a part was read, where these are others.
var partCosts = map[string]string{
	snapshot.ConntrackFile: "of connections that older rules decided about, only those listed are judged",
	snapshot.SysctlFile:    "kernel settings that are not among those read are not judged",
	snapshot.MetricsFile: "what it does not show of kube-proxy's version, last sync, failed writes and pending changes " +
		"is not known",
	snapshot.ProcessesFile: "whether a program runs that it does not list is not known",
}

// clusterCosts are the costs of the kinds of objects that are evidence.
var clusterCosts = map[string]string{
	"nodes":      "zones, pod networks and the node's own addresses in the API are not known",
	"pods":       "pods are not known by name, and none is a sample of a client",
	"configmaps": "kube-proxy's configuration is taken from elsewhere",
}

// refusedFile is a source that names a mode which there is not, or a ConfigMap that cannot be used.
type refusedFile struct {
	source string
	err    error
}

// sourceUnknown says why the node's own source address for a packet to a frontend with source ranges is not known; ""
// where it is, or where it does not matter. To an address of its own the node sends from that address, and in ipvs mode
// kube-proxy makes the frontends such addresses: then it is not the one that stands for the node elsewhere.
func (n *node) sourceUnknown(svc *corev1.Service, f expect.Frontend, o expect.Origin) string {
	if o.Kind != expect.FromNode || f.Kind != expect.LoadBalancerIP || len(sourceRanges(svc, f.Address.Is4())) == 0 {
		return ""
	}
	if _, known := n.net.Local(f.Address); known {
		return ""
	}
	return "the node's source address for " + f.Address.String() + " is not known, and source ranges are compared with " +
		"it: whether the node itself has that address was not collected (" + snapshot.AddrFile + ")"
}

// fileCoverage says which evidence could not be read, and what that costs.
var fileCoverage = &detector{stage: stageCoverage, node: func(n *node) []issue {
	var out []issue
	add := func(subject, reason, cost string) {
		message := "was not read: " + reason
		if cost != "" {
			message += "; " + cost
		}
		out = append(out, issue{code: FileNotRead, subject: subject, predicate: true, message: message})
	}
	for _, file := range slices.Sorted(maps.Keys(n.cluster.Unread)) {
		kind, _, _ := strings.Cut(path.Base(file), ".")
		add(file, n.cluster.Unread[file], clusterCosts[kind])
	}
	for _, c := range n.refused {
		cost, ok := costs[c.source]
		if !ok {
			cost = clusterCosts["configmaps"]
		}
		add(c.source, c.err.Error(), cost)
	}
	for _, file := range n.NotRead() {
		r := n.Reading(file)
		switch cost := costs[file]; {
		case nodestate.IsRules(file): // the families have said so
		case n.Proxy.Down() && slices.Contains(nodestate.StatusFiles, file): // KubeProxyDown has said so
		case r.State == nodestate.Partial:
			if c := partCosts[file]; c != "" {
				cost = c
			}
			out = append(out, issue{
				code: FileNotRead, subject: file, predicate: true,
				message: "was read in part: " + r.Reason + "; " + cost,
			})
		default:
			add(file, r.Reason, cost)
		}
	}
	return append(out, n.absentFiles()...)
}}

// absentFiles names, in one line, the evidence that nobody collected. A collector that lists what it could not read has
// looked for every file: what is missing then does not exist on the node.
func (n *node) absentFiles() []issue {
	if n.ListsUnread() {
		return nil
	}
	var absent []string
	for _, file := range nodestate.Evidence {
		if costs[file] == "" || optional[file] || n.Reading(file).State != nodestate.Absent ||
			n.Config != nil && (file == snapshot.ProxyConfigFile || file == snapshot.ConfigzFile) {
			continue
		}
		absent = append(absent, file)
	}
	for _, gap := range n.covered().NotJudged { // the last line names these
		for _, file := range gap.Files {
			if n.Reading(file).State == nodestate.Absent && !slices.Contains(absent, file) {
				absent = append(absent, file)
			}
		}
	}
	switch len(absent) {
	case 0:
		return nil
	case 1:
		return []issue{{
			code: FileNotRead, subject: absent[0], predicate: true, message: "was not collected: " + costs[absent[0]],
		}}
	}
	return []issue{{
		code: FileNotRead, subject: number(len(absent), "file"), predicate: true,
		message: "were not collected, and what only they show is not judged: " + strings.Join(absent, ", "),
	}}
}

// optional are files whose absence from a snapshot made by hand has no line of its own: the helper alone writes them,
// what they tell is told by others, or the report's coverage names them.
var optional = map[string]bool{
	snapshot.ProgramsFile: true, snapshot.XfrmFile: true, snapshot.NeighbourFile: true, snapshot.BridgeFDBFile: true,
	snapshot.JournalFile: true, snapshot.ProbesFile: true, snapshot.UnreadFile: true, snapshot.LivezFile: true,
	snapshot.RuleFile: true, snapshot.Rule6File: true, snapshot.FlagsFile: true, snapshot.NFTHooksFile: true,
	snapshot.EbtablesFile: true, snapshot.WireGuardFile: true, snapshot.StoppedFile: true,
}
