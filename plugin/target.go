// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
	flags    *pflag.FlagSet
}

func (o *targetOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	o.flags = f
	f.StringVar(&o.snapshot, "snapshot", "", "Read this snapshot, a directory or .tar.gz; no cluster is contacted")
	f.StringSliceVar(&o.nodes, "node", nil, "Look at this node (repeatable); without it at all nodes of the snapshot")
	f.BoolVar(&o.allNodes, "all-nodes", false, "Look at all nodes")
	f.StringVarP(&o.selector, "selector", "l", "", "Look at the nodes with these labels, as in kubectl get nodes -l")
	_ = cmd.MarkFlagFilename("snapshot")
	_ = cmd.RegisterFlagCompletionFunc("node", o.completeNodes)
}

func (o *targetOptions) validate() error {
	if o.snapshot == "" {
		return usagef("no --snapshot given: this version reads snapshots only, it contacts no cluster (how to make one: docs/snapshots.md)")
	}
	if o.allNodes && len(o.nodes) > 0 || o.allNodes && o.selector != "" || len(o.nodes) > 0 && o.selector != "" {
		return usagef("--node, --selector and --all-nodes exclude one another: give one of them")
	}
	// --node "$NODE" with nothing in NODE must not mean all nodes.
	if slices.Contains(o.nodes, "") || len(o.nodes) == 0 && o.flags.Changed("node") {
		return usagef("--node is empty: give the name of a node")
	}
	if o.selector != "" {
		var err error
		if o.match, err = labels.Parse(o.selector); err != nil {
			return usagef("--selector %q: %w", o.selector, err)
		}
	}
	return nil
}

// open returns the cluster's and the nodes' side of the data.
func (o *targetOptions) open() (cluster.Source, Inspector, error) {
	s, err := snapshot.Open(o.snapshot)
	if err != nil {
		return nil, nil, err
	}
	return cluster.FromSnapshot(s), snapshotInspector{s}, nil
}

// named returns the nodes that the flags name by themselves; ok is false when the cluster's objects have to be asked.
func (o *targetOptions) named(ctx context.Context, in Inspector) (nodes []string, ok bool, err error) {
	all, err := in.Nodes(ctx)
	if err != nil {
		return nil, false, err
	}
	if len(all) == 0 {
		return nil, false, usagef("%s holds no node: there is no nodes/NODE/ in it with a file of the format (docs/snapshots.md)", o.snapshot)
	}
	for _, n := range o.nodes {
		if !slices.Contains(all, n) {
			return nil, false, usagef("node %q is not in the snapshot: it holds %s", n, shorten(all))
		}
		if !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	if nodes == nil {
		nodes = all
	}
	return nodes, o.match == nil, nil
}

// labelled keeps the nodes that --selector selects.
func (o *targetOptions) labelled(nodes []string, objects *snapshot.Cluster) ([]string, error) {
	if o.match == nil {
		return nodes, nil
	}
	if slices.Contains(objects.Missing, "nodes") {
		return nil, usagef("--selector needs the labels of the nodes, and the snapshot has no cluster/nodes.json: name them by --node")
	}
	var out []string
	for _, n := range objects.Nodes {
		if slices.Contains(nodes, n.Name) && o.match.Matches(labels.Set(n.Labels)) {
			out = append(out, n.Name)
		}
	}
	if len(out) == 0 {
		return nil, usagef("--selector %q selects none of the nodes in the snapshot (%s)", o.selector, shorten(nodes))
	}
	slices.Sort(out)
	return out, nil
}

// chosen tells whether the person chose nodes.
func (o *targetOptions) chosen() bool { return len(o.nodes) > 0 || o.allNodes || o.selector != "" }

// again is the part of a command line that leads to the same data.
func (o *targetOptions) again() string { return " --snapshot " + quote(o.snapshot) }

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
