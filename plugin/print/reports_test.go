// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"

	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// The reports here are made by hand: they hold the printers to what a report may say, not to what diagnose says today.

var web = &report.ServiceInfo{
	Namespace: "shop", Name: "web", Type: "ClusterIP", ClusterIPs: []string{"10.96.21.191"},
	Ports: []report.ServicePort{{Name: "http", Protocol: "TCP", Port: 80, TargetPort: "8080", Ready: 3, Total: 4}},
}

var nftMode = &report.Mode{
	Actual:           "iptables",
	Configured:       "iptables",
	Backend:          "nft",
	KubeProxyVersion: "v1.36.3",
	LastSync:         "2026-11-20T19:37:57Z",
	ConfigSource:     "configz.json",
}

var clusterIP = report.Frontend{Kind: "ClusterIP", Address: "10.96.21.191", Port: 80, Protocol: "TCP", PortName: "http"}

var origins = []report.Origin{
	{Kind: "pod", Address: "10.244.2.77", Pod: "shop/client"},
	{Kind: "node", Address: "10.77.0.12"},
}

// pods are n endpoints on nodes in turn.
func pods(n int) []report.Endpoint {
	out := make([]report.Endpoint, n)
	for i := range out {
		out[i] = report.Endpoint{
			Address: fmt.Sprintf("10.244.%d.%d", i%3+1, i/3+4), Port: 8080, Share: 1 / float64(n),
			Pod: fmt.Sprintf("shop/web-7c9d8f6b5d-%05d", 10007*i%100000), Node: fmt.Sprintf("worker-%d", i%3+1),
		}
	}
	return out
}

// sent are the outcomes of connections that are sent to endpoints with equal shares.
func sent(to []report.Endpoint) []report.Outcome {
	out := make([]report.Outcome, len(to))
	for i := range to {
		s := 1 / float64(len(to))
		out[i] = report.Outcome{
			Action:   "DNAT",
			Share:    s,
			Endpoint: &report.Endpoint{Address: to[i].Address, Port: to[i].Port, Share: s},
		}
	}
	return out
}

// paths are those of a frontend from every origin.
func paths(
	f report.Frontend, v report.Verdict, e report.Expected, a report.Actual, findings ...report.Finding,
) []report.Path {
	var out []report.Path
	for _, o := range origins {
		out = append(out, report.Path{Frontend: f, Origin: o, Verdict: v, Expected: e, Actual: a, Findings: findings})
	}
	return out
}

func node(name string, v report.Verdict, paths ...report.Path) report.NodeReport {
	n := report.NodeReport{Node: name, Verdict: v, Mode: nftMode, Paths: paths}
	for i := range paths {
		report.Complete(&paths[i])
		n.Summary.Count(paths[i].Verdict)
	}
	return n
}

func trace(s *report.ServiceInfo, nodes ...report.NodeReport) *report.Report {
	return report.Combine(report.KindTrace, s, nodes)
}

// rule names a rule of iptables; 0 is the chain's policy.
func rule(table, chain string, number int) report.RuleRef {
	return report.RuleRef{Table: table, Backend: report.BackendNFT, Chain: chain, Rule: number}
}

func missing(address, node string) report.Finding {
	return report.Finding{
		Code: "MissingEndpoint", Severity: report.Error, Subject: address, Endpoints: []string{
			address,
		}, Expected: "33.3%", Actual: "none",
		Message:  "nat KUBE-SVC-XPGD46QRK7WJZT7O leads to 2 other endpoints only",
		Remedy:   "restart kube-proxy on " + node + ": it rewrites all its rules",
		Commands: []report.Command{{Line: "kubectl -n kube-system delete pod/kube-proxy-" + node}},
		Evidence: []report.Evidence{
			{
				Where: rule("nat", "KUBE-SVC-XPGD46QRK7WJZT7O", 2),
				Text:  `-A KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment "shop/web:http -> 10.244.1.4:8080" -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-LPRYETXTYMQCMNCE`,
			},
			{
				Where: rule("nat", "KUBE-SVC-XPGD46QRK7WJZT7O", 3),
				Text:  `-A KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment "shop/web:http -> 10.244.2.4:8080" -j KUBE-SEP-EMUAPVFCFHRD2FOR`,
			},
		},
		Links: []string{"https://github.com/kubernetes/kubernetes/issues/121362"},
	}
}

func endpointText(e *report.Endpoint) string { return report.JoinHostPort(e.Address, e.Port) }

func dnat(e []report.Endpoint) report.Expected {
	return report.Expected{Action: "DNAT", Endpoints: e, Masquerade: "Hairpin"}
}

// reports are the cases of the golden files, by name.
func reports() map[string]*report.Report {
	three := pods(3)
	good := paths(clusterIP, report.Match, dnat(three), report.Actual{Outcomes: sent(three)})
	good[0].Steps = []report.Step{
		{
			Hook:    "PREROUTING",
			RuleRef: rule("nat", "PREROUTING", 1),
			Text:    "-A PREROUTING -j KUBE-SERVICES",
			Verdict: "jump KUBE-SERVICES",
			Share:   1,
		},
		{
			Hook:    "PREROUTING",
			RuleRef: rule("nat", "KUBE-SEP-LPRYETXTYMQCMNCE", 2),
			Text:    "-A KUBE-SEP-LPRYETXTYMQCMNCE -j DNAT",
			Verdict: "dnat 10.244.1.4:8080",
			Share:   1.0 / 3,
		},
		{Hook: "FORWARD", RuleRef: rule("filter", "FORWARD", 0), Text: "policy", Verdict: "accept", Share: 1},
	}
	broken := paths(clusterIP, report.Mismatch, dnat(three), report.Actual{
		Outcomes: sent(three[:2]),
	}, missing("10.244.3.4:8080", "worker-2"))

	none := paths(clusterIP, report.ByDesign, report.Expected{
		Action: "Reject",
	}, report.Actual{Outcomes: []report.Outcome{{Action: "Reject", Share: 1, Where: rule("filter", "KUBE-SERVICES", 3)}}},
		report.Finding{
			Code:     "NoEndpoints",
			Severity: report.Info,
			Message:  "none of 4 endpoints is ready",
			Expected: "rejected",
		})

	unknown := paths(clusterIP, report.Unknown, dnat(three), report.Actual{
		Outcomes: append(sent(three), report.Outcome{Action: "Drop", Share: 1, Where: rule("filter", "FORWARD", 2)}),
		Uncertain: []report.Uncertain{
			{
				Where: rule("filter", "FORWARD", 2),
				Match: "-m bpf --object-pinned /sys/fs/bpf/guard",
				Why:   "what the match bpf does is not known",
			},
		},
	}, report.Finding{
		Code: "RuleNotEvaluated", Severity: report.Info, Subject: "filter FORWARD rule 2",
		Message:   "filter FORWARD rule 2 decides, and cannot be evaluated: what the match bpf does is not known",
		Predicate: "decides, and cannot be evaluated: what the match bpf does is not known",
		Evidence: []report.Evidence{{
			Where: rule("filter", "FORWARD", 2), Text: "-A FORWARD -m bpf --object-pinned /sys/fs/bpf/guard -j DROP",
		}},
		Remedy:   "real connections show what happens to them",
		Commands: []report.Command{{Line: "kubectl svcproxy trace --live --node worker-2 -n shop -- web"}},
	})

	v6 := []report.Endpoint{
		{Address: "fd00:10:244:1::1f", Port: 8080, Share: 0.5, Pod: "shop/web-7c9d8f6b5d-2xkqp", Node: "worker-1"},
		{Address: "fd00:10:244:2::2e", Port: 8080, Share: 0.5, Pod: "shop/web-7c9d8f6b5d-hh6mr", Node: "worker-2"},
	}
	dual := *web
	dual.ClusterIPs = []string{"10.96.21.191", "fd00:10:96::a1b2"}
	ipv6 := append(paths(clusterIP, report.Match, dnat(three), report.Actual{Outcomes: sent(three)}),
		paths(report.Frontend{
			Kind:     "ClusterIP",
			Address:  "fd00:10:96::a1b2",
			Port:     80,
			Protocol: "TCP",
			PortName: "http",
		}, report.Match, dnat(v6), report.Actual{Outcomes: sent(v6)})...)

	crowd := pods(250)
	most := append(append([]report.Endpoint(nil), crowd[:100]...), crowd[102:]...)
	many := paths(clusterIP, report.Mismatch, dnat(crowd), report.Actual{
		Outcomes: sent(most),
	}, missing(endpointText(&crowd[100]), "worker-2"), missing(endpointText(&crowd[101]), "worker-2"))
	some := pods(40)

	long := pods(2)
	for i := range long {
		long[i].Pod = "a-namespace-with-a-rather-long-name/checkout-payment-gateway-canary-6b5d7c9d8f-2xkqp"
		long[i].Node = "ip-10-77-0-1" + fmt.Sprint(i) + ".eu-central-1.compute.internal"
	}
	names := paths(clusterIP, report.Match, dnat(long), report.Actual{Outcomes: sent(long)})

	dropped := paths(clusterIP, report.Mismatch, dnat(three), report.Actual{Outcomes: []report.Outcome{
		sent(three)[0], sent(three)[1],
		{Action: "Drop", Share: 1.0 / 3, Endpoint: &three[2], Where: rule("filter", "FORWARD", 1)},
	}}, report.Finding{
		Code: "Dropped", Severity: report.Error, Subject: "10.244.3.4:8080", Endpoints: []string{"10.244.3.4:8080"},
		Expected: "sent to one of 3 endpoints", Actual: "dropped",
		Message: "filter FORWARD rule 1 drops it", Remedy: "find who owns filter FORWARD rule 1, and let it pass Service " +
			"traffic",
		Evidence: []report.Evidence{{Where: rule("filter", "FORWARD", 1), Text: "-A FORWARD -d 10.244.3.4/32 -j DROP"}},
	})
	untranslated := paths(clusterIP, report.Mismatch, dnat(three), report.Actual{
		Outcomes: []report.Outcome{{Action: "Accept", Share: 1}},
	},
		report.Finding{
			Code:     "ServiceNotProgrammed",
			Severity: report.Error,
			Message:  "no rule translates the packet",
			Expected: "sent to one of 3 endpoints",
			Actual:   "is not translated",
			Commands: []report.Command{{Line: "kubectl -n kube-system delete pod/kube-proxy-x"}},
		})
	stale := paths(clusterIP, report.Mismatch, dnat(three[:2]), report.Actual{Outcomes: sent(three)},
		report.Finding{
			Code:      "StaleEndpoint",
			Severity:  report.Error,
			Subject:   "10.244.3.4:8080",
			Message:   "10.244.3.4:8080 is in no EndpointSlice of the Service, but connections are sent to it",
			Predicate: "is in no EndpointSlice of the Service, but connections are sent to it",
			Expected:  "none",
			Actual:    "33.3%",
		})
	sticky := paths(clusterIP, report.Mismatch, dnat(three), report.Actual{Outcomes: sent(three)},
		report.Finding{
			Code:      "AffinityMissing",
			Severity:  report.Error,
			Subject:   "10.244.3.4:8080",
			Endpoints: []string{"10.244.3.4:8080"},
			Message:   "further connections of a client are not sent to the same endpoint",
			Expected:  "ClientIP for 10800s",
			Actual:    "none",
		})
	warn := paths(clusterIP, report.Warning, dnat(three), report.Actual{Outcomes: sent(three)},
		report.Finding{
			Code:     "SharedFrontend",
			Severity: report.Warn,
			Message:  "shop/web2 claims the same address",
			Remedy:   "give one of the Services another address or port",
		})
	cache := paths(report.Frontend{
		Kind:     "ClusterIP",
		Address:  "10.96.0.10",
		Port:     53,
		Protocol: "UDP",
	}, report.ByDesign, dnat(three), report.Actual{Outcomes: []report.Outcome{{Action: "Accept", Share: 1}}},
		report.Finding{Code: "NodeLocalDNS", Severity: report.Info, Message: "a DNS cache on the node answers"})

	lost := report.NodeReport{
		Node:    "worker-3",
		Verdict: report.Unknown,
		Error:   "iptables-save.txt: line 7: the table is cut off before COMMIT",
	}
	twice := broken[:1:1]
	other := paths(clusterIP, report.Mismatch, dnat(three), report.Actual{
		Outcomes: sent(three[:2]),
	}, missing("10.244.3.4:8080", "worker-1"))[:1]

	fleet := []report.NodeReport{node("worker-1", report.Match, good...), node("worker-2", report.Mismatch, broken...)}
	for i := 4; i < 12; i++ {
		fleet = append(fleet, node(fmt.Sprintf("worker-%d", i), report.Match, good...))
	}
	nodePort := report.Frontend{Kind: "NodePort", Address: "10.77.0.12", Port: 30080, Protocol: "TCP", PortName: "http"}
	control := paths(clusterIP, report.Unknown, dnat(three), report.Actual{}, report.Finding{
		Code:     "NotCollected",
		Severity: report.Info,
		Message:  "iptables-save.txt was not collected",
	})
	nodeWide := node("worker-2", report.Warning, good...)
	nodeWide.Findings = []report.Finding{
		{
			Code:     "SplitBackend",
			Severity: report.Warn,
			Subject:  "legacy",
			Message:  "kube-proxy's rules are in both backends",
			Remedy:   "flush the older set",
		},
		{
			Code:     "NotCollected",
			Severity: report.Info,
			Subject:  "nft-ruleset.json",
			Message:  "nftables tables beside iptables' own were not collected",
		},
	}
	escape := paths(clusterIP, report.Mismatch, dnat(three), report.Actual{Outcomes: sent(three)},
		report.Finding{
			Code:     "Shadowed",
			Severity: report.Error,
			Message:  "a rule with \x1b[2Jcontrol\ncharacters",
			Evidence: []report.Evidence{
				{Where: rule("nat", "PREROUTING", 1), Text: "-A PREROUTING -m comment --comment \"\x1b]0;owned\a\" -j X"},
			},
		})

	return map[string]*report.Report{
		"good":    trace(web, node("worker-2", report.Match, good...)),
		"missing": trace(web, node("worker-2", report.Mismatch, broken...)),
		"frontends": trace(web, node("worker-2", report.Mismatch, append(broken[:2:2],
			paths(nodePort, report.Mismatch, dnat(three), report.Actual{
				Outcomes: sent(three[:2]),
			}, missing("10.244.3.4:8080", "worker-2"))...)...)),
		"bydesign":     trace(web, node("worker-2", report.ByDesign, none...)),
		"unknown":      trace(web, node("worker-2", report.Unknown, unknown...)),
		"notcollected": trace(web, node("worker-2", report.Unknown, control...)),
		"ipv6":         trace(&dual, node("worker-2", report.Match, ipv6...)),
		"crowd":        trace(web, node("worker-2", report.Mismatch, many...)),
		"crowd-good": trace(web, node("worker-2", report.Match, paths(clusterIP, report.Match, dnat(crowd), report.Actual{
			Outcomes: sent(crowd),
		})...)),
		"crowd-gone": trace(web, node("worker-2", report.Mismatch,
			paths(clusterIP, report.Mismatch, dnat(some), report.Actual{
				Outcomes: sent(some[:1]),
			}, missing(endpointText(&some[1]), "worker-2"))...)),
		"longnames":    trace(web, node("worker-2", report.Match, names...)),
		"dropped":      trace(web, node("worker-2", report.Mismatch, dropped...)),
		"untranslated": trace(web, node("worker-2", report.Mismatch, untranslated...)),
		"stale":        trace(web, node("worker-2", report.Mismatch, stale...)),
		"affinity":     trace(web, node("worker-2", report.Mismatch, sticky...)),
		"warning":      trace(web, node("worker-2", report.Warning, warn...)),
		"dnscache":     trace(web, node("worker-2", report.ByDesign, cache...)),
		"nodes": trace(
			web, node("worker-1", report.Mismatch, other...),
			node("worker-2", report.Mismatch, twice...), lost,
		),
		"fleet":     trace(web, fleet...),
		"nodeerror": trace(web, lost),
		"nodewide":  trace(web, nodeWide),
		"escape":    trace(web, node("worker-2", report.Mismatch, escape...)),

		"verify": verifyReport(broken, none, dropped, nodeWide.Findings),
		"verify-right": report.Combine(report.KindVerify, nil, []report.NodeReport{
			{Node: "worker-2", Verdict: report.Match, Summary: report.Summary{Paths: 235, Matched: 191, ByDesign: 44}},
		}),
		"verify-many": verifyMany(broken[0]),
		"modes":       modesReport(),
		"observed":    trace(web, node("worker-2", report.Mismatch, observedPaths(three)...)),
	}
}

// observedPaths are right by the rules, and connections show that an endpoint is not.
func observedPaths(three []report.Endpoint) []report.Path {
	out := paths(clusterIP, report.Match, dnat(three), report.Actual{Outcomes: sent(three)})
	out[0].Observed = &report.Observed{
		Probes: 20,
		Error:  "no process on the node is in the network namespace of a pod with the address 10.244.2.77",
	}
	out[1].Verdict = report.Mismatch
	out[1].Observed = &report.Observed{
		Probes: 20, Connected: 13, RTT: 0.31, Events: []report.Event{{Result: report.ResultRefused, Count: 7}},
		Endpoints: []report.ObservedEndpoint{
			{
				Address:   three[0].Address,
				Port:      8080,
				Count:     6,
				Connected: 6,
				RTT:       0.3,
			}, {Address: three[1].Address, Port: 8080, Count: 7, Connected: 7, RTT: 0.4},
		},
	}
	out[1].Findings = []report.Finding{{
		Code: judge.EndpointRefused, Severity: report.Error, Subject: endpointText(&three[2]), Endpoints: []string{
			endpointText(&three[2]),
		}, Expected: "connected", Actual: "7 of 20 refused",
		Message: "the rules are right; connections straight to the " +
			"endpoint are refused: no process listens at its port", Remedy: "look at the pod: is its process up?",
	}}
	return out
}

// modesReport is one of nodes that differ, from a good one to one that nothing is known of.
func modesReport() *report.Report {
	of := func(name string, v report.Verdict, m report.Mode, findings ...report.Finding) report.NodeReport {
		return report.NodeReport{Node: name, Verdict: v, Mode: &m, Findings: findings}
	}
	failing := report.Finding{
		Code: judge.RestoreFailing, Severity: report.Warn, Subject: "IPv6", Expected: "no failed write",
		Actual: "17 failed since kube-proxy started, and a change waits",
		Message: "kube-proxy cannot write its rules: nothing changes on this node until the cause is gone; its log has the " +
			"error",
		Remedy: "read the error in kube-proxy's log on worker-2",
		Evidence: []report.Evidence{
			{Text: "IPv6: last written at 2026-11-20T18:02:11Z, last change seen at 2026-11-20T19:37:50Z"},
		},
	}
	leftover := report.Finding{
		Code: judge.ModeLeftover, Severity: report.Warn, Subject: "table nat", Message: "kube-proxy runs in nftables mode, " +
			"and its rules of iptables mode are still live",
		Remedy: "stop kube-proxy on worker-3 and remove what it left, or reboot the node; then restart kube-proxy",
		Commands: []report.Command{
			{Line: "kube-proxy --cleanup", Node: "worker-3", When: "with kube-proxy stopped"},
			{Line: "kubectl -n kube-system delete pod/kube-proxy-worker-3"},
		},
	}
	cilium := report.Finding{
		Code: judge.Replaced, Severity: report.Info, Subject: "Cilium", Message: "Services on this node are not handled by " +
			"kube-proxy but by Cilium, whose own tools show what happens to a packet",
		Evidence: []report.Evidence{
			{Text: "process 912 cilium-agent"},
			{Text: "interface cilium_host"},
		}, Remedy: "ask the program that serves Services on worker-4",
	}
	const version, sync = "v1.37.1", "2026-11-20T19:37:57Z"
	replaced := of("worker-4", report.Unknown, report.Mode{ReplacedBy: "Cilium", ConfigSource: "defaults"}, cilium)
	replaced.Error = cilium.Message
	return report.Combine(report.KindMode, nil, []report.NodeReport{
		of("worker-1", report.Match, report.Mode{
			Actual:           "iptables",
			Backend:          "nft",
			Configured:       "iptables",
			KubeProxyVersion: version,
			LastSync:         sync,
			Health:           "healthy",
			PendingChanges:   new(0),
			SyncFailures:     new(0),
		}),
		of("worker-2", report.Warning, report.Mode{
			Actual:           "iptables",
			Backend:          "legacy",
			Configured:       "iptables",
			KubeProxyVersion: version,
			LastSync:         "2026-11-20T18:02:11Z",
			Health:           "unhealthy",
			PendingChanges:   new(3),
			SyncFailures:     new(17),
			Families: []report.FamilySync{
				{Family: "IPv4", LastSync: sync, SyncFailures: new(0)},
				{Family: "IPv6", LastSync: "2026-11-20T18:02:11Z", Waits: true, SyncFailures: new(17)},
			},
		}, failing),
		of("worker-3", report.Warning, report.Mode{
			Actual:           "nftables",
			Configured:       "nftables",
			KubeProxyVersion: version,
			LastSync:         sync,
			Health:           "healthy",
			PendingChanges:   new(0),
			SyncFailures:     new(0),
			Leftovers:        []string{"table nat"},
		}, leftover),
		replaced,
		{Node: "worker-5", Verdict: report.Unknown, Error: "its kubelet does not answer"},
	})
}

// verifyReport is one of two nodes and one that was lost.
func verifyReport(broken, none, dropped []report.Path, nodeWide []report.Finding) *report.Report {
	of := func(name string, paths []report.Path) []report.Path {
		var out []report.Path
		for _, p := range paths {
			p.Service = &report.ObjectRef{Namespace: "shop", Name: name}
			out = append(out, p)
		}
		return out
	}
	one := node("worker-1", report.Mismatch, append(of("web", broken), of("batch", none)...)...)
	one.Summary.Paths, one.Summary.Matched = 27, 23
	two := node("worker-2", report.Mismatch, append(of("web", broken), of("checkout", dropped[:1])...)...)
	two.Findings = nodeWide
	two.Summary.Paths, two.Summary.Matched = 27, 24
	lost := report.NodeReport{
		Node:    "worker-3",
		Verdict: report.Unknown,
		Error:   "it runs kube-proxy in ipvs mode: this version walks the rules of iptables mode only",
	}
	r := report.Combine(report.KindVerify, nil, []report.NodeReport{one, two, lost})
	r.Patterns = []report.Pattern{
		{Code: "MissingEndpoint", Severity: report.Error, Nodes: []string{"worker-1", "worker-2"}, Without: 61},
	}
	r.Patterns[0].Shared = []report.Shared{
		{Property: "kernel", Relation: report.SharedIs, Value: "6.18.0-cloud-amd64", With: 2, OfWith: 2, OfWithout: 61},
		{Property: "label pool", Relation: report.SharedIs, With: 2, OfWith: 2, OfWithout: 61},
		{Property: "label \x1b[31mhostile", Relation: report.SharedIsNot, Value: "a\nb", With: 2, OfWith: 2, OfWithout: 61},
		{Property: "creation of the Node", Relation: report.SharedSince, Value: "2026-11-20T08:00:00Z", With: 2, OfWith: 2},
		{Property: "zone", Relation: report.SharedIs, Value: "a", With: 2, OfWith: 2, OfWithout: 60},
	}
	return r
}

// verifyMany has the same thing wrong with 60 Services.
func verifyMany(p report.Path) *report.Report {
	var all []report.Path
	for i := range 60 {
		q := p
		q.Service = &report.ObjectRef{Namespace: "shop", Name: fmt.Sprintf("svc-%02d", i)}
		q.Frontend.Address = fmt.Sprintf("10.96.7.%d", i)
		q.Findings = []report.Finding{missing(fmt.Sprintf("10.244.7.%d:8080", i), "worker-2")}
		all = append(all, q)
	}
	return report.Combine(report.KindVerify, nil, []report.NodeReport{node("worker-2", report.Mismatch, all...)})
}
