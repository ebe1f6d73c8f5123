// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
)

// nftObject is one object of nft-ruleset.json, as text.
// edits changes the objects of nft-ruleset.json for which f returns something else; every edit must change something.
// dropRules removes the rules of a chain that contain all parts. The chain may be named by how it begins.
// change replaces text in the objects of a kind that contain all parts.
// elementsOf changes the elements of a set or map of the table of IPv4.
// dropElement removes the elements that contain all parts.
// addObjects puts objects behind all others.
// foreign adds a table of somebody else's with one base chain, and rules of which each is a list of statements.
// Statements that faults put into rules.
const (
	jDrop  = `{"drop":null}`
	jEp20  = `{"match":{"op":"==","left":{"payload":{"protocol":"ip","field":"daddr"}},"right":"10.244.2.20"}}`
	jToEp3 = `{"match":{"op":"==","left":{"payload":{"protocol":"ip","field":"daddr"}},"right":"10.96.77.154"}}`
)

const (
	nftEp3 = "service-FXBA7JML-shop/ep3/tcp/"
	nftAff = "shop/affinity ClusterIP 10.96.32.7:80/TCP from "
	nftNp  = "external-R5PPCHH2-shop/np/tcp/"
)

// when is what a path changes to, if it does.
func when(does bool, codes string) string {
	if !does {
		return ""
	}
	return "Mismatch: " + codes
}

// programmed tells whether kube-proxy has anything to do with a path.
func programmed(was string) bool {
	for _, code := range []string{expect.ReasonHeadless, expect.ReasonNotForKubeProxy, expect.ReasonExternalName} {
		if strings.Contains(was, code) {
			return false
		}
	}
	return true
}

// nodeToClusterIP: what the node itself sends to cluster IPs is not masqueraded.
var nodeToClusterIP = every(func(path, was string) string {
	return when(
		was == string(report.Match) && strings.Contains(path, " ClusterIP ") && strings.HasSuffix(path, "from node"),
		WrongMasquerade+" *",
	)
})

// nftFaults are put into the captured node in nftables mode.
func nftFaults() []fault {
	return []fault{
		{
			name: "the element of service-ips is missing",
			do:   func(w *capturedNode) { w.dropElement("service-ips", "10.96.77.154") },
			want: both(ep3, "Mismatch: ServiceNotProgrammed"),
		},
		{name: "the elements of service-ips and cluster-ips are missing", do: func(w *capturedNode) {
			w.dropElement("service-ips", "10.96.77.154")
			w.dropElement("cluster-ips", "10.96.77.154")
		}, want: both(ep3, "Mismatch: ServiceNotProgrammed")},
		{
			name: "the element of service-ips is for another protocol",
			do:   func(w *capturedNode) { w.changeElement("service-ips", `"tcp"`, `"udp"`, "10.96.77.154") },
			want: []string{
				"node → StaleService shop/ep3",
				"shop/ep3 ClusterIP 10.96.77.154:80/TCP from node → Mismatch: ServiceNotProgrammed",
				"shop/ep3 ClusterIP 10.96.77.154:80/TCP from pod → Mismatch: ServiceNotProgrammed",
			},
		},
		{
			name: "the element of service-ips is for another port",
			do:   func(w *capturedNode) { w.changeElement("service-ips", `80`, `8080`, "10.96.77.154") },
			want: []string{
				"node → StaleService shop/ep3",
				"shop/ep3 ClusterIP 10.96.77.154:80/TCP from node → Mismatch: ServiceNotProgrammed",
				"shop/ep3 ClusterIP 10.96.77.154:80/TCP from pod → Mismatch: ServiceNotProgrammed",
			},
		},
		{name: "the element of service-ips leads to another Service", do: func(w *capturedNode) {
			w.changeElement("service-ips", nftEp3, "service-AOEDQIZD-shop/ep1/tcp/", "10.96.77.154")
		}, want: both(
			ep3,
			"Mismatch: MissingEndpoint 10.244.1.19:8080; MissingEndpoint 10.244.2.20:8080; MissingEndpoint 10.244.3.21:8080; "+
				"StaleEndpoint 10.244.1.16:8080",
		)},
		{name: "an endpoint is missing from the map", do: func(w *capturedNode) {
			w.change("rule", `"mod": 3`, `"mod": 2`, `"chain": "`+nftEp3)
			w.change("rule", `, [2, {"concat": ["10.244.3.21", 8080]}]`, ``, `"chain": "`+nftEp3)
		}, want: both(ep3, "Mismatch: MissingEndpoint 10.244.3.21:8080")},
		{name: "an endpoint is missing from the map, and still drawn", do: func(w *capturedNode) {
			w.change("rule", `, [2, {"concat": ["10.244.3.21", 8080]}]`, ``, `"chain": "`+nftEp3)
		}, want: both(ep3, "Mismatch: MissingEndpoint 10.244.3.21:8080")},
		{
			name: "an endpoint has another address",
			do:   func(w *capturedNode) { w.change("rule", "10.244.2.20", "10.244.2.99", `"chain": "`+nftEp3) },
			want: both(ep3, "Mismatch: MissingEndpoint 10.244.2.20:8080; StaleEndpoint 10.244.2.99:8080"),
		},
		{name: "an endpoint has another port", do: func(w *capturedNode) {
			w.change("rule", `"10.244.2.20", 8080`, `"10.244.2.20", 8081`, `"chain": "`+nftEp3)
		}, want: both(ep3, "Mismatch: MissingEndpoint 10.244.2.20:8080; StaleEndpoint 10.244.2.20:8081")},
		{name: "an endpoint is drawn twice as often", do: func(w *capturedNode) {
			w.change("rule", `"mod": 3`, `"mod": 4`, `"chain": "`+nftEp3)
			w.change("rule", `]]}}}`, `], [3, {"concat": ["10.244.3.21", 8080]}]]}}}`, `"chain": "`+nftEp3)
		}, want: both(ep3, "Mismatch: UnevenShare")},
		{
			name: "the Service's chain is empty",
			do:   func(w *capturedNode) { w.dropRules(nftEp3) },
			want: both(ep3, "Mismatch: ServiceNotProgrammed"),
		},
		{
			name: "the Service's chain is for another protocol",
			do:   func(w *capturedNode) { w.change("rule", `"right": "tcp"`, `"right": "udp"`, `"chain": "`+nftEp3) },
			want: both(ep3, "Mismatch: ServiceNotProgrammed"),
		},
		{
			name: "nat-prerouting does not lead to services",
			do:   func(w *capturedNode) { w.dropRules("nat-prerouting") },
			all: every(func(path, was string) string {
				return when(was == string(report.Match) && !strings.HasSuffix(path, "from node"), NotProgrammed)
			}),
		},
		{
			name: "nat-output does not lead to services",
			do:   func(w *capturedNode) { w.dropRules("nat-output") },
			all: every(func(path, was string) string {
				return when(was == string(report.Match) && strings.HasSuffix(path, "from node"), NotProgrammed)
			}),
		},
		{
			name: "services does not ask service-ips",
			do:   func(w *capturedNode) { w.dropRules("services", "@service-ips") },
			all: every(func(path, was string) string {
				return when(was == string(report.Match) && !strings.Contains(path, " NodePort "), ServiceNotProgrammed)
			}),
		},
		{
			name: "services does not ask service-nodeports",
			do:   func(w *capturedNode) { w.dropRules("services", "@service-nodeports") },
			all: every(func(path, was string) string {
				return when(was == string(report.Match) && strings.Contains(path, " NodePort "), ServiceNotProgrammed)
			}),
		},
		{
			name: "the mark for off-cluster traffic is missing",
			do:   func(w *capturedNode) { w.dropRules("services", "mangle") },
			all:  nodeToClusterIP,
		},
		{
			name: "the mark for off-cluster traffic has another bit",
			do:   func(w *capturedNode) { w.change("rule", "16384", "32768", `"chain": "services"`) },
			all:  nodeToClusterIP,
		},
		{
			name: "the pod network is another",
			do:   func(w *capturedNode) { w.change("rule", "10.244.0.0", "10.99.0.0", `"chain": "services"`) },
			all: every(func(path, was string) string {
				return when(
					was == string(report.Match) && !isV6(path) && strings.Contains(path, " ClusterIP ") &&
						strings.HasSuffix(path, "from pod"),
					WrongMasquerade+" *",
				)
			}),
		},
		{
			name: "masquerading does not ask for the mark",
			do:   func(w *capturedNode) { w.dropRules("masquerading", "mangle") },
			all: every(func(path, was string) string {
				return when(
					was == string(report.Match) && !sourceKept(path) && !strings.HasSuffix(path, "from pod"),
					WrongMasquerade+" *",
				)
			}),
		},
		{
			name: "nat-postrouting does not lead to masquerading",
			do:   func(w *capturedNode) { w.dropRules("nat-postrouting") },
			all: every(func(path, was string) string {
				if strings.HasSuffix(path, "from pod") {
					return when(was == string(report.Match), WrongMasquerade+" ?") // where an endpoint is on the node
				}
				return when(was == string(report.Match) && !sourceKept(path), WrongMasquerade+" *")
			}),
		},
		{
			name: "hairpin-connections are not masqueraded",
			do:   func(w *capturedNode) { w.dropRules("masquerading", "hairpin") },
			all: every(func(path, was string) string {
				return when(
					was == string(report.Match) && strings.HasSuffix(path, "from pod"),
					WrongMasquerade+" ?",
				) // where an endpoint is on the node
			}),
		},
		{
			name: "an element of hairpin-connections is missing",
			do:   func(w *capturedNode) { w.dropElement("hairpin-connections", "10.244.1.19") },
			want: []string{
				"shop/ep3 ClusterIP 10.96.77.154:80/TCP from pod → Mismatch: WrongMasquerade 10.244.1.19:8080",
			},
		},
		{
			name: "the mark of an external chain is missing",
			do:   func(w *capturedNode) { w.dropRules(nftNp, "mangle") },
			want: []string{
				"shop/np NodePort 10.77.0.11:30080/TCP from external → Mismatch: WrongMasquerade 10.244.1.32:8080, " +
					"10.244.2.33:8080",
				"shop/np NodePort 10.77.0.11:30080/TCP from node → Mismatch: WrongMasquerade 10.244.1.32:8080, 10.244.2.33:8080",
			},
		},
		{name: "an external chain leads nowhere", do: func(w *capturedNode) { w.dropRules(nftNp, "goto") }, want: []string{
			"shop/np NodePort 10.77.0.11:30080/TCP from external → Mismatch: ServiceNotProgrammed",
			"shop/np NodePort 10.77.0.11:30080/TCP from node → Mismatch: ServiceNotProgrammed",
		}},
		{
			name: "the element of service-nodeports is missing",
			do:   func(w *capturedNode) { w.dropElement("service-nodeports", "30080") },
			want: []string{
				"shop/np NodePort 10.77.0.11:30080/TCP from external → Mismatch: ServiceNotProgrammed",
				"shop/np NodePort 10.77.0.11:30080/TCP from node → Mismatch: ServiceNotProgrammed",
			},
		},
		{
			name: "nodeport-ips is empty",
			do:   func(w *capturedNode) { w.dropElement("nodeport-ips", "10.77.0.11") },
			all: every(func(path, was string) string {
				switch {
				case isV6(path) || !strings.Contains(path, " NodePort "):
					return ""
				case was == string(report.Match):
					return "Mismatch: " + ServiceNotProgrammed
				}
				return "Mismatch: " + AcceptedWithoutEndpoints
			}),
		},
		{
			name: "the element of no-endpoint-services is missing",
			do:   func(w *capturedNode) { w.dropElement("no-endpoint-services", "198.51.100.23") },
			want: []string{
				"shop/extip-noep ExternalIP 198.51.100.23:80/TCP from external → Mismatch: AcceptedWithoutEndpoints",
				"shop/extip-noep ExternalIP 198.51.100.23:80/TCP from node → Mismatch: AcceptedWithoutEndpoints",
			},
		},
		{
			name: "the element of no-endpoint-nodeports is missing",
			do:   func(w *capturedNode) { w.dropElement("no-endpoint-nodeports", "30081") },
			want: []string{
				"shop/np-noep NodePort 10.77.0.11:30081/TCP from external → Mismatch: AcceptedWithoutEndpoints",
				"shop/np-noep NodePort 10.77.0.11:30081/TCP from node → Mismatch: AcceptedWithoutEndpoints",
			},
		},
		{name: "a Service without endpoints is dropped in place of rejected", do: func(w *capturedNode) {
			w.changeElement("no-endpoint-services", `{"goto": {"target": "reject-chain"}}`, jDrop, "10.96.128.57")
		}, want: []string{
			"shop/ep0-empty ClusterIP 10.96.128.57:80/TCP from node → Mismatch: TrafficPolicyMismatch",
			"shop/ep0-empty ClusterIP 10.96.128.57:80/TCP from pod → Mismatch: TrafficPolicyMismatch",
		}},
		{name: "no-endpoint-services has a Service that has endpoints, behind its translation", do: func(w *capturedNode) {
			w.addElement("no-endpoint-services", `[{"concat":["10.96.77.154","tcp",80]},{"goto":{"target":"reject-chain"}}]`)
		}},
		{name: "no-endpoint-services has a Service in place of service-ips", do: func(w *capturedNode) {
			w.dropElement("service-ips", "10.96.77.154")
			w.addElement("no-endpoint-services", `[{"concat":["10.96.77.154","tcp",80]},{"goto":{"target":"reject-chain"}}]`)
		}, want: both(ep3, "Mismatch: RefusedWithEndpoints")},
		{
			name: "the element of firewall-ips is missing",
			do:   func(w *capturedNode) { w.dropElement("firewall-ips", "203.0.113.11") },
			want: []string{
				"shop/lb-ranges LoadBalancerIP 203.0.113.11:443/TCP from external 192.0.2.77 → Mismatch: SourceRangesMismatch",
				"shop/lb-ranges LoadBalancerIP 203.0.113.11:443/TCP from node → Mismatch: SourceRangesMismatch",
			},
		},
		{name: "a source range is missing", do: func(w *capturedNode) {
			w.change("rule", `{"prefix": {"addr": "192.0.2.128", "len": 25}}, `, ``, `"chain": "firewall-VG4DSY5R`)
		}, want: []string{
			"shop/lb-ranges LoadBalancerIP 203.0.113.11:443/TCP from external 192.0.2.128 → Mismatch: SourceRangesMismatch",
			"shop/lb-ranges LoadBalancerIP 203.0.113.12:443/TCP from external 192.0.2.128 → Mismatch: SourceRangesMismatch",
		}},
		{
			name: "a source range is too wide",
			do:   func(w *capturedNode) { w.change("rule", `"len": 25`, `"len": 24`, `"chain": "firewall-VG4DSY5R`) },
			want: []string{
				"shop/lb-ranges LoadBalancerIP 203.0.113.11:443/TCP from external 192.0.2.77 → Mismatch: SourceRangesMismatch",
				"shop/lb-ranges LoadBalancerIP 203.0.113.12:443/TCP from external 192.0.2.77 → Mismatch: SourceRangesMismatch",
			},
		},
		{
			name: "a returning client is not looked for",
			do:   func(w *capturedNode) { w.dropRules("service-MU6DWLCG-shop/affinity/tcp/", "@affinity-J73M3FEA") },
			want: both(nftAff, "Mismatch: AffinityMissing 10.244.2.57:8080"),
		},
		{
			name: "a client is not noted",
			do:   func(w *capturedNode) { w.dropRules("endpoint-J73M3FEA", "update") },
			want: both(nftAff, "Mismatch: AffinityMissing 10.244.2.57:8080"),
		},
		{
			name: "clients are remembered for another time",
			do:   func(w *capturedNode) { w.change("set", `"timeout": 600`, `"timeout": 601`, "affinity-J73M3FEA") },
			want: both(nftAff, "Mismatch: AffinityTimeout 10.244.2.57:8080"),
		},
		{name: "clients are remembered without need", do: func(w *capturedNode) {
			w.service("shop/affinity").Spec.SessionAffinity = corev1.ServiceAffinityNone
		}, want: both(nftAff, "Mismatch: AffinityUnexpected 10.244.1.56:8080, 10.244.2.57:8080, 10.244.3.58:8080")},
		{
			name: "an endpoint's chain is empty",
			do:   func(w *capturedNode) { w.dropRules("endpoint-J73M3FEA") },
			want: both(nftAff, "Mismatch: MissingEndpoint 10.244.2.57:8080"),
		},
		{name: "an endpoint's chain is drawn twice", do: func(w *capturedNode) {
			w.change("rule", `"mod": 3`, `"mod": 4`, `"chain": "service-MU6DWLCG`)
			w.change(
				"rule",
				`]]}}}`,
				`], [3, {"goto": {"target": "endpoint-J73M3FEA-shop/affinity/tcp/__10.244.2.57/8080"}}]]}}}`,
				`"chain": "service-MU6DWLCG`,
				"numgen",
			)
		}, want: both(nftAff, "Mismatch: UnevenShare")},
		{name: "the policy Local is not followed", do: func(w *capturedNode) {
			w.change(
				"rule",
				`"target": "local-NWTYZBBY`,
				`"target": "service-NWTYZBBY`,
				`"chain": "external-NWTYZBBY`,
				`"target": "local-`,
			)
		}, want: []string{
			"shop/lb-etp-local LoadBalancerIP 203.0.113.15:80/TCP from external 192.0.2.77 → Mismatch: TrafficPolicyMismatch",
			"shop/lb-etp-local NodePort 10.77.0.11:30094/TCP from external → Mismatch: TrafficPolicyMismatch",
		}},
		{
			name: "the short cut of the node is missing",
			do:   func(w *capturedNode) { w.dropRules("external-NWTYZBBY", "fib", "goto") },
			want: []string{
				"shop/lb-etp-local LoadBalancerIP 203.0.113.15:80/TCP from node → Mismatch: TrafficPolicyMismatch",
				"shop/lb-etp-local NodePort 10.77.0.11:30094/TCP from node → Mismatch: TrafficPolicyMismatch",
			},
		},
		{
			name: "someone drops on FORWARD",
			do:   func(w *capturedNode) { w.foreign("inet", "filter", "forward", "-10", jEp20+","+jDrop) },
			want: []string{
				"shop/ep3 ClusterIP 10.96.77.154:80/TCP from pod → Mismatch: Dropped 10.244.2.20:8080",
			},
		},
		{
			name: "someone drops ahead of all",
			do:   func(w *capturedNode) { w.foreign("ip", "filter", "prerouting", "-300", jToEp3+","+jDrop) },
			want: []string{
				"shop/ep3 ClusterIP 10.96.77.154:80/TCP from pod → Mismatch: Dropped",
			},
		},
		{name: "someone rejects what the node sends", do: func(w *capturedNode) {
			w.foreign("inet", "filter", "output", "0", jEp20+`,{"reject":{"type":"icmpx","expr":"admin-prohibited"}}`)
		}, want: []string{
			"shop/ep3 ClusterIP 10.96.77.154:80/TCP from node → Mismatch: Rejected 10.244.2.20:8080",
		}},
		{name: "someone translates first", do: func(w *capturedNode) {
			w.foreign("ip", "nat", "prerouting", "-110", jToEp3+`,{"dnat":{"addr":"192.0.2.1","port":80}}`)
		}, want: []string{
			"shop/ep3 ClusterIP 10.96.77.154:80/TCP from pod → Mismatch: Shadowed",
		}},
		{
			name: "someone takes packets out of connection tracking",
			do:   func(w *capturedNode) { w.foreign("ip", "filter", "prerouting", "-300", jToEp3+`,{"notrack":null}`) },
			want: []string{
				"shop/ep3 ClusterIP 10.96.77.154:80/TCP from pod → Mismatch: Shadowed",
			},
		},
		{name: "someone's rule is not known", do: func(w *capturedNode) {
			w.foreign("ip", "filter", "forward", "-10", jEp20+`,{"match":{"op":"==","left":{"odd":{}},"right":1}},`+jDrop)
		}, want: []string{
			"shop/ep3 ClusterIP 10.96.77.154:80/TCP from pod → Unknown",
		}},
		{name: "someone's rule depends on a rate", do: func(w *capturedNode) {
			w.foreign("ip", "filter", "forward", "-10", jEp20+`,{"limit":{"rate":1,"per":"second","inv":true}},`+jDrop)
		}, want: []string{
			"shop/ep3 ClusterIP 10.96.77.154:80/TCP from pod → Unknown",
		}},
		{name: "someone only counts", do: func(w *capturedNode) {
			w.foreign("inet", "filter", "forward", "-10", jEp20+`,{"counter":{"packets":1,"bytes":60}}`)
		}},
		{name: "a Service is gone", do: func(w *capturedNode) {
			w.cluster.Services = slices.DeleteFunc(w.cluster.Services, func(s *corev1.Service) bool { return s.Name == "lb" })
		}, want: []string{
			"node → StaleService 10.96.190.34; StaleService shop/lb",
			"shop/lb ClusterIP 10.96.190.34:80/TCP from node → gone",
			"shop/lb ClusterIP 10.96.190.34:80/TCP from pod → gone",
			"shop/lb LoadBalancerIP 203.0.113.10:80/TCP from external 192.0.2.77 → gone",
			"shop/lb LoadBalancerIP 203.0.113.10:80/TCP from node → gone",
			"shop/lb NodePort 10.77.0.11:30090/TCP from external → gone",
			"shop/lb NodePort 10.77.0.11:30090/TCP from node → gone",
		}},
		{
			name: "a cluster IP is left over",
			do:   func(w *capturedNode) { w.addElement("cluster-ips", `"10.96.200.200"`) },
			want: []string{
				"node → StaleService 10.96.200.200",
			},
		},
		{name: "a chain is left over", do: func(w *capturedNode) {
			w.addObjects(`{"chain":{"family":"ip","table":"kube-proxy","name":"service-AAAAAAAA-shop/gone/tcp/"}}`)
		}, want: []string{
			"node → OrphanChain service-AAAAAAAA-shop/gone/tcp/",
		}},
		{name: "a jump stands twice", do: func(w *capturedNode) {
			w.edits(func(o nftObject) []string {
				if o.kind == "rule" && has(o.text, `"family": "ip"`, `"chain": "nat-output"`) {
					return []string{o.text, o.text}
				}
				return []string{o.text}
			})
		}, want: []string{
			"node → DuplicateRules nft kube-proxy nat-output",
		}},
		{name: "rules of iptables mode are left over", do: func(w *capturedNode) {
			w.files[v4] = []byte(
				"# Generated by iptables-save v1.8.9 (nf_tables) on Fri Nov 20 19:37:55 2026\n*nat\n:PREROUTING ACCEPT " +
					"[0:0]\n:OUTPUT ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n" +
					"-A PREROUTING -j KUBE-SERVICES\n-A KUBE-SERVICES -d 192.0.2.200/32 -p tcp -m tcp --dport 80 -j RETURN\nCOMMIT\n" +
					"*filter\nCOMMIT\n",
			)
		}, want: []string{
			"node → ModeLeftover table nat",
		}},
		{name: "the table of IPv6 is missing", do: func(w *capturedNode) {
			w.files[snapshot.UnreadFile] = snapshot.EncodeUnread(nil) // else somebody may have left it out
			w.edits(func(o nftObject) []string {
				if strings.Contains(o.text, `"family": "ip6"`) {
					return nil
				}
				return []string{o.text}
			})
		}, all: func(before map[string]string) []string {
			return append(
				every(func(path, was string) string { return when(isV6(path) && programmed(was), FamilyMissing) })(before),
				"node → FamilyMissing IPv6",
			)
		}},
		{name: "the table is dormant", do: func(w *capturedNode) {
			w.files[snapshot.UnreadFile] = snapshot.EncodeUnread(nil)
			w.change("table", `"name": "kube-proxy"`, `"name": "kube-proxy", "flags": "dormant"`, `"family": "ip"`)
		}, all: func(before map[string]string) []string {
			return append(every(func(path, was string) string {
				return when(path != "node" && !isV6(path) && programmed(was), FamilyMissing)
			})(before), "node → FamilyMissing IPv4")
		}},
		{name: "an endpoint has become unready", do: func(w *capturedNode) {
			no := false
			for i := range w.slice("shop/ep3").Endpoints {
				if e := &w.slice("shop/ep3").Endpoints[i]; e.Addresses[0] == "10.244.2.20" {
					e.Conditions.Ready, e.Conditions.Serving = &no, &no
				}
			}
		}, want: both(ep3, "Mismatch: StaleEndpoint 10.244.2.20:8080")},
		{name: "every endpoint has become unready", do: func(w *capturedNode) {
			no := false
			for i := range w.slice("shop/ep3").Endpoints {
				w.slice("shop/ep3").Endpoints[i].Conditions.Ready = &no
			}
		}, want: both(ep3, "Mismatch: AcceptedWithoutEndpoints")},
	}
}

func TestNFTFaults(t *testing.T) {
	putIn(t, "nftables", nftFaults(), 50)
}

// putIn puts faults into a captured node, each alone: it changes what it says, and nothing else. At least so many were
// asked for.
