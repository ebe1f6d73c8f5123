// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// targetOptions say where the data is from and which nodes are looked at.
type targetOptions struct {
	snapshot string
	nodes    []string
	allNodes bool
	selector string
	match    labels.Selector
	helper   helperOptions
	flags    *pflag.FlagSet
}

func (o *targetOptions) addFlags(cmd *cobra.Command, s *shared) {
	f := cmd.Flags()
	o.addSnapshotFlag(cmd)
	f.StringSliceVar(&o.nodes, "node", nil, "Look at this node (repeatable). Without it: all nodes of a snapshot; in a cluster those that matter, which are named")
	f.BoolVar(&o.allNodes, "all-nodes", false, "Look at all nodes")
	f.StringVarP(&o.selector, "selector", "l", "", "Look at the nodes with these labels, as in kubectl get nodes -l")
	_ = cmd.RegisterFlagCompletionFunc("node", s.completeNodes)
	o.helper.addFlags(cmd, s)
}

func (o *targetOptions) addSnapshotFlag(cmd *cobra.Command) {
	o.flags = cmd.Flags()
	o.flags.StringVar(&o.snapshot, "snapshot", "", "Read this snapshot, a directory or .tar.gz; no cluster is contacted")
	_ = cmd.RegisterFlagCompletionFunc("snapshot", completeFiles)
}

func (o *targetOptions) validate() error {
	if o.allNodes && len(o.nodes) > 0 || o.allNodes && o.selector != "" || len(o.nodes) > 0 && o.selector != "" {
		return usagef("--node, --selector and --all-nodes exclude one another: give one of them")
	}
	// --node "$NODE" with nothing in NODE must not mean all nodes, nor --snapshot "$DUMP" the cluster.
	if slices.Contains(o.nodes, "") || len(o.nodes) == 0 && o.flags.Changed("node") {
		return usagef("--node is empty: give the name of a node")
	}
	if o.snapshot == "" && o.flags.Changed("snapshot") {
		return usagef("--snapshot is empty: give a directory or a .tar.gz")
	}
	if o.selector != "" {
		var err error
		if o.match, err = labels.Parse(o.selector); err != nil {
			return usagef("--selector %q: %w", o.selector, err)
		}
	}
	if o.helper.local && (o.allNodes || o.selector != "" || len(o.nodes) > 1) {
		return usagef("--local looks at this machine, which is one node: give at most one --node with it")
	}
	return o.helper.validate(o.snapshot != "", o.flags)
}

// run opens the scene and works in it. narrow is the namespace to make do with where not the Services of all may be read; "": none.
func (o *targetOptions) run(ctx context.Context, s *shared, narrow string, work func(context.Context, *scene) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sc, err := o.open(s, narrow)
	if err != nil {
		return err
	}
	defer sc.nodes.Close()
	defer sc.progress.done()
	return work(ctx, sc)
}

func (o *targetOptions) open(s *shared, narrow string) (*scene, error) {
	p := newProgress(s.ErrOut, s.getenv)
	if o.snapshot == "" {
		return o.helper.open(s, p, narrow)
	}
	snap, err := snapshot.Open(o.snapshot)
	if err != nil {
		return nil, err
	}
	return &scene{source: cluster.FromSnapshot(snap), nodes: snapshotInspector{snap}, progress: p}, nil
}

// what says in words what the objects are read from.
func (o *targetOptions) what() string {
	if o.snapshot == "" {
		return "the cluster's Services"
	}
	return o.snapshot
}

// certain returns the nodes that are looked at whatever the cluster's objects may say: those of a snapshot. ok is false when the
// objects decide.
func (o *targetOptions) certain(sc *scene) (nodes []string, ok bool, err error) {
	if sc.live || o.match != nil {
		return nil, false, nil
	}
	nodes, err = o.named(sc)
	return nodes, err == nil, err
}

// named returns the nodes that --node names, or all there are.
func (o *targetOptions) named(sc *scene) ([]string, error) {
	all := sc.nodes.Known(sc.objects)
	if o.helper.local && len(o.nodes) > 0 {
		all = nodeNames(sc.objects) // the files will show whether it is this machine
	}
	if len(all) == 0 {
		if sc.live && len(o.nodes) > 0 {
			return o.nodes, nil // Nodes may not be read: the helper will see
		}
		return nil, o.noNodes(sc)
	}
	var nodes []string
	for _, n := range o.nodes {
		if !slices.Contains(all, n) {
			return nil, usagef("node %q is not in the %s %s", n, o.place(), shorten(all))
		}
		if !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	if nodes == nil {
		nodes = all
	}
	return nodes, nil
}

func (o *targetOptions) noNodes(sc *scene) error {
	switch {
	case !sc.live:
		return usagef("%s holds no node: there is no nodes/NODE/ in it with a file of the format (docs/snapshots.md)", o.snapshot)
	case slices.Contains(sc.objects.Missing, "nodes"):
		return usagef("you may not list nodes (deploy/rbac.yaml grants it): name them by --node")
	case o.helper.local && len(sc.objects.Nodes) > 0:
		return usagef("this machine is none of the cluster's nodes (%s): run --local on a node, and give its name by --node if its host name is another", shorten(nodeNames(sc.objects)))
	}
	return codeError{ExitNotInspected, fmt.Errorf("the cluster has no node")}
}

// place says in words where nodes are looked for, ahead of their names.
func (o *targetOptions) place() string {
	if o.snapshot == "" {
		return "cluster: it has"
	}
	return "snapshot: it holds"
}

// choose settles the nodes to look at. pinned is the node that the request itself is bound to, and by what; matter names the nodes
// that matter most to it, in a cluster.
func (o *targetOptions) choose(sc *scene, matter func(o *snapshot.Cluster) []string) ([]string, error) {
	nodes, err := o.named(sc)
	if err != nil {
		return nil, err
	}
	if o.match != nil {
		return o.labelled(nodes, sc.objects)
	}
	if !sc.live || o.chosen() {
		return nodes, nil
	}
	if few := matter(sc.objects); len(few) > 0 && len(nodes) > fewNodes {
		return few, nil
	}
	return nodes[:min(len(nodes), fewNodes)], nil
}

// fewNodes is how many nodes are looked at where nobody chose any: each costs a pod.
const fewNodes = 3

// nodesThatMatter are those that run endpoints of Services: there the path is shortest, and fails most tellingly.
func nodesThatMatter(services []cluster.Target) func(*snapshot.Cluster) []string {
	return func(c *snapshot.Cluster) []string {
		var out []string
		for i := range services {
			for _, s := range c.EndpointSlices {
				if s.Namespace != services[i].Service.Namespace || s.Labels["kubernetes.io/service-name"] != services[i].Service.Name {
					continue
				}
				for k := range s.Endpoints {
					n := s.Endpoints[k].NodeName
					if n != nil && len(out) < fewNodes && !slices.Contains(out, *n) && slices.ContainsFunc(c.Nodes, func(o *corev1.Node) bool { return o.Name == *n }) {
						out = append(out, *n)
					}
				}
			}
		}
		slices.Sort(out)
		return out
	}
}

// noteNodes says which nodes are looked at, where nobody chose them.
func (o *targetOptions) noteNodes(sc *scene, nodes []string, people bool, because string) {
	all := len(sc.nodes.Known(sc.objects))
	switch {
	case o.chosen() || !people && !sc.live:
	case sc.live && len(nodes) < all:
		sc.progress.note("no --node given: looking at %s of %d nodes, which %s; --all-nodes looks at all", shorten(nodes), all, because)
	case sc.live:
		sc.progress.note("no --node given: looking at %s", shorten(nodes))
	case len(nodes) > 1:
		sc.progress.note("no --node given: these are all %d nodes of the snapshot", len(nodes))
	}
}

// labelled keeps the nodes that --selector selects.
func (o *targetOptions) labelled(nodes []string, objects *snapshot.Cluster) ([]string, error) {
	if o.match == nil {
		return nodes, nil
	}
	if slices.Contains(objects.Missing, "nodes") {
		return nil, usagef("--selector needs the labels of the nodes, and they were not read (cluster/nodes.json): name them by --node")
	}
	var out []string
	for _, n := range objects.Nodes {
		if slices.Contains(nodes, n.Name) && o.match.Matches(labels.Set(n.Labels)) {
			out = append(out, n.Name)
		}
	}
	if len(out) == 0 {
		return nil, usagef("--selector %q selects no node of the %s %s", o.selector, o.place(), shorten(nodes))
	}
	slices.Sort(out)
	return out, nil
}

// chosen tells whether the person chose nodes.
func (o *targetOptions) chosen() bool {
	return len(o.nodes) > 0 || o.allNodes || o.selector != "" || o.helper.local
}

// again is the part of a command line that leads to the same data.
func (o *targetOptions) again(s *shared) string {
	var b strings.Builder
	if o.snapshot != "" {
		b.WriteString(" --snapshot " + quote(o.snapshot))
	} else {
		s.kubeFlags(func(name, value string) { b.WriteString(" --" + name + " " + quote(value)) })
	}
	if o.helper.local {
		b.WriteString(" --local")
	}
	return b.String()
}

// everywhere is the flag that makes a command look at all nodes. A snapshot's are looked at anyway.
func (o *targetOptions) everywhere() string {
	if o.snapshot != "" {
		return ""
	}
	return " --all-nodes"
}

// quote makes a word safe to be pasted into a shell.
func quote(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("-_./:=@%+,", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// shorten joins names, and cuts a long list.
func shorten(names []string) string {
	const limit = 8
	if len(names) > limit {
		return strings.Join(names[:limit], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}
