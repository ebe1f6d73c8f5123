// SPDX-License-Identifier: Apache-2.0

package nodehelper

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/collect"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// stillJudging is how often the plugin is told that the node is being judged: one that hears nothing for its --timeout
// gives up, and a busy node may take longer.
const stillJudging = 5 * time.Second

// Judgement is what a helper says of its node.
type Judgement struct {
	Report *report.NodeReport
	Files  []wire.File // judge.PeerFiles, those that there are
}

// judge sends what is not a match on the node. What a plugin makes of it is its own: it trusts no node with the words
// that a person reads, and reads a node itself where something is wrong.
func (o Options) judge(ctx context.Context, p wire.JudgeParams, a *wire.Answer) error {
	do := o.Judge
	if do == nil {
		do = o.Judged
	}
	type result struct {
		*Judgement
		err error
	}
	done := make(chan result, 1)
	go func() {
		got, err := do(ctx, &p)
		done <- result{got, err}
	}()
	var got result
	for judging := true; judging; {
		if err := a.Progress("reading and analysing"); err != nil {
			return err
		}
		select {
		case got = <-done:
			judging = false
		case <-time.After(stillJudging):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if got.err != nil {
		return got.err
	}
	for _, f := range got.Files {
		if err := a.File(f); err != nil {
			return err
		}
	}
	return sendJSON(a, wire.JudgedFile, got.Report)
}

// Judged reads the node, and judges all Services there.
func (o Options) Judged(ctx context.Context, p *wire.JudgeParams) (*Judgement, error) {
	if err := snapshot.CheckNodeName(p.Node); err != nil {
		return nil, err
	}
	objects, err := objectsOf(p)
	if err != nil {
		return nil, err
	}
	files, unread := map[string][]byte{}, map[string]string{}
	err = o.read(ctx, collect.Options{Root: o.Root, Files: snapshot.NodeFiles}, func(f collect.File) error {
		if f.Unread != "" {
			unread[f.Name] = f.Unread
		} else {
			files[f.Name] = f.Data
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := &Judgement{}
	for _, name := range judge.PeerFiles {
		if data, ok := files[name]; ok {
			out.Files = append(out.Files, wire.File{Name: name, Data: data})
		}
	}
	files[snapshot.UnreadFile] = snapshot.EncodeUnread(unread)
	out.Report, err = judged(objects, snapshot.NewNode(p.Node, files))
	return out, err
}

// judged judges a node. A panic over its files is an error of it: the plugin reads the node itself then.
func judged(objects *snapshot.Cluster, files *snapshot.Node) (got *report.NodeReport, err error) {
	defer func() {
		if bug := recover(); bug != nil {
			err = fmt.Errorf("the node's files trigger a defect of this program: %v", bug)
		}
	}()
	state, err := nodestate.Load(files)
	if err != nil {
		return nil, err
	}
	r := judge.Node(judge.NewCluster(objects), state, judge.Request{Backwards: true, PerPathService: true})
	return &r, nil
}

// objectsOf puts together the objects of all nodes and those of this one.
func objectsOf(p *wire.JudgeParams) (*snapshot.Cluster, error) {
	all, err := snapshot.UnpackObjects(p.Objects)
	if err != nil {
		return nil, err
	}
	own, err := snapshot.UnpackObjects(p.Own)
	if err != nil {
		return nil, err
	}
	name := func(s *discoveryv1.EndpointSlice) string { return s.Namespace + "/" + s.Name }
	here := make(map[string]*discoveryv1.EndpointSlice, len(own.EndpointSlices))
	for _, s := range own.EndpointSlices {
		here[name(s)] = s
	}
	for i, s := range all.EndpointSlices {
		all.EndpointSlices[i] = cmp.Or(here[name(s)], s)
	}
	for _, n := range own.Nodes {
		if i := slices.IndexFunc(all.Nodes, func(o *corev1.Node) bool { return o.Name == n.Name }); i >= 0 {
			all.Nodes[i] = n
		}
	}
	all.Pods, all.Missing, all.Unread = own.Pods, own.Missing, own.Unread
	return all, nil
}
