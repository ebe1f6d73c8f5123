// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"slices"
	"sync"

	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// others are what nodes and pods say of their interfaces: the judgement of a node asks them where a link-layer address
// may be another's. Those of a snapshot are read when they are asked for. Of a cluster those answer that are read
// anyway; where that does not suffice, some are read for this, and who has asked in vain is judged again when all were
// read. Of nil nobody answers.
type others struct {
	mu    sync.Mutex
	told  map[judge.Owner]*snapshot.Node // judge.PeerFiles of each; nil: there are none
	again map[string]judgedFiles         // of a cluster, by node: the last reading where it asked
}

// judgedFiles are what a node was judged by.
type judgedFiles struct {
	files   *snapshot.Node
	objects *snapshot.Cluster
}

// told answers the judgement of a node.
func (s *Session) told(ctx context.Context, of judge.Owner) (*snapshot.Node, error) {
	if s.others == nil {
		return nil, nil
	}
	s.others.mu.Lock()
	defer s.others.mu.Unlock()
	if n, ok := s.others.told[of]; ok || s.live || !slices.Contains(s.KnownNodes(), of.Node) {
		return n, nil
	}
	n, err := s.nodes.Read(ctx, of.Node, judge.PeerFiles)
	if err != nil {
		return nil, err
	}
	if of.Pod != "" {
		n = n.Pod(of.Pod)
	}
	if n != nil {
		n = n.Only(judge.PeerFiles...)
	}
	s.others.tell(of, n)
	return n, nil
}

// tell notes what a node or pod says. The caller holds mu.
func (o *others) tell(of judge.Owner, n *snapshot.Node) {
	if o.told == nil {
		o.told = map[judge.Owner]*snapshot.Node{}
	}
	o.told[of] = n
}

// note keeps of a node of a cluster what it says of itself, and where it has asked others, what it was judged by.
func (o *others) note(files *snapshot.Node, objects *snapshot.Cluster, r *report.NodeReport) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tell(judge.Owner{Node: files.Name}, files.Only(judge.PeerFiles...))
	if !judge.AsksOthers(r) {
		delete(o.again, files.Name)
		return
	}
	if o.again == nil {
		o.again = map[string]judgedFiles{}
	}
	o.again[files.Name] = judgedFiles{files, objects}
}

// maxAsked bounds how many nodes are read for what they say of their interfaces alone.
const maxAsked = 8

// readAsked reads of nodes that judgements have asked in vain what they say of their interfaces, each once. It returns
// whether one was read. Of a node that cannot be read nothing is known, as before.
func (s *Session) readAsked(ctx context.Context, reports []report.NodeReport) bool {
	if s.pod == nil { // no pods are made
		return false
	}
	var asked []string
	for i := range reports {
		if !judge.AsksOthers(&reports[i]) {
			continue
		}
		for _, node := range reports[i].Asks {
			s.others.mu.Lock()
			_, known := s.others.told[judge.Owner{Node: node}]
			s.others.mu.Unlock()
			if !known && !slices.Contains(asked, node) && slices.Contains(s.KnownNodes(), node) {
				asked = append(asked, node)
			}
		}
	}
	if len(asked) == 0 {
		return false
	}
	asked = asked[:min(len(asked), maxAsked)]
	read := make([]bool, len(asked))
	s.each(asked, func(i int, node string) {
		files, err := s.nodes.Read(ctx, node, judge.PeerFiles)
		if err != nil {
			return
		}
		s.others.mu.Lock()
		defer s.others.mu.Unlock()
		s.others.tell(judge.Owner{Node: node}, files.Only(judge.PeerFiles...))
		read[i] = true
	})
	return slices.Contains(read, true)
}

// askAgain judges a node again that asked others before they were read.
func (c *confirmer) askAgain(
	ctx context.Context, node string, request Request, got report.NodeReport,
) report.NodeReport {
	if c.others == nil {
		return got
	}
	c.others.mu.Lock()
	by, ok := c.others.again[node]
	c.others.mu.Unlock()
	if !ok || !judge.AsksOthers(&got) {
		return got
	}
	now, err := c.inMemory(ctx, by.files, by.objects, request)
	if err != nil {
		return notInspected(node, err)
	}
	return now
}
