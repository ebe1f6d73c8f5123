// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"

	"github.com/svcproxy/kubectl-svcproxy/trace/diagnose"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Inspector gives what nodes hold: their rules, addresses, routes and kube-proxy's own state.
type Inspector interface {
	// Nodes names the nodes that can be inspected, in order.
	Nodes(ctx context.Context) ([]string, error)
	// Inspect returns one node's files. An error is the node's own: the others are inspected all the same.
	Inspect(ctx context.Context, node string) (*snapshot.Node, error)
}

// snapshotInspector inspects the nodes of a snapshot.
type snapshotInspector struct{ *snapshot.Snapshot }

func (s snapshotInspector) Nodes(context.Context) ([]string, error) { return s.NodeNames(), nil }

func (s snapshotInspector) Inspect(_ context.Context, node string) (*snapshot.Node, error) {
	return s.Node(node)
}

// reading is a node that was read, or why it was not.
type reading struct {
	node string
	*diagnose.Reading
	err error
}

// read reads nodes in order, one ahead of whoever takes them: a node's rules are large, and reading them needs no cluster. It
// stops when the context ends.
func read(ctx context.Context, in Inspector, nodes []string) <-chan reading {
	out := make(chan reading)
	go func() {
		defer close(out)
		for _, name := range nodes {
			r := reading{node: name}
			files, err := in.Inspect(ctx, name)
			if r.err = err; err == nil {
				r.Reading = diagnose.Read(files)
			}
			select {
			case out <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// judge judges the nodes as they come in. An interrupt does not wait for the node under judgement.
func judge(ctx context.Context, nodes <-chan reading, count int, objects *snapshot.Cluster, request func(node string) diagnose.Request, p *progress) ([]diagnose.NodeReport, error) {
	defer p.done()
	var reports []diagnose.NodeReport
	for range count {
		p.say("analysing node %d of %d", len(reports)+1, count)
		one := make(chan diagnose.NodeReport, 1)
		go func() {
			r, ok := <-nodes
			switch {
			case !ok: // interrupted
			case r.err != nil:
				one <- diagnose.NodeReport{Node: r.node, Verdict: diagnose.Unknown, Error: r.err.Error()}
			default:
				one <- r.Judge(objects, request(r.node))
			}
		}()
		select {
		case r := <-one:
			reports = append(reports, r)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return reports, nil
}
