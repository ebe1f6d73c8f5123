// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

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
	PartPods          = "pods" // network namespaces of pods that are not compared
)

var parts = []string{
	PartRules, PartServers, PartSets, PartConfiguration, PartVersions, PartSettings, PartRoutes, PartRoutingRules,
	PartLinks, PartNeighbours, PartTunnels, PartWireGuard, PartBridges, PartListeners, PartResolver,
	PartServices, PartEndpoints, PartPodObjects, PartNodes,
}

// Beside are the files of a node, or of a pod, that have no part of their own, with what is said of them. What depends
// on them are verdicts of paths and findings, which are compared.
var Beside = map[string]string{
	snapshot.ConntrackFile:    "connections come and go",
	snapshot.MetricsFile:      "counters; kube-proxy's version in it is compared",
	snapshot.HealthzFile:      "times; whether kube-proxy is healthy is compared",
	snapshot.LivezFile:        "times",
	snapshot.TimeFile:         "the clock",
	snapshot.ProbesFile:       "what single connections showed",
	snapshot.SocketCountsFile: "sockets come and go",
	snapshot.UnreadFile:       "what was not read is listed as not compared",
}

// Object is one thing that a node has, in a canonical form: a chain, a set, a routing table, a setting. It is the same
// on two sides where the lines are: counters, comments and numbers of the kernel's are left out of them, and lines
// whose order means nothing are sorted.
type Object struct {
	Part, Name string
	Lines      []Line

	source source
	table  string // of a chain or a set of rules, its table
	unread string // why it was not read, or not all of it
	weak   bool   // that one side has it alone says nothing
	from   string // where a value was found, which is compared with one from there
}

// Line is a line of an Object.
type Line struct {
	Canonical string // two lines are the same if it is
	Text      string // as a person knows it
	Number    int    // of a rule, in its chain

	// class is that of lines whose order among each other means nothing, where they stand one after the other; "" for a
	// line whose place matters.
	class string
	// What tells whose it is: the chain that a rule or an element leads to, the destination that it is for, and the
	// endpoint that it sends to.
	target   string
	jumps    bool // target is a chain of the table
	dst      netip.Addr
	port     uint16
	endpoint netip.AddrPort
}

// The classes of lines.
const (
	anyOrder  = "any"
	frontends = "frontend" // rules of a chain for all Services
	choices   = "endpoint" // rules of a Service that choose at random
	affinity  = "affinity"
)

type key struct{ part, name string }

func compareKeys(a, b key) int {
	return cmp.Or(cmp.Compare(a.part, b.part), cmp.Compare(a.name, b.name))
}

// source is what objects of a part are read from.
type source struct{ part, name string }

func compareSources(a, b source) int {
	return cmp.Or(cmp.Compare(a.part, b.part), cmp.Compare(a.name, b.name))
}

// of says something of a source.
func (s source) of(why string) string {
	if s.name == "" {
		return why
	}
	return s.name + ": " + why
}

// Facts is what is compared of a node. It keeps of the node's state the texts alone, so that two large nodes can be
// read one after the other.
type Facts struct {
	node    string
	objects map[key]*Object
	unread  map[source]string // why sources were not read, or not all of them; "": not collected
	tables  map[string]bool
	report  report.NodeReport
	clock   int64 // when the node was read, in seconds of Unix time; 0: not known
	own     []substitution
	pods    map[string]*Facts // of the network namespaces that were collected, by namespace/name
	why     string            // of a pod: why it was not read
}

// reader makes Facts.
type reader struct {
	*Facts
	state   *nodestate.State
	files   *snapshot.Node
	cluster *snapshot.Cluster
}

// Of collects what is compared of a node. files and state are the same node; objects are those that the report was
// judged by. The report has to have the paths that match, too (judge.Request.Matching).
func Of(files *snapshot.Node, state *nodestate.State, objects *snapshot.Cluster, r report.NodeReport) *Facts {
	x := newReader(&Facts{node: state.Name, report: r, pods: map[string]*Facts{}}, state, files, objects)
	x.namespace()
	x.servers()
	x.configuration()
	x.tunnels()
	x.sort()
	names := files.Pods()
	if n := len(names) - maxPods; n > 0 {
		x.unread[source{PartPods, ""}] = fmt.Sprintf("%d of %d pods", n, len(names))
		names = names[:maxPods]
	}
	for _, name := range names {
		p := &Facts{node: x.node}
		x.pods[name] = p
		of := files.Pod(name)
		state, err := nodestate.Load(of)
		if err != nil {
			p.why = snapshot.Reason(err)
			continue
		}
		y := newReader(p, state, of, objects)
		y.namespace()
		y.resolver()
		y.gateways()
		y.sort()
	}
	if now := state.Host.Clock().Now; !now.IsZero() {
		x.clock = now.Unix()
	}
	return x.Facts
}

// maxPods is of how many pods of a node the network namespaces are compared: a snapshot has those of a few Services.
const maxPods = 500

func newReader(f *Facts, state *nodestate.State, files *snapshot.Node, objects *snapshot.Cluster) *reader {
	f.objects, f.unread, f.tables = map[key]*Object{}, map[source]string{}, map[string]bool{}
	return &reader{Facts: f, state: state, files: files, cluster: objects}
}

// Unread makes the Facts of a node that could not be inspected.
func Unread(r report.NodeReport) *Facts { return &Facts{node: r.Node, report: r} }

// Objects returns what is compared of the node, but for its pods.
func (f *Facts) Objects() []*Object {
	out := make([]*Object, 0, len(f.objects))
	for _, k := range slices.SortedFunc(maps.Keys(f.objects), compareKeys) {
		out = append(out, f.objects[k])
	}
	return out
}

// namespace reads what nodes and pods have.
func (r *reader) namespace() {
	r.rules()
	r.ipsets()
	r.network()
	r.listeners()
	r.identity()
}

// object returns an object, and makes it. from is the file that it was read from, or what stands for that.
func (f *Facts) object(part, name, from string) *Object {
	o := f.objects[key{part, name}]
	if o == nil {
		o = &Object{Part: part, Name: name, source: source{part, from}}
		f.objects[key{part, name}] = o
	}
	return o
}

// add adds a line whose place means nothing.
func (o *Object) add(text string) {
	o.Lines = append(o.Lines, Line{Canonical: text, Text: text, class: anyOrder})
}

// set adds the first line of an object.
func (o *Object) set(text string) *Object {
	o.Lines = append(o.Lines, Line{Canonical: text, Text: text})
	return o
}

// sort puts what has no order into one, and of what is the node's own the longest first: a name may be the beginning of
// another.
func (r *reader) sort() {
	for _, o := range r.objects {
		sortLines(o.Lines)
	}
	slices.SortStableFunc(r.own, func(a, b substitution) int { return len(b.own) - len(a.own) })
}

// sortLines sorts runs of lines of a class.
func sortLines(list []Line) {
	for i := 0; i < len(list); {
		end := i + 1
		for list[i].class != "" && end < len(list) && list[end].class == list[i].class {
			end++
		}
		slices.SortStableFunc(list[i:end], func(a, b Line) int { return cmp.Compare(a.Canonical, b.Canonical) })
		i = end
	}
}

// always are files of what every node has: one that is not there was not collected, and nobody has to say so.
var always = []string{
	snapshot.AddrFile, snapshot.LinkFile, snapshot.RouteFile, snapshot.Route6File, snapshot.RuleFile, snapshot.Rule6File,
	snapshot.SysctlFile, snapshot.NeighbourFile, snapshot.ListenFile,
}

// read notes whether the file of a part was read.
func (r *reader) read(part, file string) {
	if why := cmp.Or(r.state.Unread(file), r.state.Reading(file).Reason); why != "" {
		r.unread[source{part, file}] = why
	} else if !r.state.Has(file) && (!r.state.ListsUnread() || slices.Contains(always, file)) {
		r.unread[source{part, file}] = ""
	}
}

// file reads a small file that the state does not have, line by line.
func (r *reader) file(part, file string, line func(string)) {
	r.read(part, file)
	data, ok, err := r.files.File(file)
	if err != nil {
		r.unread[source{part, file}] = snapshot.Reason(err)
	} else if ok && r.unread[source{part, file}] == "" {
		delete(r.unread, source{part, file})
	}
	n := 0
	for text := range strings.Lines(string(data)) {
		if text = strings.Join(strings.Fields(text), " "); text != "" && n < maxLines {
			line(text)
			n++
		}
	}
}

// maxLines is how many lines of a small file are compared.
const maxLines = 10_000
