// SPDX-License-Identifier: Apache-2.0

package report

import "testing"

// pathOf is a path to three endpoints, whose connections end as given; nothing of an endpoint that gets none.
func pathOf(v Verdict, o Origin, outcomes []Outcome, findings ...Finding) Path {
	p := Path{
		Frontend: Frontend{Kind: "ClusterIP", Address: "10.96.0.7", Port: 80, Protocol: "TCP"}, Origin: o, Verdict: v,
		Expected: Expected{Action: "DNAT", Endpoints: []Endpoint{
			{Address: "10.244.1.4", Port: 8080, Share: 1. / 3},
			{Address: "10.244.2.4", Port: 8080, Share: 1. / 3},
			{Address: "10.244.3.4", Port: 8080, Share: 1. / 3},
		}},
		Actual: Actual{Outcomes: outcomes}, Findings: findings,
	}
	Complete(&p)
	return p
}

func sentTo(share float64, action string, addresses ...string) (out []Outcome) {
	for _, a := range addresses {
		out = append(out, Outcome{
			Action: action, Share: share, Endpoint: &Endpoint{Address: a, Port: 8080, Share: share},
		})
	}
	return out
}

func TestImpact(t *testing.T) {
	pod := Origin{Kind: "pod", Address: "10.244.1.9", Sample: true}
	node := Origin{Kind: "node", Address: "10.77.0.11"}
	all := sentTo(1./3, "DNAT", "10.244.1.4", "10.244.2.4", "10.244.3.4")
	third := "10.244.3.4:8080"
	hang := Client{Words: Phrase{"hang", "hangs"}, Fails: true}
	for name, tt := range map[string]struct {
		paths []Path
		want  string
	}{
		"a match says nothing": {[]Path{pathOf(Match, pod, all)}, ""},
		"connections to one endpoint are dropped": {
			[]Path{pathOf(Mismatch, pod, append(sentTo(1./3, "DNAT", "10.244.1.4", "10.244.2.4"),
				sentTo(1./3, "Drop", "10.244.3.4")...))},
			"1 of 3 connections to shop/web from pods of worker-1 hangs: dropped",
		},
		"two of three, from two origins": {
			[]Path{
				pathOf(Mismatch, pod, append(sentTo(1./3, "DNAT", "10.244.1.4"),
					sentTo(1./3, "Reject", "10.244.2.4", "10.244.3.4")...)),
				pathOf(Mismatch, node, append(sentTo(1./3, "DNAT", "10.244.1.4"),
					sentTo(1./3, "Reject", "10.244.2.4", "10.244.3.4")...)),
			},
			"2 of 3 connections to shop/web from pods of worker-1 and worker-1 itself are refused",
		},
		"all, before an endpoint is chosen": {
			[]Path{pathOf(Mismatch, pod, []Outcome{{Action: "Drop", Share: 1}})},
			"all connections to shop/web from pods of worker-1 hang: dropped",
		},
		"an endpoint gets nothing": {
			[]Path{pathOf(Mismatch, pod, sentTo(1./2, "DNAT", "10.244.1.4", "10.244.2.4"))},
			"1 of 3 endpoints of shop/web gets no connections from pods of worker-1",
		},
		"a stale endpoint": {
			[]Path{pathOf(Mismatch, pod, append(sentTo(1./4, "DNAT", "10.244.9.9"), sentTo(1./4, "DNAT",
				"10.244.1.4", "10.244.2.4", "10.244.3.4")...))},
			"1 of 4 connections to shop/web from pods of worker-1 goes to 10.244.9.9:8080, which is not one of its endpoints",
		},
		"the answer of one endpoint is lost": {
			[]Path{pathOf(Mismatch, pod, all, Finding{
				Code: "AnswerDropped", Severity: Error, Endpoints: []string{third},
				Client: Client{
					Words: Phrase{"fail: the answer does not come back", "fails: the answer does not come back"}, Fails: true,
				},
			})},
			"1 of 3 connections to shop/web from pods of worker-1 fails: the answer does not come back",
		},
		"what is found is of all endpoints": {
			[]Path{pathOf(Mismatch, pod, all, Finding{
				Code: "WrongMasquerade", Severity: Error,
				Client: Client{Words: Phrase{"arrive with the node's address", "arrives with the node's address"}},
			})},
			"all connections to shop/web from pods of worker-1 arrive with the node's address",
		},
		"two findings of which a client sees the same, and a lesser one": {
			[]Path{pathOf(Mismatch, pod, all,
				Finding{
					Code: "A", Severity: Error,
					Client: Client{Words: Phrase{"stay with one endpoint", "stays with one endpoint"}},
				},
				Finding{Code: "B", Severity: Error, Endpoints: []string{third}, Client: hang},
				Finding{
					Code: "C", Severity: Error, Endpoints: []string{"10.244.1.4:8080"}, Client: hang,
				},
			)},
			"2 of 3 connections to shop/web from pods of worker-1 hang",
		},
		"some are dropped, and some rejected": {
			[]Path{pathOf(Mismatch, pod, append(sentTo(1./3, "DNAT", "10.244.1.4"), append(
				sentTo(1./3, "Drop", "10.244.2.4"), sentTo(1./3, "Reject", "10.244.3.4")...)...))},
			"2 of 3 connections to shop/web from pods of worker-1 fail: dropped and rejected",
		},
		"a finding of which nothing is known but its code": {
			[]Path{pathOf(Mismatch, pod, all, Finding{Code: "AnswerDropped", Severity: Error, Endpoints: []string{third}})},
			"1 of 3 connections to shop/web from pods of worker-1 may be affected: answer dropped",
		},
		"only an endpoint that connects to itself": {
			[]Path{pathOf(Mismatch, Origin{Kind: "pod", Address: "10.244.3.4", Sample: true}, all, Finding{
				Code: "HairpinOff", Severity: Error, Endpoints: []string{third}, Client: hang,
			})},
			"connections to shop/web from an endpoint's pod of worker-1 hang where they are sent back to the pod itself " +
				"(1 of 3)",
		},
		"an endpoint that connects to itself, of a finding that names no endpoint": {
			[]Path{pathOf(Mismatch, Origin{Kind: "pod", Address: "10.244.3.4", Sample: true}, all, Finding{
				Code: "HairpinOff", Severity: Error, Client: Client{Words: Phrase{"hang", "hangs"}, Fails: true, Itself: true},
			})},
			"connections to shop/web from an endpoint's pod of worker-1 hang where they are sent back to the pod itself",
		},
		"a warning": {
			[]Path{pathOf(Warning, pod, all, Finding{
				Code: "NeighbourFailed", Severity: Warn, Endpoints: []string{third}, Actual: "may not arrive",
			})},
			"1 of 3 connections to shop/web from pods of worker-1 may not arrive",
		},
		"not known": {
			[]Path{pathOf(Unknown, node, nil)},
			"it is not known what happens to connections to shop/web from worker-1 itself",
		},
	} {
		r := Combine(KindTrace, &ServiceInfo{Namespace: "shop", Name: "web"}, []NodeReport{{
			Node: "worker-1", Verdict: tt.paths[0].Verdict, Paths: tt.paths, Summary: Summary{Paths: len(tt.paths)},
		}})
		if got := Impact(r); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// One pod of a node is named, where a path is of that pod alone.
func TestImpactNamesTheOnlyPod(t *testing.T) {
	dropped := []Outcome{{Action: "Drop", Share: 1}}
	for want, pods := range map[string][]string{
		"all connections to shop/web from pod shop/client hang: dropped":    {"shop/client"},
		"all connections to shop/web from 2 pods of worker-1 hang: dropped": {"shop/client", "shop/other"},
	} {
		p := pathOf(Mismatch, Origin{Kind: "pod", Address: "10.244.1.9", Sample: true, Pods: pods}, dropped)
		r := &Report{
			Kind: KindTrace, Verdict: Mismatch, Service: &ServiceInfo{Namespace: "shop", Name: "web"},
			Nodes: []NodeReport{{Node: "worker-1", Paths: []Path{p}}},
		}
		if got := Impact(r); got != want {
			t.Errorf("%v: got %q", pods, got)
		}
	}
}

// A report of paths that could not be judged has a finding to read about, too: that which says why.
func TestWorstOfWhatIsUnknown(t *testing.T) {
	note := Finding{Code: "RuleNotEvaluated", Severity: Info}
	unknown := pathOf(Unknown, Origin{Kind: "pod", Sample: true}, nil, note)
	right := pathOf(Match, Origin{Kind: "node"}, nil, Finding{Code: "MTUTooSmall", Severity: Info})
	for want, paths := range map[string][]Path{"RuleNotEvaluated": {right, unknown}, "": {right}} {
		r := &Report{Nodes: []NodeReport{{Paths: paths}}}
		if got := r.Worst(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
