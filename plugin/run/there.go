// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Of many nodes most are right, and their rules need not be sent for that: a helper that waits on the node judges it,
// and says that all is right, or not. What is wrong is read, judged here, and told in the words of this program: a node
// is not trusted with commands that a person may run. A node that lies says of itself that it is right, as it could
// with files that it has made up.

// judgingThere is how many times as many nodes are asked at once as are read at once.
const judgingThere = 4

// freshFor is how long nodes are judged by the same list of objects.
const freshFor = 10 * time.Second

// asking has a node's helper judge it by parameters, and returns the files of its answer; none where it does not.
type asking func(
	ctx context.Context, node string, params func() (*wire.JudgeParams, error),
) (map[string]snapshot.Packed, error)

// there has nodes judged by their helpers.
type there struct {
	*Session

	lists *objectLists

	mu     sync.Mutex
	shared *sharedObjects
}

// sharedObjects are objects as they are sent to nodes.
type sharedObjects struct {
	once   sync.Once
	listed time.Time
	of     *snapshot.Cluster
	shares *shares
	packed []byte
	err    error
}

// objects returns the objects that nodes are judged by now.
func (t *there) objects(ctx context.Context) (*sharedObjects, error) {
	t.mu.Lock()
	now := t.shared
	if now == nil {
		now = &sharedObjects{listed: time.Now(), of: t.Objects}
	} else if time.Since(now.listed) > freshFor {
		at := time.Now()
		of, err := t.lists.now(ctx, t.Session)
		if err != nil {
			t.mu.Unlock()
			return nil, err
		}
		if len(changes(now.of, of, nil)) == 0 {
			now.listed = at // the same ones
		} else {
			now = &sharedObjects{listed: at, of: of}
		}
	}
	t.shared = now
	t.mu.Unlock()
	now.once.Do(func() {
		now.shares = shareOut(now.of)
		now.packed, now.err = snapshot.PackObjects(now.shares.all)
	})
	return now, now.err
}

// outdated has the objects read again for the next node.
func (t *there) outdated() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shared != nil {
		t.shared.listed = time.Time{}
	}
}

// heard is what a helper says is wrong on its node. It waits compressed: that of many nodes takes much memory.
type heard struct {
	report snapshot.Packed
	by     *snapshot.Cluster
}

// sighting returns what was heard of a node.
func (h *heard) sighting(node string) (*sighting, error) {
	got, err := judgedReport(node, h.report)
	if err != nil {
		return nil, err
	}
	return &sighting{NodeReport: got, by: h.by}, nil
}

// judgeAll has nodes judged by their helpers. It calls result, concurrently, for those of which that is the result, and
// with nil for those whose helpers do not judge, while these are there. It returns what the others say is wrong.
func (t *there) judgeAll(
	ctx context.Context, nodes []string, result func(i int, got *report.NodeReport),
) (wrong []*heard) {
	wrong = make([]*heard, len(nodes))
	// While a node judges itself, nobody here does anything.
	t.eachOf(nodes, t.config.Parallel*judgingThere, func(i int, name string) {
		got, said := t.judge(ctx, name)
		if wrong[i] = said; said == nil {
			result(i, got)
		}
	})
	return wrong
}

// judge has a node judged by its helper, and returns the report where that is the result: all is right, or nobody
// answers. Else it returns what the helper says is wrong; nil where the node has to be read anyway.
func (t *there) judge(ctx context.Context, node string) (*report.NodeReport, *heard) {
	var by *snapshot.Cluster
	files, err := t.there(ctx, node, func() (*wire.JudgeParams, error) {
		o, err := t.objects(ctx)
		if err != nil {
			return nil, err
		}
		own, err := snapshot.PackObjects(o.shares.own(node))
		if err != nil {
			return nil, err
		}
		by = o.of
		return &wire.JudgeParams{Node: node, Objects: o.packed, Own: own}, nil
	})
	if lost, ok := errors.AsType[unreachableError](err); ok { // trying again would take as long again
		r := notInspected(node, lost.error)
		return &r, nil
	}
	said := &heard{files[wire.JudgedFile], by}
	var got *report.NodeReport
	if err == nil && files != nil {
		got, err = judgedReport(node, said.report)
	}
	if err != nil {
		klog.V(2).InfoS("The node was not judged by its helper", "node", node, "err", err) // reading it will tell why
	}
	if err != nil || got == nil {
		return nil, nil
	}
	if !acceptable(got) {
		return nil, said
	}
	delete(files, wire.JudgedFile)
	if t.others != nil {
		t.others.mu.Lock()
		t.others.tell(judge.Owner{Node: node}, snapshot.NewPackedNode(node, files).Only(judge.PeerFiles...))
		t.others.mu.Unlock()
	}
	return got, nil
}

// maxJudged is how long the report of a helper may be, in bytes; a path has a thousand.
const maxJudged = bounds.SmallFile

// judgedReport reads a report of a helper.
func judgedReport(node string, content snapshot.Packed) (*report.NodeReport, error) {
	if content.Len() > maxJudged {
		return nil, bounds.TooLarge("the report", maxJudged)
	}
	data, err := content.Bytes()
	if err != nil {
		return nil, err
	}
	if err := bounds.NodeJSON.Check("the report", data); err != nil {
		return nil, err
	}
	var r report.NodeReport
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("the report cannot be read: %w", err)
	}
	if r.Node != node {
		return nil, fmt.Errorf("the report is of another node: %q", r.Node)
	}
	return &r, nil
}

// knownCodes are the codes of findings.
var knownCodes = sync.OnceValue(func() map[string]bool {
	out := map[string]bool{}
	for _, k := range judge.Kinds() {
		out[k.Code] = true
	}
	return out
})

// acceptable tells whether a report of a helper is taken as it is: nothing is wrong by it, nothing unknown, and its
// counts are those of its paths. What it says beside that is information; what it would have a person do is left out.
func acceptable(r *report.NodeReport) bool {
	if r.Error != "" || r.Mode == nil || !nothingWrong(r) || len(r.Asks) > 0 ||
		r.Verdict != report.Match && r.Verdict != report.ByDesign {
		return false
	}
	s := &r.Summary
	if s.Matched < 0 || s.ByDesign != len(r.Paths) || s.Paths != s.Matched+s.ByDesign ||
		s.Mismatched != 0 || s.Unknown != 0 || s.Warnings != 0 || (s.Matched > 0) != (r.Verdict == report.Match) {
		return false
	}
	harmless := func(findings []report.Finding) bool {
		for i := range findings {
			f := &findings[i]
			if f.Severity != report.Info || !knownCodes()[f.Code] {
				return false
			}
			f.Remedy, f.Commands, f.Links = "", nil, nil
		}
		return true
	}
	for i := range r.Paths {
		if p := &r.Paths[i]; p.Verdict != report.ByDesign || p.Service == nil || !harmless(p.Findings) {
			return false
		}
	}
	return harmless(r.Findings)
}
