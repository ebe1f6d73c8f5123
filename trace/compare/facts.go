// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"net/netip"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// The parts of a node that are compared, in the order in which they are listed: what decides first comes first.
const (
	PartRules         = report.PartRules
	PartServers       = report.PartServers
	PartSets          = report.PartSets
	PartConfiguration = "configuration"
	PartVersions      = "versions"
	PartSettings      = "settings"
	PartRoutes        = "routes"
	PartRoutingRules  = "routing rules"
	PartLinks         = "links"
	PartNeighbours    = "neighbours"
	PartTunnels       = "tunnels"
	PartWireGuard     = "WireGuard"
	PartBridges       = "bridge entries"
	PartListeners     = "listeners"
	PartResolver      = "resolver"
)

// PartPods stands for the network namespaces of pods that are not compared.
const PartPods = "pods"

var parts = []string{
	PartRules, PartServers, PartSets, PartConfiguration, PartVersions, PartSettings, PartRoutes, PartRoutingRules,
	PartLinks, PartNeighbours, PartTunnels, PartWireGuard, PartBridges, PartListeners, PartResolver,
}

// place is where something stands: a chain of a table, a set, a routing table.
type place struct{ part, table, name string }

func (p place) String() string { return strings.TrimSpace(p.table + " " + p.name) }

// list is what stands at a place.
type list struct {
	items []item
	// base is what the chain or set itself is: its policy, its hook, its type.
	base string
	kind tableKind // of rules and of sets of nftables
	// probabilities are the shares of the endpoints of a chain, as text; "" where they are equal.
	probabilities string
	endpoints     int
	unread        string // why what stands there is not known, or not all of it
}

// Facts is what is compared of a node. It keeps of the node's state the texts alone, so that two large nodes can be
// read one after the other.
type Facts struct {
	node   string
	lists  map[place]*list
	values map[place]string // of what has one value: a setting, a policy, an interface

	// unread are the parts that were not read, or not all of them, with the reason; "" stands for one whose files were
	// not collected.
	unread map[string]string
	// tables are the tables that were read, by family and backend: what another node has there and this one lacks does
	// not exist.
	tables map[tableKind]bool
	// holes are why a part of a table was not read, by the table's name, and with that name of the tables of a kind: one
	// that is not among named may be behind the hole.
	holes   map[string]string
	holesOf map[tableKind]string
	named   map[string]bool
	// sources say where values of kube-proxy's configuration were found.
	sources map[string]string

	report report.NodeReport
	clock  int64 // when the node was read, in seconds of Unix time; 0: not known
	own    []substitution

	pods map[string]*Facts // of the network namespaces that were collected, by namespace/name
	why  string            // of a pod: why it was not read
}

// tableKind is a family's tables of a backend; for native tables the family is 0.
type tableKind struct {
	family  netfilter.Family
	backend netfilter.Backend
}

// reader makes Facts.
type reader struct {
	*Facts
	state   *nodestate.State
	objects *snapshot.Cluster
	// endpointOf is where a chain translates the destination to.
	endpointOf map[*netfilter.Chain]netip.AddrPort
}

// Of collects what is compared of a node. files and state are the same node; objects are those that the report was
// judged by. The report has to have the paths that match, too (judge.Request.Matching).
func Of(files *snapshot.Node, state *nodestate.State, objects *snapshot.Cluster, r report.NodeReport) *Facts {
	x := newReader(&Facts{
		node: state.Name, report: r, pods: map[string]*Facts{},
	}, state, objects)
	x.rules()
	x.sets(files)
	x.servers()
	x.hooks(files)
	x.configuration(files)
	x.processes()
	x.network()
	x.tunnels()
	x.listeners()
	x.identity()
	x.sortOwn()
	x.pods(files)
	if now := state.Host.Clock().Now; !now.IsZero() {
		x.clock = now.Unix()
	}
	return x.Facts
}

func newReader(f *Facts, state *nodestate.State, objects *snapshot.Cluster) *reader {
	f.lists, f.values, f.unread = map[place]*list{}, map[place]string{}, map[string]string{}
	f.tables, f.sources = map[tableKind]bool{}, map[string]string{}
	f.holes, f.holesOf, f.named = map[string]string{}, map[tableKind]string{}, map[string]bool{}
	return &reader{
		Facts: f, state: state, objects: objects, endpointOf: map[*netfilter.Chain]netip.AddrPort{},
	}
}

// Unread makes the Facts of a node that could not be inspected.
func Unread(r report.NodeReport) *Facts { return &Facts{node: r.Node, report: r} }

// at returns the list of a place, and makes it.
func (f *Facts) at(p place) *list {
	l := f.lists[p]
	if l == nil {
		l = &list{}
		f.lists[p] = l
	}
	return l
}

// add adds an entry whose place in its list means nothing.
func (f *Facts) add(part, name, key, text string) {
	l := f.at(place{part: part, name: name})
	l.items = append(l.items, item{key: key, text: text, class: "any"})
}

func (f *Facts) set(part, name, value string) { f.values[place{part: part, name: name}] = value }
