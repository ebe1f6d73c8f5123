// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/maruel/natural"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Selection is the nodes that a person has chosen. At most one of its fields is set, except that Local may have a name.
type Selection struct {
	Names     []string        // --node
	All       bool            // --all-nodes
	Labels    labels.Selector // --selector; nil: none was given
	LabelText string          // Labels as they were given
	Local     bool            // --local: this machine
}

// Chosen tells whether the person chose nodes.
func (s *Selection) Chosen() bool {
	return len(s.Names) > 0 || s.All || s.Labels != nil || s.Local
}

// FewNodes is how many nodes of a cluster are read where nobody chose any: each costs a pod.
const FewNodes = 3

// NodesOf are the nodes that run endpoints of Services, at most FewNodes: on them the path is shortest, and a failure
// tells most.
func NodesOf(targets []cluster.Target) func(*snapshot.Cluster) []string {
	return func(objects *snapshot.Cluster) []string { return cluster.NodesOf(objects, targets, FewNodes) }
}

// KnownNodes names the nodes that can be read, in order; nil if that is unknown.
func (s *Session) KnownNodes() []string { return s.nodes.Known(s.Objects) }

// Place names where nodes are searched for, for people, as a prefix of their names.
func (s *Session) Place() string {
	if s.live {
		return "cluster: it has"
	}
	return "snapshot: it holds"
}

// CertainNodes returns the nodes that are read regardless of the cluster's objects: those of a snapshot. ok is false if
// the objects decide.
func (s *Session) CertainNodes() (nodes []string, ok bool, err error) {
	if s.live || s.config.Nodes.Labels != nil {
		return nil, false, nil
	}
	nodes, err = s.namedNodes()
	if err != nil && s.Objects == nil {
		return nil, false, nil // the objects may know the node by an address
	}
	return nodes, err == nil, err
}

// ChooseNodes returns the nodes to read. preferred names those of a cluster that are read where nobody chose any, and
// may be nil; where it names none, the first ones are.
func (s *Session) ChooseNodes(preferred func(*snapshot.Cluster) []string) ([]string, error) {
	nodes, err := s.namedNodes()
	if err != nil {
		return nil, err
	}
	if s.config.Nodes.Labels != nil {
		return s.labelledNodes(nodes)
	}
	if !s.live || s.config.Nodes.Chosen() {
		return nodes, nil
	}
	if len(nodes) > FewNodes && preferred != nil {
		if few := preferred(s.Objects); len(few) > 0 {
			return few, nil
		}
	}
	return nodes[:min(len(nodes), FewNodes)], nil
}

// namedNodes returns the nodes that --node names, or all there are.
func (s *Session) namedNodes() ([]string, error) {
	known := s.KnownNodes()
	names := make([]string, len(s.config.Nodes.Names))
	for i, n := range s.config.Nodes.Names {
		names[i] = cluster.NodeName(strings.TrimSpace(n))
		if names[i] == "" {
			return nil, Usagef("--node %q has no name of a node: it may be %s", n, Shorten(known))
		}
		if names[i] = nodeNamed(s.Objects, names[i]); !slices.Contains(known, names[i]) {
			names[i] = sameName(known, names[i]) // of a snapshot without Nodes
		}
	}
	if s.config.Nodes.Local && len(names) > 0 {
		known = nodeNames(s.Objects) // the files will show whether it is this machine
	}
	if len(known) == 0 {
		if s.live && len(names) > 0 {
			return names, nil // Nodes may not be read: the helper will see
		}
		return nil, s.noNodes()
	}
	var nodes []string
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, Usagef("node %q is not in the %s %s%s", n, s.Place(), Shorten(known), meantNode(n, known))
		}
		if !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	if nodes == nil {
		nodes = known
	}
	return nodes, nil
}

// nodeNamed returns the node that has a name, as its own, as a host name or as an address, in upper or lower case and
// with the dot at the end of a name of DNS; the name itself where none has, or where no objects were read.
func nodeNamed(objects *snapshot.Cluster, name string) string {
	if objects == nil {
		return name
	}
	name = sameName(nodeNames(objects), name)
	for _, n := range objects.Nodes {
		for i := range n.Status.Addresses {
			if strings.EqualFold(n.Status.Addresses[i].Address, strings.TrimSuffix(name, ".")) {
				return n.Name
			}
		}
	}
	return name
}

// sameName returns the one of several names that a name is but for its case and a dot at its end; the name itself where
// none is.
func sameName(names []string, name string) string {
	for _, n := range names {
		if strings.EqualFold(n, strings.TrimSuffix(name, ".")) {
			return n
		}
	}
	return name
}

// meantNode says which nodes may have been meant by a name that none has.
func meantNode(name string, known []string) string {
	switch {
	case name == "*" || name == "all":
		return "; did you mean --all-nodes?"
	case strings.ContainsAny(name, " ;"):
		return "; several are separated by commas"
	}
	name = strings.ToLower(name)
	var similar []string
	for _, n := range known {
		if withoutDigits(n) != withoutDigits(name) { // worker-2 is another node than worker-1, and not a slip for it
			similar = append(similar, n)
		}
	}
	return cluster.DidYouMean(name, similar)
}

func withoutDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, s)
}

// noNodes says why there is no node to read.
func (s *Session) noNodes() error {
	switch {
	case !s.live:
		return Usagef("%s holds no node: there is no nodes/NODE/ in it with a file of the format (docs/snapshots.md)",
			s.config.Snapshot)
	case slices.Contains(s.Objects.Missing, "nodes"):
		return Usagef("you may not list nodes (deploy/rbac.yaml grants it): name them with --node")
	case s.config.Nodes.Local && len(s.Objects.Nodes) > 0:
		return Usagef("this machine is not one of the cluster's nodes (%s): run --local on a node, and give its name by "+
			"--node if its host name is another", Shorten(nodeNames(s.Objects)))
	}
	return NotInspected(errors.New("the cluster has no node"))
}

// ofNodes ends an error about --selector: kubectl has it for whatever is listed.
const ofNodes = "; it is about the labels of nodes, not of Services or pods"

// labelledNodes keeps the nodes that --selector selects.
func (s *Session) labelledNodes(nodes []string) ([]string, error) {
	if slices.Contains(s.Objects.Missing, "nodes") {
		return nil, Usagef("--selector needs the labels of the nodes, and they were not read (cluster/nodes.json): " +
			"name them with --node")
	}
	selector := s.config.Nodes.Labels
	var out []string
	for _, n := range s.Objects.Nodes {
		if slices.Contains(nodes, n.Name) && selector.Matches(labels.Set(n.Labels)) {
			out = append(out, n.Name)
		}
	}
	if len(out) == 0 {
		return nil, Usagef("--selector %q selects no node of the %s %s"+ofNodes, s.config.Nodes.LabelText, s.Place(),
			Shorten(nodes))
	}
	slices.SortFunc(out, natural.Compare)
	return out, nil
}

// OneNode returns the node of a command that changes one: the named one, which the cluster has to have where its Nodes
// may be listed, or with name "" the machine that this is.
func (s *Session) OneNode(name string) (string, error) {
	if name == "" {
		known := s.KnownNodes()
		if len(known) != 1 {
			return "", Usagef("this machine is not one of the cluster's nodes by its name and addresses: say which with --node")
		}
		return known[0], nil
	}
	all := nodeNames(s.Objects)
	name = nodeNamed(s.Objects, cluster.NodeName(name))
	if len(all) > 0 && !slices.Contains(all, name) {
		return "", Usagef("there is no node %q: the cluster has %s%s", name, Shorten(all), cluster.DidYouMean(name, all))
	}
	return name, nil
}

// NoteNodes reports which nodes are read, if they were not chosen: of a snapshot only to people. because is the reason
// for these.
func (s *Session) NoteNodes(nodes []string, people bool, because string) {
	all := len(s.KnownNodes())
	switch {
	case s.config.Nodes.Chosen() || !people && !s.live:
	case s.live && len(nodes) < all:
		s.Progress.Note("no --node given: reading %s of %d nodes, which %s; --all-nodes reads all",
			Shorten(nodes), all, because)
	case s.live:
		s.Progress.Note("no --node given: reading %s", Shorten(nodes))
	case len(nodes) > 1:
		s.Progress.Note("no --node given: these are all %d nodes of the snapshot", len(nodes))
	}
}

// Shorten joins names, and cuts a long list.
func Shorten(names []string) string {
	const limit = 8
	if len(names) > limit {
		return strings.Join(names[:limit], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}
