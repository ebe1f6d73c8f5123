// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"slices"
	"sync"

	"github.com/maruel/natural"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/compare"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// facts reads and judges a node, and returns what is compared of it. The error is that of a snapshot that passes a
// limit, or that is damaged.
func (s *Session) facts(ctx context.Context, node string, request Request) (*compare.Facts, error) {
	if s.live {
		return s.liveFacts(ctx, node, request), ctx.Err()
	}
	files, err := s.nodes.Read(ctx, node, snapshot.NodeFiles)
	if err != nil {
		return nil, Usagef("%w", err)
	}
	if err := s.slots.take(ctx); err != nil {
		return nil, err
	}
	defer s.slots.release()
	s.Progress.Say("analysing node %s", node)
	n := loadNode(node, files)
	if bounds.Is(n.err) {
		return nil, Usagef("%w", n.err)
	}
	return compared(files, &n, s.Objects, s.judgeWithin(judgeTime, &n, s.Objects, request)), nil
}

// liveFacts is facts for a node of a running cluster, whose differences from its expectation are confirmed as for a
// trace.
func (s *Session) liveFacts(ctx context.Context, node string, request Request) *compare.Facts {
	var files *snapshot.Node
	var objects *snapshot.Cluster
	c := &confirmer{
		Session: s, pause: confirmPause, reads: confirmReads,
		read: func(f *snapshot.Node, o *snapshot.Cluster) { files, objects = f, o },
	}
	r := c.judge(ctx, node, request, nil)
	s.nodes.Release(node)
	s.Progress.NodeDone(node)
	if files == nil || r.Error != "" {
		return compare.Unread(r)
	}
	if err := s.slots.take(ctx); err != nil {
		return compare.Unread(notInspected(node, err))
	}
	defer s.slots.release()
	n := loadNode(node, files)
	return compared(files, &n, objects, r)
}

// compared returns what is compared of a node that was judged. Of one that could not be there is nothing.
func compared(
	files *snapshot.Node, n *loadedNode, objects *snapshot.Cluster, r report.NodeReport,
) (out *compare.Facts) {
	if n.err != nil || r.Error != "" {
		return compare.Unread(r)
	}
	defer recovered(func(defect error) { out = compare.Unread(notInspected(n.node, defect)) })
	return compare.Of(files, n.state, objects, r)
}

// CompareNodes reads and judges two nodes, and says what differs between them for the paths that the request selects.
func (s *Session) CompareNodes(
	ctx context.Context, good, bad string, request func(node string) Request,
) (report.NodeDiff, error) {
	defer s.Progress.Done()
	var facts [2]*compare.Facts
	var errs [2]error
	var wg sync.WaitGroup
	for i, node := range []string{good, bad} {
		read := func() { facts[i], errs[i] = s.facts(ctx, node, request(node)) }
		if s.live {
			wg.Go(read)
		} else {
			read()
		}
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return report.NodeDiff{}, err
		}
	}
	return compare.Nodes(facts[0], facts[1]), nil
}

// CompareCaptures compares two sessions of snapshots whose objects were read: the nodes that both hold, of those that
// are chosen; each in its turn, so that one node is in memory as rules at a time.
func CompareCaptures(ctx context.Context, before, after *Session, request Request) (*report.Diff, error) {
	defer before.Progress.Done()
	d := &report.Diff{
		APIVersion: report.APIVersion, Kind: report.KindDiff, Compares: report.ComparesCaptures, Nodes: []report.NodeDiff{},
	}
	inA, inB := before.KnownNodes(), after.KnownNodes()
	chosen, err := chosenNodes(before, after, slices.Concat(inA, inB))
	if err != nil {
		return nil, err
	}
	for _, node := range chosen {
		switch a, b := slices.Contains(inA, node), slices.Contains(inB, node); {
		case !b:
			d.OnlyBefore = append(d.OnlyBefore, node)
			continue
		case !a:
			d.OnlyAfter = append(d.OnlyAfter, node)
			continue
		}
		var facts [2]*compare.Facts
		for i, s := range []*Session{before, after} {
			if facts[i], err = s.facts(ctx, node, request); err != nil {
				return nil, err
			}
		}
		d.Nodes = append(d.Nodes, compare.Captures(facts[0], facts[1]))
	}
	d.Objects, d.ObjectsLeft, d.NotCompared = compare.Objects(before.Objects, after.Objects)
	CountDiff(d)
	return d, nil
}

// CountDiff counts the differences of a Diff.
func CountDiff(d *report.Diff) { compare.Count(d) }

// chosenNodes are the nodes of two snapshots that a person has chosen, or all that one of them has.
func chosenNodes(before, after *Session, all []string) ([]string, error) {
	slices.SortFunc(all, natural.Compare)
	all = slices.Compact(all)
	if len(all) == 0 {
		return nil, before.noNodes()
	}
	names := before.config.Nodes.Names
	for _, n := range names {
		if !slices.Contains(all, n) {
			return nil, Usagef("node %q is in neither %s nor %s: they hold %s", n, before.config.Snapshot,
				after.config.Snapshot, Shorten(all))
		}
	}
	if len(names) == 0 {
		return all, nil
	}
	return slices.DeleteFunc(all, func(n string) bool { return !slices.Contains(names, n) }), nil
}
