// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// readWith is a place of which these tables were read.
func readWith(tables ...*netfilter.Table) *nodestate.State {
	rs := &netfilter.Ruleset{Tables: tables}
	rs.Link()
	return &nodestate.State{Rules: rs}
}

// The kernel's trace names the rule that loses connections on the endpoint's node, in its pod and before a tunnel's
// end; where it names none, no rule is blamed.
func TestTheRuleThatTheKernelNames(t *testing.T) {
	const a, b, web, client = "a", "b", "shop/web", "shop/client"
	at, frontend := netip.MustParseAddrPort("10.244.2.9:8080"), netip.MustParseAddrPort("10.96.0.10:80")
	local := netip.MustParseAddrPort("10.244.1.5:40000")
	chain := func(name string, rules ...string) *netfilter.Chain {
		c := &netfilter.Chain{Name: name}
		for i, text := range rules {
			c.Rules = append(c.Rules, &netfilter.Rule{Num: i + 1, Text: text})
		}
		return c
	}
	policy := "-A KUBE-POD-FW-X -j REJECT"
	filter := &netfilter.Table{
		Family: netfilter.IPv4, Backend: netfilter.BackendNFT, Name: "filter",
		Chains: []*netfilter.Chain{chain("KUBE-POD-FW-X", "-A KUBE-POD-FW-X -j A", policy), chain("FORWARD")},
	}
	legacy := &netfilter.Table{
		Family: netfilter.IPv4, Backend: netfilter.BackendLegacy, Name: "filter",
		Chains: []*netfilter.Chain{chain("FORWARD", "-A FORWARD -d 10.244.2.9/32 -j DROP")},
	}
	own := &netfilter.Table{
		Family: netfilter.Inet, Backend: netfilter.BackendNative, Name: "t",
		Chains: []*netfilter.Chain{chain("input", "udp dport 8472 drop")},
	}
	sender, err := nodestate.Load(snapshot.NewNode(a, map[string][]byte{snapshot.LinkFile: []byte(
		`[{"ifindex":2,"ifname":"flannel.1","linkinfo":{"info_kind":"vxlan","info_data":{"id":1,"port":8472}}}]`)}))
	if err != nil {
		t.Fatal(err)
	}
	nodes := map[string]*endtoend.Node{
		a: {State: sender, Pods: map[string]*endtoend.Pod{client: {State: readWith(own)}}},
		b: {State: readWith(filter, legacy, own), Pods: map[string]*endtoend.Pod{web: {State: readWith(own)}}},
	}
	step := func(family, table, chain string, rule int, verdict string) *snapshot.TraceStep {
		return &snapshot.TraceStep{Family: family, Table: table, Chain: chain, Rule: rule, Verdict: verdict}
	}
	rejects := step("ip", "filter", "KUBE-POD-FW-X", 2, "drop")
	inputDrops := step("inet", "t", "input", 1, "drop")
	forwardPolicy := step("ip", "filter", "FORWARD", 0, "drop")
	forwardPolicy.Policy = true
	legacyLast := step("ip", "filter", "FORWARD", 1, "")
	legacyLast.Legacy = true
	left := snapshot.Sight{How: snapshot.SightOut, Interface: "flannel.1", Count: 1}
	came := snapshot.Sight{How: snapshot.SightIn, Interface: "flannel.1", Count: 1}
	entered := snapshot.Sight{Pod: web, How: snapshot.SightIn, Interface: "eth0", Count: 1}
	answered := snapshot.Sight{Pod: web, How: snapshot.SightOut, Interface: "eth0", Answer: true, Count: 1}
	answerLeft := snapshot.Sight{How: snapshot.SightOut, Interface: "flannel.1", Answer: true, Count: 1}
	dropped := func(pod string) snapshot.Sight {
		return snapshot.Sight{
			Pod: pod, How: snapshot.SightDropped, Reason: "NETFILTER_DROP", Function: "nft_do_chain", Count: 1,
		}
	}
	forward := snapshot.Traced{Hook: "forward", Dropped: true, Last: rejects, Count: 2}
	nodeA, nodeB := netip.MustParseAddrPort("192.168.50.1:50000"), netip.MustParseAddrPort("192.168.50.2:8472")
	outer := func(hook string, passed bool, last *snapshot.TraceStep, answer bool) snapshot.Traced {
		return snapshot.Traced{
			Outer: true, Answer: answer, From: nodeA, To: nodeB, Hook: hook, Passed: passed,
			Dropped: last != nil && last.Verdict == "drop", Last: last, Count: 2,
		}
	}
	for _, tt := range []struct {
		name      string
		sights    map[string][]snapshot.Sight
		traced    map[string][]snapshot.Traced
		untraced  string // of node b
		others    int    // packets of other connections there
		partial   bool
		connected bool
		walkWrong bool   // about the endpoint's node, by the same rule
		segment   string // of the last one; "": all are right
		place     string
		message   string
		rule      string // first evidence of the last segment, where it names a rule
		owner     string
	}{
		{
			name:    "a rule of the node",
			sights:  map[string][]snapshot.Sight{a: {left}, b: {came, dropped("")}},
			traced:  map[string][]snapshot.Traced{b: {forward}},
			segment: report.SegmentEndpointNode, place: "node b",
			message: "the request was dropped by filter KUBE-POD-FW-X rule 2 in nft_do_chain",
			rule:    "filter KUBE-POD-FW-X rule 2: " + policy, owner: "a NetworkPolicy (kube-router)",
		},
		{
			name:      "a rule of the node that the walk names, too",
			sights:    map[string][]snapshot.Sight{a: {left}, b: {came, dropped("")}},
			traced:    map[string][]snapshot.Traced{b: {forward}},
			walkWrong: true, segment: report.SegmentEndpointNode, place: "here", message: "the walk",
			rule: "filter KUBE-POD-FW-X rule 2: " + policy,
		},
		{
			name:   "a rule of the node, of which the kernel's other report was lost",
			sights: map[string][]snapshot.Sight{a: {left}}, partial: true,
			traced:  map[string][]snapshot.Traced{b: {forward}},
			segment: report.SegmentEndpointNode, place: "node b",
			message: "the request was dropped by filter KUBE-POD-FW-X rule 2",
			rule:    "filter KUBE-POD-FW-X rule 2: " + policy, owner: "a NetworkPolicy (kube-router)",
		},
		{
			name:   "the policy of a chain",
			sights: map[string][]snapshot.Sight{a: {left}, b: {came, dropped("")}},
			traced: map[string][]snapshot.Traced{
				b: {{Hook: "forward", Dropped: true, Last: forwardPolicy, Count: 1}},
			},
			segment: report.SegmentEndpointNode, place: "node b",
			message: "the request was dropped by filter FORWARD policy in nft_do_chain", rule: "filter FORWARD policy",
			owner: endtoend.OwnerOf(netfilter.Ref{Chain: filter.Chains[1]}),
		},
		{
			name:    "a rule of iptables-legacy, of which no verdict is told",
			sights:  map[string][]snapshot.Sight{a: {left}, b: {came, dropped("")}},
			traced:  map[string][]snapshot.Traced{b: {{Hook: "forward", Last: legacyLast, Count: 1}}},
			segment: report.SegmentEndpointNode, place: "node b",
			message: "the request was discarded: NETFILTER_DROP (a rule of netfilter dropped it) in nft_do_chain; the last " +
				"rule that it met is filter FORWARD rule 1",
			rule:  "filter FORWARD rule 1: -A FORWARD -d 10.244.2.9/32 -j DROP",
			owner: endtoend.OwnerOf(netfilter.Ref{Chain: legacy.Chains[0], Rule: legacy.Chains[0].Rules[0]}),
		},
		{
			name:   "a rule that is not there any more",
			sights: map[string][]snapshot.Sight{a: {left}},
			traced: map[string][]snapshot.Traced{
				b: {{Hook: "forward", Dropped: true, Last: step("ip", "own", "c", 0, "drop"), Count: 1}},
			},
			segment: report.SegmentEndpointNode, place: "node b",
			message: "the request was dropped by a rule of nft ip own c that is not there any more",
		},
		{
			name:   "another reason than a rule",
			sights: map[string][]snapshot.Sight{a: {left}, b: {came, {How: snapshot.SightDropped, Reason: "IP_RPFILTER"}}},
			traced: map[string][]snapshot.Traced{
				b: {{Hook: "prerouting", Passed: true, Last: step("ip", "t", "p", 1, "continue"), Count: 1}},
			},
			segment: report.SegmentEndpointNode, place: "node b",
			message: "the request was discarded: IP_RPFILTER (" + reasons["IP_RPFILTER"].words + ")",
		},
		{
			name:    "a rule of the pod",
			sights:  map[string][]snapshot.Sight{a: {left}, b: {came, entered, dropped(web)}},
			traced:  map[string][]snapshot.Traced{b: {{Pod: web, Hook: "input", Dropped: true, Last: inputDrops, Count: 1}}},
			segment: report.SegmentEndpointPod, place: "pod shop/web",
			message: "the request was dropped by nft t input rule 1 in nft_do_chain",
			rule:    "nft t input rule 1: udp dport 8472 drop",
		},
		{
			name:   "a rule of the client's pod drops the answer",
			sights: map[string][]snapshot.Sight{a: {left}, b: {came, entered, answered}},
			traced: map[string][]snapshot.Traced{
				a: {{Pod: client, Answer: true, Hook: "input", Dropped: true, Last: inputDrops, Count: 1}},
			},
			segment: report.SegmentAnswer, place: "pod shop/client",
			message: "the answer was dropped by nft t input rule 1", rule: "nft t input rule 1: udp dport 8472 drop",
		},
		{
			name:    "a rule of the endpoint's node drops the tunnel's packets",
			sights:  map[string][]snapshot.Sight{a: {left}},
			traced:  map[string][]snapshot.Traced{b: {outer("input", false, inputDrops, false)}},
			segment: report.SegmentNetwork, place: "node b",
			message: "the tunnel's packet with the request was dropped by nft t input rule 1 (from 192.168.50.1 to UDP port " +
				"8472 of b)",
			rule: "nft t input rule 1: udp dport 8472 drop",
		},
		{
			name:    "the tunnel's packets come and nothing comes out of it",
			sights:  map[string][]snapshot.Sight{a: {left}},
			traced:  map[string][]snapshot.Traced{b: {outer("input", true, nil, false)}},
			segment: report.SegmentNetwork, place: "node b",
			message: "the tunnel's packet with the request came here and passed the rules, and the request did not come out " +
				"of the tunnel",
		},
		{
			name:    "the tunnel's packets come, and are not for the node",
			sights:  map[string][]snapshot.Sight{a: {left}},
			traced:  map[string][]snapshot.Traced{b: {outer("prerouting", true, nil, false)}},
			segment: report.SegmentNetwork, place: "node b",
			message: "the tunnel's packet with the request came here, passed the hook prerouting, and was not accepted",
		},
		{
			name:    "the tunnel's packets come, and may be those of other connections",
			sights:  map[string][]snapshot.Sight{a: {left}},
			traced:  map[string][]snapshot.Traced{b: {outer("input", true, nil, false)}},
			others:  3,
			segment: report.SegmentNetwork, place: "node a to node b",
			message: "the request left a going out by flannel.1, and did not come to b",
		},
		{
			name:    "no tunnel",
			sights:  map[string][]snapshot.Sight{a: {{How: snapshot.SightOut, Interface: "eth0", Count: 1}}},
			segment: report.SegmentNetwork, place: "node a to node b",
			message: "the request left a going out by eth0, and did not come to b",
		},
		{
			name:    "the tunnel's packets do not come",
			sights:  map[string][]snapshot.Sight{a: {left}},
			segment: report.SegmentNetwork, place: "node a to node b",
			message: "the request left a going out by flannel.1, and did not come to b, nor did a packet of VXLAN that " +
				"carries it",
		},
		{
			name:   "whether the tunnel's packets come is not known",
			sights: map[string][]snapshot.Sight{a: {left}}, untraced: "no nf_tables",
			segment: report.SegmentNetwork, place: "node a to node b",
			message: "the request left a going out by flannel.1, and did not come to b",
		},
		{
			name:    "a rule of the endpoint's node drops the tunnel's packets with the answer",
			sights:  map[string][]snapshot.Sight{a: {left}, b: {came, entered, answered, answerLeft}},
			traced:  map[string][]snapshot.Traced{b: {outer("output", false, inputDrops, true)}},
			segment: report.SegmentAnswer, place: "node b",
			message: "the tunnel's packet with the answer was dropped by nft t input rule 1 (from 192.168.50.1 to UDP port " +
				"8472 of b)",
			rule: "nft t input rule 1: udp dport 8472 drop",
		},
		{
			name:   "connections pass, and a packet of one was dropped on the way",
			traced: map[string][]snapshot.Traced{b: {forward}}, connected: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := snapshot.Probe{Result: snapshot.ProbeTimeout, Local: local, Endpoint: at}
			if tt.connected {
				x.Result = snapshot.ProbeConnected
			}
			run := &Followed{
				Clients: []netip.Addr{local.Addr()}, Tunnels: map[string][]uint16{b: {8472}},
				Nodes: map[string]*snapshot.Followed{
					a: {Sights: tt.sights[a], Traced: tt.traced[a]},
					b: {Sights: tt.sights[b], Traced: tt.traced[b], Partial: tt.partial, Pods: map[string]string{web: ""}},
				},
			}
			run.Nodes[b].Others = tt.others
			if tt.untraced != "" {
				run.Nodes[b].Untraced = map[string]string{"": tt.untraced}
			}
			run.Choose(&snapshot.Probing{Targets: []snapshot.Probes{{
				ProbeTarget: snapshot.ProbeTarget{Protocol: "TCP", To: frontend, From: local.Addr(), Probes: 1, Trace: true},
				List:        []snapshot.Probe{x},
			}}})
			p := &report.Path{
				Frontend: report.Frontend{Address: "10.96.0.10", Port: 80, Protocol: "TCP", Kind: "ClusterIP"},
				Origin:   report.Origin{Kind: "pod", Address: local.Addr().String(), Pod: client},
			}
			for _, name := range behindNode {
				s := report.Segment{
					Segment: name, Endpoint: at.String(), Verdict: report.SegmentRight, Message: "the walk", Place: "here",
				}
				if tt.walkWrong && name == report.SegmentEndpointNode {
					s.Verdict, s.Code = report.SegmentWrong, endtoend.EndpointNodeDrops
					s.Evidence = []report.Evidence{cite(netfilter.Ref{Chain: filter.Chains[0], Rule: filter.Chains[0].Rules[1]})}
					p.Segments = append(p.Segments, s)
					break
				}
				p.Segments = append(p.Segments, s)
			}
			tour := &tour{ends: &Ends{Client: a, Pod: client, Followed: []*Followed{run}}, nodes: nodes}
			tour.observeBehind(p, []endtoend.Endpoint{{At: at, Pod: web, Node: b}})
			last := &p.Segments[len(p.Segments)-1]
			if tt.segment == "" {
				if last.Verdict != report.SegmentRight {
					t.Errorf("%+v", last)
				}
				return
			}
			if last.Segment != tt.segment || last.Place != tt.place || last.Message != tt.message ||
				last.Verdict != report.SegmentWrong || last.Owner != tt.owner {
				t.Errorf("%s, %s, %s, %s, owner %q", last.Segment, last.Place, last.Verdict, last.Message, last.Owner)
			}
			rules := slices.DeleteFunc(slices.Clone(last.Evidence), func(e report.Evidence) bool {
				return e.Where == (report.RuleRef{})
			})
			var texts []string
			for _, e := range rules {
				texts = append(texts, e.String())
			}
			if got := strings.Join(texts, "\n"); got != tt.rule {
				t.Errorf("evidence: %q", got)
			}
		})
	}
}

// Of each segment it is told how far its packets came through the rules there, those of all connections together; of
// the client's node, whose rules are traced otherwise, and of other pods nothing.
func TestRulesOfEachSegment(t *testing.T) {
	at := netip.MustParseAddrPort("10.244.2.9:8080")
	accepts := &snapshot.TraceStep{Family: "ip", Table: "filter", Chain: "FORWARD", Rule: 3, Verdict: "accept"}
	traced := func(flow int, pod, hook string, answer bool) snapshot.Traced {
		return snapshot.Traced{Flow: flow, Pod: pod, Hook: hook, Answer: answer, Passed: true, Count: 1}
	}
	came := traced(0, "", "postrouting", false)
	came.Last = accepts
	again := came
	again.Flow = 1
	run := &Followed{Nodes: map[string]*snapshot.Followed{
		"a": {Traced: []snapshot.Traced{traced(0, "shop/client", "input", true)}},
		"b": {
			Traced: []snapshot.Traced{
				came, again, traced(0, "shop/web", "input", false), traced(0, "shop/web", "postrouting", true),
				traced(0, "shop/other", "input", false),
				{Outer: true, Hook: "input", Passed: true, Count: 5},
			},
			Untraced: map[string]string{"shop/web": "rules of iptables-legacy in a pod are not reported"},
		},
	}}
	var fates []fate
	for flow := range 2 {
		w := &watched{
			Followed: run, client: "a", clientPod: "shop/client", flow: flow,
			to: &endtoend.Endpoint{At: at, Pod: "shop/web", Node: "b"},
		}
		fates = append(fates, fate{passed: len(behindNode), seen: w.rulesSeen(flow == 0)})
	}
	for segment, want := range map[string]string{
		report.SegmentNetwork: "node b: 5 × request in the tunnel, passed the hook input",
		report.SegmentEndpointNode: "node b: 2 × request, passed the hook postrouting, last met nft ip filter FORWARD rule " +
			"3",
		report.SegmentEndpointPod: "pod shop/web: 1 × request, passed the hook input\n" +
			"pod shop/web: rules of iptables-legacy in a pod are not reported",
		report.SegmentAnswer: "pod shop/web: 1 × answer, passed the hook postrouting\n" +
			"pod shop/client: 1 × answer, passed the hook input\n" +
			"pod shop/web: rules of iptables-legacy in a pod are not reported",
	} {
		seen := seenBy(fates, segment, 2)
		var lines []string
		for i := range seen.Rules {
			lines = append(lines, seen.Rules[i].String())
		}
		if got := strings.Join(append(lines, seen.Untraced...), "\n"); got != want || seen.Connections != 2 {
			t.Errorf("%s: %q", segment, got)
		}
	}
}
