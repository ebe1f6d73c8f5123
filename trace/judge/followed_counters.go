// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// maxCountersNamed is how many counters of a place are named.
const maxCountersNamed = 8

// around is what else was read where a connection was lost: the counters that have risen there, what connection
// tracking has of it on both nodes, and how many connections wait to be accepted.
func (w *watched) around(segment string) (texts []string) {
	type place struct{ node, pod string }
	var places []place
	switch segment {
	case report.SegmentNetwork:
		places = []place{{w.client, ""}, {w.to.Node, ""}}
	case report.SegmentEndpointNode:
		places = []place{{w.to.Node, ""}}
	case report.SegmentEndpointPod:
		places = []place{{w.to.Node, w.pod()}}
	case report.SegmentAnswer:
		places = []place{{w.to.Node, w.pod()}, {w.to.Node, ""}, {w.client, ""}, {w.client, w.clientPod}}
	}
	var seen []place
	for _, at := range places {
		if saw := w.Nodes[at.node]; saw != nil && !slices.Contains(seen, at) {
			seen = append(seen, at)
			if text := risen(saw.Counters, at.pod); text != "" {
				texts = append(texts, fmt.Sprintf("counters of %s that have risen meanwhile, by this or other traffic: %s",
					placeOf(at.node, at.pod), text))
			}
		}
	}
	if saw := w.Nodes[w.to.Node]; saw != nil && segment == report.SegmentEndpointPod {
		for _, q := range saw.Queues {
			if q.Pod == w.pod() && q.At.Port() == w.to.At.Port() {
				texts = append(texts, fmt.Sprintf("queue of the socket at %s in %s: %s to be accepted", q.At,
					placeOf(w.to.Node, w.pod()), waiting(q.Waiting)))
			}
		}
	}
	if saw := w.Nodes[w.to.Node]; saw != nil && segment == report.SegmentEndpointPod && saw.NoQueues[w.pod()] != "" {
		texts = append(texts, fmt.Sprintf("whether connections wait at the sockets of %s was not read: %s",
			placeOf(w.to.Node, w.pod()), saw.NoQueues[w.pod()]))
	}
	nodes := []string{w.client, w.to.Node}
	if w.sameNode() {
		nodes = nodes[:1]
	}
	for _, node := range nodes {
		if saw := w.Nodes[node]; saw != nil {
			if text := w.trackedText(saw.Tracked); text != "" {
				texts = append(texts, "connection tracking of node "+node+": "+text)
			}
		}
	}
	return texts
}

func waiting(n int64) string {
	if n == 1 {
		return "1 connection waits"
	}
	return fmt.Sprintf("%d connections wait", n)
}

// risen names the counters of a place that have risen, those that have most first.
func risen(list []snapshot.Counter, pod string) string {
	var own []snapshot.Counter
	for _, c := range list {
		if c.Pod == pod {
			own = append(own, c)
		}
	}
	slices.SortStableFunc(own, func(a, b snapshot.Counter) int { return cmp.Compare(b.By, a.By) })
	own = own[:min(len(own), maxCountersNamed)]
	parts := make([]string, 0, len(own))
	for _, c := range own {
		parts = append(parts, fmt.Sprintf("%s +%d", c.Name, c.By))
	}
	return strings.Join(parts, ", ")
}

// trackedText is what a node's connection tracking has of the flow.
func (w *watched) trackedText(list []snapshot.TrackedFlow) string {
	for _, t := range list {
		if t.Flow != w.flow || t.Pod != "" {
			continue
		}
		text := fmt.Sprintf("%s to %s", t.From, t.To)
		if t.Answers.IsValid() && t.Answers != t.To {
			text += fmt.Sprintf(", translated to %s", t.Answers)
		}
		if t.Unreplied {
			return text + ", no answer was seen"
		}
		return text + ", an answer was seen"
	}
	return ""
}
