// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Of the place where a connection is lost the counters that have risen are told, and the queue; of both nodes what
// connection tracking has of this connection. Those of other places and connections are not.
func TestWhatStandsBesideALostConnection(t *testing.T) {
	from, to := netip.MustParseAddrPort("10.244.1.5:40000"), netip.MustParseAddrPort("10.96.0.10:80")
	at := netip.MustParseAddrPort("10.244.2.9:8080")
	w := &watched{
		Followed: &Followed{Nodes: map[string]*snapshot.Followed{
			"a": {
				Counters: []snapshot.Counter{{Name: "eth0 tx dropped", By: 3}},
				Tracked:  []snapshot.TrackedFlow{{Flow: 1, From: from, To: to, Answers: at, Unreplied: true}},
			},
			"b": {
				Counters: []snapshot.Counter{
					{Name: "TcpExt IPReversePathFilter", By: 2},
					{Name: "eth0 rx dropped", By: 7},
					{Pod: "shop/web", Name: "TcpExt ListenOverflows", By: 5},
					{Pod: "shop/other", Name: "Tcp InErrs", By: 9},
				},
				Tracked: []snapshot.TrackedFlow{
					{Flow: 0, From: from, To: at, Answers: at},
					{Flow: 1, From: from, To: at, Answers: at, Unreplied: true},
					{Flow: 1, Pod: "shop/web", From: from, To: at, Answers: at},
				},
				Queues: []snapshot.Queue{
					{Pod: "shop/web", At: netip.MustParseAddrPort("[::]:8080"), Waiting: 2},
					{Pod: "shop/web", At: netip.MustParseAddrPort("[::]:9090"), Waiting: 4},
				},
			},
		}},
		client: "a", clientPod: "shop/client", to: &endtoend.Endpoint{At: at, Pod: "shop/web", Node: "b"}, flow: 1,
	}
	tracked := []string{
		"connection tracking of node a: 10.244.1.5:40000 to 10.96.0.10:80, translated to 10.244.2.9:8080, no answer was seen",
		"connection tracking of node b: 10.244.1.5:40000 to 10.244.2.9:8080, no answer was seen",
	}
	const risen = " that have risen meanwhile, by this or other traffic: "
	nodeA := "counters of node a" + risen + "eth0 tx dropped +3"
	nodeB := "counters of node b" + risen + "eth0 rx dropped +7, TcpExt IPReversePathFilter +2"
	pod := "counters of pod shop/web" + risen + "TcpExt ListenOverflows +5"
	for segment, want := range map[string][]string{
		report.SegmentNetwork:      {nodeA, nodeB},
		report.SegmentEndpointNode: {nodeB},
		report.SegmentEndpointPod: {
			pod, "queue of the socket at [::]:8080 in pod shop/web: 2 connections wait to be accepted",
		},
		report.SegmentAnswer: {pod, nodeB, nodeA},
	} {
		if got := w.around(segment); !slices.Equal(got, slices.Concat(want, tracked)) {
			t.Errorf("%s: %q", segment, got)
		}
	}
	w.Nodes["b"].Queues, w.Nodes["b"].NoQueues = nil, map[string]string{"shop/web": "no such file"}
	unread := "whether connections wait at the sockets of pod shop/web was not read: no such file"
	if got := w.around(report.SegmentEndpointPod); !slices.Equal(got, slices.Concat([]string{pod, unread}, tracked)) {
		t.Errorf("%q", got)
	}
}
