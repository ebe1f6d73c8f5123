// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

func faults(w *capturedNode) []fault {
	ep3Port, npPort := "shop/ep3", "shop/np"
	svcEp3, svcNp := kubeproxy.ChainNames(ep3Port, corev1.ProtocolTCP), kubeproxy.ChainNames(npPort, corev1.ProtocolTCP)
	aff := kubeproxy.ChainNames("shop/affinity", corev1.ProtocolTCP)
	ranges := kubeproxy.ChainNames("shop/lb-ranges", corev1.ProtocolTCP)
	sep1 := w.sep(ep3Port, "10.244.1.19:8080")
	return []fault{
		{
			name: "a SEP rule removed from the middle",
			do:   func(w *capturedNode) { w.drop(v4, "-A "+svcEp3.Cluster, "10.244.2.20:8080") },
			want: both(ep3, "Mismatch: MissingEndpoint 10.244.2.20:8080"),
		},
		{
			name: "the last SEP rule removed",
			do:   func(w *capturedNode) { w.drop(v4, "-A "+svcEp3.Cluster, "10.244.3.21:8080") },
			want: both(ep3, "Mismatch: MissingEndpoint 10.244.3.21:8080"),
		},
		{
			name: "a SEP's address changed",
			do:   func(w *capturedNode) { w.replace(v4, "10.244.2.20:8080", "10.244.2.99:8080", "--to-destination") },
			want: both(ep3, "Mismatch: MissingEndpoint 10.244.2.20:8080; StaleEndpoint 10.244.2.99:8080"),
		},
		{
			name: "a SEP's port changed",
			do:   func(w *capturedNode) { w.replace(v4, "10.244.2.20:8080", "10.244.2.20:8081", "--to-destination") },
			want: both(ep3, "Mismatch: MissingEndpoint 10.244.2.20:8080; StaleEndpoint 10.244.2.20:8081"),
		},
		{
			name: "a probability changed",
			do:   func(w *capturedNode) { w.replace(v4, "0.33333333349", "0.50000000000", "-A "+svcEp3.Cluster) },
			want: both(ep3, "Mismatch: UnevenShare"),
		},
		{name: "a probability removed", do: func(w *capturedNode) {
			w.replace(v4, "-m statistic --mode random --probability 0.33333333349 ", "", "-A "+svcEp3.Cluster)
		}, want: both(ep3, "Mismatch: MissingEndpoint 10.244.2.20:8080; MissingEndpoint 10.244.3.21:8080")},
		{name: "a probability in place of none at the end", do: func(w *capturedNode) {
			w.replace(
				v4,
				"-j KUBE-SEP",
				"-m statistic --mode random --probability 0.50000000000 -j KUBE-SEP",
				"-A "+svcEp3.Cluster,
				"10.244.3.21",
			)
		}, want: both(ep3, "Mismatch: UnevenShare")},
		{
			name: "the jump to a Service removed",
			do:   func(w *capturedNode) { w.drop(v4, "-A KUBE-SERVICES", "-j "+svcEp3.Cluster) },
			want: both(ep3, "Mismatch: ServiceNotProgrammed"),
		},
		{
			name: "a NodePort's rules removed",
			do:   func(w *capturedNode) { w.drop(v4, "-A KUBE-NODEPORTS", "-j "+svcNp.External) },
			want: []string{
				np + "10.77.0.11:30080/TCP from external → Mismatch: ServiceNotProgrammed",
				np + "10.77.0.11:30080/TCP from node → Mismatch: ServiceNotProgrammed",
				np + "127.0.0.1:30080/TCP from node → Mismatch: ServiceNotProgrammed",
			},
		},
		{
			name: "a NodePort's chain leads to no endpoint",
			do:   func(w *capturedNode) { w.drop(v4, "-A "+svcNp.External, "-j "+svcNp.Cluster) },
			want: []string{
				np + "10.77.0.11:30080/TCP from external → Mismatch: ServiceNotProgrammed",
				np + "10.77.0.11:30080/TCP from node → Mismatch: ServiceNotProgrammed",
				// MASQUERADE takes eth0's address, and KUBE-FIREWALL drops what comes to 127.0.0.0/8 from elsewhere: no cause
				// of its own.
				np + "127.0.0.1:30080/TCP from node → Mismatch: ServiceNotProgrammed",
			},
		},
		{
			name: "an external IP's rule removed",
			do:   func(w *capturedNode) { w.drop(v4, "-A KUBE-SERVICES", "shop/extip external IP") },
			want: []string{
				"shop/extip ExternalIP 198.51.100.20:80/TCP from external → Mismatch: ServiceNotProgrammed",
				"shop/extip ExternalIP 198.51.100.20:80/TCP from node → Mismatch: ServiceNotProgrammed",
				"shop/extip ExternalIP 198.51.100.21:80/TCP from external → Mismatch: ServiceNotProgrammed",
				"shop/extip ExternalIP 198.51.100.21:80/TCP from node → Mismatch: ServiceNotProgrammed",
			},
		},
		{
			name: "a Service's chain emptied", do: func(w *capturedNode) { w.drop(v4, "-A "+svcEp3.Cluster) },
			want: both(ep3, "Mismatch: ServiceNotProgrammed"),
		},
		{
			name: "a SEP chain emptied", do: func(w *capturedNode) { w.drop(v4, "-A "+sep1) },
			want: both(ep3, "Mismatch: MissingEndpoint 10.244.1.19:8080"),
		},
		{
			name: "a SEP chain emptied and declared only", do: func(w *capturedNode) { w.drop(v4, "-A "+sep1, "-j DNAT") },
			want: both(ep3, "Mismatch: MissingEndpoint 10.244.1.19:8080"),
		},
		{name: "a DROP in raw", do: func(w *capturedNode) {
			w.addTable(
				v4,
				"*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n-A PREROUTING -d 10.96.77.154/32 -j DROP\nCOMMIT\n",
			)
		}, want: []string{ep3 + "pod → Mismatch: Dropped"}},
		{
			name: "a DROP in mangle OUTPUT",
			do:   func(w *capturedNode) { w.first(v4, "mangle", "OUTPUT", "-d 10.96.77.154/32 -p tcp -j DROP") },
			want: []string{ep3 + "node → Mismatch: Dropped"},
		},
		{
			name: "a DROP of an endpoint in FORWARD",
			do:   func(w *capturedNode) { w.first(v4, "filter", "FORWARD", "-d 10.244.2.20/32 -j DROP") },
			want: []string{ep3 + "pod → Mismatch: Dropped 10.244.2.20:8080"},
		},
		{name: "a REJECT of an endpoint in OUTPUT", do: func(w *capturedNode) {
			w.first(v4, "filter", "OUTPUT", "-d 10.244.2.20/32 -j REJECT --reject-with icmp-port-unreachable")
		}, want: []string{ep3 + "node → Mismatch: Rejected 10.244.2.20:8080"}},
		{name: "a REJECT of the ClusterIP in filter, behind the translation, breaks nothing", do: func(w *capturedNode) {
			w.first(v4, "filter", "OUTPUT", "-d 10.96.77.154/32 -j REJECT --reject-with icmp-port-unreachable")
		}},
		{
			name: "FORWARD policy DROP", do: func(w *capturedNode) { w.policy(v4, "filter", "FORWARD") },
			all: every(func(path, was string) string {
				if was != string(report.Match) || isV6(path) || !strings.HasSuffix(path, "pod") && !sourceKept(path) {
					return ""
				}
				return "Mismatch: Dropped *"
			}),
		},
		{
			name: "the masquerade mark of external traffic dropped",
			do:   func(w *capturedNode) { w.drop(v4, "-A "+svcNp.External, "KUBE-MARK-MASQ") },
			want: []string{
				np + "10.77.0.11:30080/TCP from external → Mismatch: WrongMasquerade 10.244.1.32:8080, 10.244.2.33:8080",
				np + "10.77.0.11:30080/TCP from node → Mismatch: WrongMasquerade 10.244.1.32:8080, 10.244.2.33:8080",
				np + "127.0.0.1:30080/TCP from node → Mismatch: WrongMasquerade 10.244.1.32:8080, 10.244.2.33:8080",
			},
		},
		{
			name: "the masquerade mark of the node's traffic dropped",
			do:   func(w *capturedNode) { w.drop(v4, "-A "+svcEp3.Cluster, "KUBE-MARK-MASQ") },
			want: []string{ep3 + "node → Mismatch: WrongMasquerade 10.244.1.19:8080, 10.244.2.20:8080, 10.244.3.21:8080"},
		},
		{
			name: "the hairpin mark dropped", do: func(w *capturedNode) { w.drop(v4, "-A "+sep1, "KUBE-MARK-MASQ") },
			want: []string{ep3 + "pod → Mismatch: WrongMasquerade 10.244.1.19:8080"},
		},
		{
			name: "MASQUERADE itself removed",
			do:   func(w *capturedNode) { w.drop(v4, "-A KUBE-POSTROUTING", "-j MASQUERADE") },
			all:  masqueradeGone,
		},
		{name: "KUBE-MARK-MASQ emptied", do: func(w *capturedNode) { w.drop(v4, "-A KUBE-MARK-MASQ") }, all: masqueradeGone},
		{
			name: "everything masqueraded", do: func(w *capturedNode) { w.drop(v4, "-A KUBE-POSTROUTING", "-j RETURN") },
			all: every(func(path, was string) string {
				if strings.Contains(path, "-noep NodePort 127.0.0.1:") {
					// MASQUERADE on lo takes eth0's address, and KUBE-FIREWALL drops what comes to 127.0.0.0/8 from elsewhere
					// before it is refused.
					return "Mismatch: TrafficPolicyMismatch"
				}
				if was != string(report.Match) || isV6(path) || !strings.HasSuffix(path, "pod") && !sourceKept(path) {
					return ""
				}
				return "Mismatch: WrongMasquerade *"
			}),
		},
		{
			name: "the affinity checks dropped",
			do:   func(w *capturedNode) { w.drop(v4, "-A "+aff.Cluster, "--rcheck") },
			want: both(
				"shop/affinity ClusterIP 10.96.32.7:80/TCP from ",
				"Mismatch: AffinityMissing 10.244.1.56:8080, 10.244.2.57:8080, 10.244.3.58:8080",
			),
		},
		{name: "one client list no longer written", do: func(w *capturedNode) {
			w.replace(
				v4,
				"-m recent --set --name "+w.sep("shop/affinity", "10.244.1.56:8080")+" --mask 255.255.255.255 --rsource ",
				"",
				"--set",
				w.sep("shop/affinity", "10.244.1.56:8080"),
			)
		}, want: both("shop/affinity ClusterIP 10.96.32.7:80/TCP from ", "Mismatch: AffinityMissing 10.244.1.56:8080")},
		{
			name: "another affinity time",
			do: func(w *capturedNode) {
				w.service("shop/affinity").Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds = new(int32(900))
			},
			want: both(
				"shop/affinity ClusterIP 10.96.32.7:80/TCP from ",
				"Mismatch: AffinityTimeout 10.244.1.56:8080, 10.244.2.57:8080, 10.244.3.58:8080",
			),
		},
		{name: "affinity taken from the Service", do: func(w *capturedNode) {
			w.service("shop/affinity").Spec.SessionAffinity = corev1.ServiceAffinityNone
			w.service("shop/affinity").Spec.SessionAffinityConfig = nil
		}, want: both(
			"shop/affinity ClusterIP 10.96.32.7:80/TCP from ",
			"Mismatch: AffinityUnexpected 10.244.1.56:8080, 10.244.2.57:8080, 10.244.3.58:8080",
		)},
		{name: "affinity given to the Service", do: func(w *capturedNode) {
			w.service("shop/ep3").Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			w.service("shop/ep3").Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(10800))},
			}
		}, want: both(ep3, "Mismatch: AffinityMissing 10.244.1.19:8080, 10.244.2.20:8080, 10.244.3.21:8080")},
		{name: "the rules in both backends", do: (*capturedNode).legacyCopy, want: []string{"node → SplitBackend IPv4"}},
		{name: "an older set in the other backend", do: func(w *capturedNode) {
			w.legacyCopy()
			w.drop("iptables-legacy-save.txt", "-A "+svcEp3.Cluster, "10.244.2.20:8080")
		}, want: append(both(ep3, "Unknown"), "node → SplitBackend IPv4")},
		{name: "a Service deleted from the API", do: func(w *capturedNode) {
			w.cluster.Services = slices.DeleteFunc(w.cluster.Services, func(s *corev1.Service) bool { return s.Name == "ep3" })
		}, want: []string{"node → StaleService shop/ep3", ep3 + "node → gone", ep3 + "pod → gone"}},
		{name: "a NodePort Service deleted from the API", do: func(w *capturedNode) {
			w.cluster.Services = slices.DeleteFunc(w.cluster.Services, func(s *corev1.Service) bool { return s.Name == "np" })
		}, want: []string{
			"node → StaleService shop/np",
			"shop/np ClusterIP 10.96.62.156:80/TCP from node → gone",
			"shop/np ClusterIP 10.96.62.156:80/TCP from pod → gone",
			np + "10.77.0.11:30080/TCP from external → gone",
			np + "10.77.0.11:30080/TCP from node → gone",
			np + "127.0.0.1:30080/TCP from node → gone",
		}},
		{name: "a Service without endpoints deleted from the API", do: func(w *capturedNode) {
			w.cluster.Services = slices.DeleteFunc(
				w.cluster.Services,
				func(s *corev1.Service) bool { return s.Name == "ep0-empty" },
			)
		}, want: []string{
			"node → StaleService shop/ep0-empty",
			"shop/ep0-empty ClusterIP 10.96.128.57:80/TCP from node → gone",
			"shop/ep0-empty ClusterIP 10.96.128.57:80/TCP from pod → gone",
		}},
		serviceGone("shop/np-noep"),
		serviceGone("shop/lb-ranges"),
		{name: "an endpoint gone from the API", do: func(w *capturedNode) {
			s := w.slice("shop/ep3")
			s.Endpoints = slices.DeleteFunc(
				s.Endpoints,
				func(e discoveryv1.Endpoint) bool { return e.Addresses[0] == "10.244.2.20" },
			)
		}, want: both(ep3, "Mismatch: StaleEndpoint 10.244.2.20:8080")},
		{name: "an endpoint new in the API", do: func(w *capturedNode) {
			s := w.slice("shop/ep3")
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.244.3.99"}, NodeName: new("node3")})
		}, want: both(ep3, "Mismatch: MissingEndpoint 10.244.3.99:8080")},
		{name: "an endpoint no longer ready", do: func(w *capturedNode) {
			for i := range w.slice("shop/ep3").Endpoints {
				if e := &w.slice("shop/ep3").Endpoints[i]; e.Addresses[0] == "10.244.2.20" {
					e.Conditions.Ready = new(false)
				}
			}
		}, want: both(ep3, "Mismatch: StaleEndpoint 10.244.2.20:8080")},
		{name: "all endpoints no longer ready", do: func(w *capturedNode) {
			for i := range w.slice("shop/ep3").Endpoints {
				w.slice("shop/ep3").Endpoints[i].Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false)}
			}
		}, want: both(ep3, "Mismatch: AcceptedWithoutEndpoints")},
		{
			name: "a no-endpoints REJECT removed", do: func(w *capturedNode) { w.drop(v4, "shop/ep0-empty has no endpoints") },
			want: both("shop/ep0-empty ClusterIP 10.96.128.57:80/TCP from ", "Mismatch: AcceptedWithoutEndpoints"),
		},
		{name: "an old no-endpoints REJECT in place of the rules", do: func(w *capturedNode) {
			w.drop(v4, "-A KUBE-SERVICES", "-j "+svcEp3.Cluster)
			w.first(
				v4,
				"filter",
				"KUBE-SERVICES",
				`-d 10.96.77.154/32 -p tcp -m comment --comment "shop/ep3 has no endpoints" -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable`,
			)
		}, want: both(ep3, "Mismatch: RefusedWithEndpoints")},
		{name: "a cluster IP is dropped", do: func(w *capturedNode) {
			w.drop(v4, "-A KUBE-SERVICES", "-j "+svcEp3.Cluster)
			w.first(v4, "filter", "KUBE-SERVICES", "-d 10.96.77.154/32 -p tcp -m tcp --dport 80 -j DROP")
		}, want: both(ep3, "Mismatch: RefusedWithEndpoints")},
		{name: "an external IP is dropped", do: func(w *capturedNode) {
			w.drop(v4, "-A KUBE-SERVICES", "198.51.100.20/32")
			w.first(v4, "filter", "KUBE-EXTERNAL-SERVICES", "-d 198.51.100.20/32 -p tcp -m tcp --dport 80 -j DROP")
		}, want: []string{
			"shop/extip ExternalIP 198.51.100.20:80/TCP from external → Mismatch: RefusedWithEndpoints",
			"shop/extip ExternalIP 198.51.100.20:80/TCP from node → Mismatch: ServiceNotProgrammed",
		}},
		{
			name: "a source range's rule removed",
			do:   func(w *capturedNode) { w.drop(v4, "-A "+ranges.Firewall, "192.0.2.128/25") },
			want: []string{
				lbr + "external 192.0.2.128 → Mismatch: SourceRangesMismatch",
				lbr2 + "external 192.0.2.128 → Mismatch: SourceRangesMismatch",
			},
		},
		{
			name: "a source range wider in the rules",
			do:   func(w *capturedNode) { w.replace(v4, "192.0.2.128/25", "192.0.2.0/24", "-A "+ranges.Firewall) },
			want: []string{
				lbr + "external 192.0.2.77 → Mismatch: SourceRangesMismatch",
				lbr2 + "external 192.0.2.77 → Mismatch: SourceRangesMismatch",
			},
		},
		{
			name: "the firewall's DROP removed",
			do:   func(w *capturedNode) { w.drop(v4, "-A KUBE-PROXY-FIREWALL", "203.0.113.11/32") },
			want: []string{
				lbr + "external 192.0.2.77 → Mismatch: SourceRangesMismatch", lbr + "node → Mismatch: SourceRangesMismatch",
			},
		},
		{name: "externalTrafficPolicy now Cluster", do: func(w *capturedNode) {
			w.service("shop/np-etp-local").Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
		}, want: []string{"shop/np-etp-local NodePort 10.77.0.11:30082/TCP from external → Mismatch: TrafficPolicyMismatch"}},
		{name: "externalTrafficPolicy now Local", do: func(w *capturedNode) {
			w.service("shop/np").Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}, want: []string{np + "10.77.0.11:30080/TCP from external → Mismatch: TrafficPolicyMismatch"}},
		{name: "internalTrafficPolicy now Local", do: func(w *capturedNode) {
			w.service("shop/ep3").Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
		}, want: both(ep3, "Mismatch: TrafficPolicyMismatch")},
		{
			name: "a no-local-endpoints DROP removed",
			do:   func(w *capturedNode) { w.drop(v4, "shop/np-etp-local-none has no local endpoints") },
			want: []string{
				"shop/np-etp-local-none NodePort 10.77.0.11:30083/TCP from external → Mismatch: AcceptedWithoutEndpoints",
			},
		},
		{
			name: "PREROUTING does not lead to kube-proxy",
			do:   func(w *capturedNode) { w.drop(v4, "-A PREROUTING", "KUBE-SERVICES") },
			all: every(func(path, was string) string {
				if was != string(report.Match) || isV6(path) || strings.HasSuffix(path, "node") {
					return ""
				}
				return "Mismatch: NotProgrammed"
			}),
		},
		{
			name: "the jump to the NodePorts removed",
			do:   func(w *capturedNode) { w.drop(v4, "-A KUBE-SERVICES", "-j KUBE-NODEPORTS") },
			all: every(func(path, was string) string {
				if was != string(report.Match) || isV6(path) || !strings.Contains(path, " NodePort ") {
					return ""
				}
				return "Mismatch: ServiceNotProgrammed"
			}),
		},
		{
			name: "no IPv6 rules",
			do:   func(w *capturedNode) { w.files[v6] = emptyTables6 },
			all: every(func(path, was string) string {
				return gone(path, was, isV6(path), "FamilyMissing", "FamilyMissing IPv6")
			}),
		},
		{
			name: "no IPv4 rules",
			do:   func(w *capturedNode) { w.files[v4] = emptyTables },
			all: every(func(path, was string) string {
				return gone(path, was, !isV6(path), "FamilyMissing", "FamilyMissing IPv4")
			}),
		},
		{
			name: "iptables -F of all tables, which leaves the chains",
			do:   func(w *capturedNode) { w.drop(v4, "-A ") },
			all: every(func(path, was string) string {
				return gone(path, was, !isV6(path), "NotProgrammed", "NotProgrammed IPv4")
			}),
		},
		{
			name: "no rules at all",
			do:   func(w *capturedNode) { w.files[v4], w.files[v6] = emptyTables, emptyTables6 },
			all: every(func(path, was string) string {
				return gone(path, was, true, "NotProgrammed", "NotProgrammed IPv4; NotProgrammed IPv6")
			}),
		},
		{name: "a hostPort on the NodePort", do: func(w *capturedNode) {
			w.first(v4, "nat", "PREROUTING", "-p tcp -m tcp --dport 30080 -j DNAT --to-destination 10.244.1.200:80")
		}, want: []string{np + "10.77.0.11:30080/TCP from external → Mismatch: Shadowed"}},
		{
			name: "a REDIRECT of the ClusterIP", do: func(w *capturedNode) {
				w.first(v4, "nat", "OUTPUT", "-d 10.96.77.154/32 -p tcp -j REDIRECT --to-ports 15001")
			},
			want: []string{ep3 + "node → Mismatch: Shadowed"},
		},
		{name: "a rule that stands twice", do: func(w *capturedNode) {
			w.edit(v4, func(l string) []string {
				if has(l, "-A KUBE-SERVICES", "-j "+svcEp3.Cluster) {
					return []string{l, l}
				}
				return []string{l}
			})
		}, want: []string{"node → DuplicateRules nat KUBE-SERVICES"}},
		{name: "the jump to kube-proxy's rules stands twice", do: func(w *capturedNode) {
			w.first(v4, "nat", "PREROUTING", "-j KUBE-SERVICES")
			w.first(v4, "nat", "PREROUTING", "-j KUBE-SERVICES")
		}, want: []string{"node → DuplicateRules nat PREROUTING"}},
		{name: "a DNAT to :0", do: func(w *capturedNode) {
			w.replace(v4, "--to-destination 10.244.2.20:8080", "--to-destination :0 --persistent", "--to-destination")
		}, want: both(ep3, "Unknown: BrokenRule "+w.sep(ep3Port, "10.244.2.20:8080"))},
		{
			name: "an unknown match before", do: func(w *capturedNode) {
				w.first(v4, "filter", "FORWARD", "-d 10.244.2.20/32 -m fancy --magic 7 -j DROP")
			},
			want: []string{ep3 + "pod → Unknown"},
		},
		{
			name: "an unknown match that does not matter",
			do:   func(w *capturedNode) { w.first(v4, "filter", "FORWARD", "-m fancy --magic 7 -j LOG") },
		},
		{
			name: "an unknown target",
			do:   func(w *capturedNode) { w.first(v4, "mangle", "PREROUTING", "-d 10.96.77.154/32 -j MAGIC --level 7") },
			want: []string{ep3 + "pod → Unknown"},
		},
		{name: "a chain that nothing leads to", do: func(w *capturedNode) {
			w.replace(
				v4,
				":KUBE-SERVICES - [0:0]",
				":KUBE-SERVICES - [0:0]\n:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]",
				":KUBE-SERVICES",
			)
		}, want: []string{"node → OrphanChain KUBE-SVC-AAAAAAAAAAAAAAAA"}},
		{name: "another pod network in the configuration", do: func(w *capturedNode) {
			w.files["configz.json"] = bytes.Replace(w.files["configz.json"], []byte("10.244.0.0/16"), []byte("10.99.0.0/16"), 1)
		}, all: every(func(path, was string) string {
			if was != string(report.Match) || isV6(path) || !strings.HasSuffix(path, "pod") {
				return ""
			}
			return "Mismatch: WrongMasquerade *"
		})},
		{
			name: "another load-balancer IP",
			do:   func(w *capturedNode) { w.service("shop/lb").Status.LoadBalancer.Ingress[0].IP = "203.0.113.200" },
			want: []string{
				"node → StaleService shop/lb",
				"shop/lb LoadBalancerIP 203.0.113.200:80/TCP from external 192.0.2.77 → Mismatch: ServiceNotProgrammed",
				"shop/lb LoadBalancerIP 203.0.113.200:80/TCP from node → Mismatch: ServiceNotProgrammed",
				"shop/lb LoadBalancerIP 203.0.113.10:80/TCP from external 192.0.2.77 → gone",
				"shop/lb LoadBalancerIP 203.0.113.10:80/TCP from node → gone",
			},
		},
		{
			name: "a UDP Service's rule for TCP",
			do:   func(w *capturedNode) { w.replace(v4, "-p udp", "-p tcp", "-A KUBE-SERVICES", "shop/udp cluster IP") },
			want: append(
				both("shop/udp ClusterIP 10.96.178.81:53/UDP from ", "Mismatch: ServiceNotProgrammed"),
				"node → StaleService shop/udp",
			),
		},
		{name: "the ClusterIP exempt from tracking", do: func(w *capturedNode) {
			w.addTable(
				v4,
				"*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -d 10.96.77.154/32 -j CT --notrack\nCOMMIT\n",
			)
		}, want: []string{ep3 + "node → Mismatch: Shadowed"}},
		{name: "no route to an endpoint", do: func(w *capturedNode) {
			w.files["ip-route.json"] = []byte(
				`[{"dst":"default","gateway":"10.77.0.1","dev":"eth0"},{"dst":"10.77.0.0/24","dev":"eth0","prefsrc":"10.77.0.11"},{"type":"throw","dst":"10.244.2.20/32","dev":"lo"}]`,
			)
		}, want: both(ep3, "Mismatch: NoRoute 10.244.2.20:8080")},
		{name: "a route that swallows what goes to an endpoint", do: func(w *capturedNode) {
			w.files["ip-route.json"] = []byte(
				`[{"dst":"default","gateway":"10.77.0.1","dev":"eth0"},{"dst":"10.77.0.0/24","dev":"eth0","prefsrc":"10.77.0.11"},{"type":"blackhole","dst":"10.244.2.20/32","dev":"lo"}]`,
			)
		}, want: both(ep3, "Mismatch: RefusingRoute 10.244.2.20:8080")},
		{
			name: "two Services with one external IP", do: func(w *capturedNode) {
				w.service("shop/np").Spec.ExternalIPs = []string{"198.51.100.20"}
			},
			want: []string{
				"shop/extip ExternalIP 198.51.100.20:80/TCP from external → Warning: SharedFrontend shop/np",
				"shop/extip ExternalIP 198.51.100.20:80/TCP from node → Warning: SharedFrontend shop/np",
				"shop/np ExternalIP 198.51.100.20:80/TCP from external → Warning: SharedFrontend shop/extip",
				"shop/np ExternalIP 198.51.100.20:80/TCP from node → Warning: SharedFrontend shop/extip",
			},
		},
		{name: "docker's FORWARD chain lets Services through", do: func(w *capturedNode) {
			w.policy(v4, "filter", "FORWARD")
			w.last(v4, "filter", "-A FORWARD -s 10.244.0.0/16 -j ACCEPT")
			w.last(v4, "filter", "-A FORWARD -d 10.244.0.0/16 -j ACCEPT")
		}, all: every(func(path, was string) string {
			if strings.HasPrefix(path, "shop/lb-ranges LoadBalancerIP") || was != string(report.Match) {
				return ""
			}
			return ""
		})},
	}
}
