// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/test/tenant"
	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// sample is a damaged node in which a kind of finding is found that neither a captured node nor a fault has.
type sample struct {
	code string
	base string // snapshot; "iptables" when empty
	do   func(w *capturedNode)
	from *From
	but  report.Severity // where it is not the one of the kind
}

// The cluster IP of shop/ep3 in the snapshots of iptables and nftables mode, and its endpoints.
var (
	ep3At        = netip.MustParseAddrPort("10.96.77.154:80")
	ep3Endpoints = []netip.AddrPort{
		netip.MustParseAddrPort("10.244.1.19:8080"), netip.MustParseAddrPort("10.244.2.20:8080"),
		netip.MustParseAddrPort("10.244.3.21:8080"),
	}
)

// probed puts beside a node what 20 connections to shop/ep3 showed, all the same, and one to each endpoint.
// With drops the first of these was traced, too.
func probed(result string, to netip.AddrPort, direct string, drops ...snapshot.Drop) func(w *capturedNode) {
	return func(w *capturedNode) {
		list := func(n int, result string, to netip.AddrPort) []snapshot.Probe {
			return slices.Repeat([]snapshot.Probe{{Result: result, Endpoint: to, Unreplied: result == snapshot.ProbeTimeout}}, n)
		}
		all := []snapshot.Probes{{
			ProbeTarget: snapshot.ProbeTarget{Protocol: "TCP", To: ep3At, Probes: 20}, List: list(20, result, to),
		}}
		if len(drops) > 0 {
			all[0].Traces = []snapshot.Trace{{Probe: all[0].List[0], Drops: drops}}
		}
		for _, e := range ep3Endpoints {
			all = append(all, snapshot.Probes{
				ProbeTarget: snapshot.ProbeTarget{Protocol: "TCP", To: e, Probes: 1}, List: list(1, direct, e),
			})
		}
		w.probing(&snapshot.Probing{Targets: all})
	}
}

func (w *capturedNode) probing(p *snapshot.Probing) {
	data, err := json.Marshal(p)
	if err != nil {
		w.t.Fatal(err)
	}
	w.files[snapshot.ProbesFile] = data
}

// dnsCache makes of a node one with the node-local DNS cache at the cluster IP of shop/udp.
func (w *capturedNode) dnsCache() {
	w.addTable(v4, "*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"+
		"-A PREROUTING -d 10.96.178.81/32 -p udp -m udp --dport 53 -j CT --notrack\n"+
		"-A OUTPUT -d 10.96.178.81/32 -p udp -m udp --dport 53 -j CT --notrack\nCOMMIT\n")
	w.files["ip-addr.json"] = append(
		bytes.TrimSuffix(bytes.TrimSpace(w.files["ip-addr.json"]), []byte("]")),
		`,{"ifindex":99,"ifname":"nodelocaldns","flags":["NOARP"],"addr_info":[{"family":"inet","local":"10.96.178.81",`+
			`"prefixlen":32,"scope":"global"}]}]`...)
}

// samples are of the kernel's settings, of kube-proxy itself, and of what connections show.
func samples() []sample {
	const ok, refused, timeout = snapshot.ProbeConnected, snapshot.ProbeRefused, snapshot.ProbeTimeout
	var none netip.AddrPort
	a := ep3Endpoints[0]
	set := func(key, value string) func(*capturedNode) {
		return func(w *capturedNode) {
			w.files["ip-link.json"] = fmt.Appendf(nil, bridgedPod, true)
			w.set(key, value)
		}
	}
	health := func(failed int) func(*capturedNode) {
		return func(w *capturedNode) {
			w.queue()
			w.health(5*time.Minute, true)
			w.files["metrics.txt"] = fmt.Appendf(w.files["metrics.txt"],
				"kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family=\"IPv4\"} %d\n", failed)
		}
	}
	return []sample{
		{code: NotJudged, do: func(w *capturedNode) { w.cluster, w.files = tenant.Cases[2].Beside(w.cluster, w.files) }},
		{code: DiffersByPod, do: func(w *capturedNode) {
			w.withPods("10.244.1.200", "10.244.1.201")
			w.networkPolicy("-s 10.244.1.201/32")
		}},
		{code: endtoend.EndpointNotListening, do: func(w *capturedNode) {
			w.cluster.Pods = append(w.cluster.Pods, hostNetwork)
		}},
		{code: EndpointOfNoPod, do: func(w *capturedNode) {
			ended := hostNetwork.DeepCopy()
			ended.Status.Phase = corev1.PodFailed
			w.cluster.Pods = append(w.cluster.Pods, ended)
		}},
		{code: AddressOfTwoPods, do: func(w *capturedNode) {
			w.withPods("10.244.1.200", "10.244.1.200")
		}},
		{code: MirrorStale, do: func(w *capturedNode) {
			w.mirror([]string{"10.244.1.19", "10.244.2.20"})
		}},
		{code: NamedPortMissing, do: func(w *capturedNode) {
			w.namedPort(&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-old", Labels: map[string]string{"app": "web"}},
			})
		}},
		{code: SampleOnly, do: func(w *capturedNode) {
			w.noPods()
			w.networkPolicy("-s 10.244.1.201/32")
		}},
		{code: ConfigNotApplied, do: func(w *capturedNode) {
			delete(w.files, snapshot.ConfigzFile)
			w.replace(snapshot.ProxyConfigFile, "10.244.0.0/16", "10.0.0.0/8", "clusterCIDR")
		}},
		{code: ConfigUnknown, do: func(w *capturedNode) {
			silences[0].hush(w)
			w.drop(v4, "-A KUBE-SERVICES", "-j KUBE-NODEPORTS")
		}},
		{code: LeadsNowhere, base: "real-2node-iptables", do: (*capturedNode).byLo},
		{
			code: ConnectionForgotten, base: "real-2node-iptables",
			do: set("net/netfilter/nf_conntrack_tcp_timeout_syn_sent", "0"),
		},
		{code: ForwardingOff, base: "real-2node-iptables", do: set("net/ipv4/ip_forward", "0")},
		{code: BridgeNetfilterOff, base: "real-2node-iptables", do: set("net/bridge/bridge-nf-call-iptables", "0")},
		{code: RouteLocalnetOff, base: "real-2node-iptables", do: func(w *capturedNode) {
			for _, dev := range []string{"all", "cni0", "eth0"} {
				w.set("net/ipv4/conf/"+dev+"/route_localnet", "0")
			}
		}},
		{code: HairpinOff, base: "real-2node-iptables", do: func(w *capturedNode) {
			w.files["ip-link.json"] = fmt.Appendf(nil, bridgedPod, false)
		}, from: &From{Kind: expect.FromPod, Address: netip.MustParseAddr("10.244.1.3")}},
		{code: PortsIsolated, base: "real-2node-iptables", do: func(w *capturedNode) {
			w.files["ip-link.json"] = bytes.ReplaceAll(fmt.Appendf(nil, bridgedPod, true), []byte(`"hairpin":true`),
				[]byte(`"hairpin":true,"isolated":true`))
		}, from: &From{Kind: expect.FromPod, Address: netip.MustParseAddr("10.244.1.3")}},
		{code: BridgePortUnknown, base: "real-2node-iptables", do: (*capturedNode).twoPorts, from: &From{
			Kind: expect.FromPod, Address: netip.MustParseAddr("10.244.1.3"),
		}},
		{code: ProgramOnClient, do: func(w *capturedNode) {
			w.files[snapshot.ProgramsFile] = []byte("cgroup connect4 /kubepods program 7\n")
		}},
		{code: EvidenceUnreadable, do: func(w *capturedNode) {
			w.files[snapshot.ProgramsFile] = []byte("404 page not found\n")
		}},
		{code: AnswerDropped, do: func(w *capturedNode) {
			w.first(v4, "filter", "FORWARD", "-m conntrack --ctdir REPLY -j DROP")
		}},
		{code: AnswerLost, do: func(w *capturedNode) {
			w.raw("-A PREROUTING -s 10.244.1.0/24 -p tcp -m tcp --sport 8080 -j NOTRACK")
		}},
		{code: ConnectionCut, do: func(w *capturedNode) {
			w.first(v4, "filter", "FORWARD", "-m conntrack --ctstate ESTABLISHED --ctdir ORIGINAL -j DROP")
		}},
		{code: AnswerNotEvaluated, do: func(w *capturedNode) {
			w.first(v4, "filter", "FORWARD", "-m conntrack --ctstate ESTABLISHED -m length --length 0:60 -j DROP")
		}},
		{code: ReversePathFilter, base: "real-2node-iptables", do: func(w *capturedNode) {
			w.files["ip-link.json"] = fmt.Appendf(nil, bridgedPod, true)
			w.routing(byEth1, "")
		}, from: &From{Kind: expect.FromExternal, Address: netip.MustParseAddr("10.5.0.9")}},
		{code: ProcessNotTaken, do: func(w *capturedNode) {
			w.files["processes.txt"] = []byte("# 4711 kube-proxy: not taken for it, it runs as user 1000\n")
		}},
		{code: NewerKubeProxy, do: func(w *capturedNode) { w.says("v1.38.0") }},
		{code: expect.ReasonKubeProxyBug, base: "ipvs", do: func(w *capturedNode) {
			w.says("v1.28.0")
			w.oldIPVSFilter()
		}},
		{code: IPVSConntrackOff, base: "ipvs", do: func(w *capturedNode) { w.sysctl("net/ipv4/vs/conntrack", "0") }},

		{code: FewSourcePorts, do: func(w *capturedNode) {
			w.first(v4, "nat", "POSTROUTING", "-p tcp -j MASQUERADE --to-ports 40000")
		}},
		{code: FewClientPorts, do: func(w *capturedNode) {
			w.set("net/ipv4/ip_local_port_range", "40000\t40063")
			w.set("net/ipv4/ip_local_reserved_ports", "")
		}},
		{code: RuleNotEvaluated, do: func(w *capturedNode) {
			w.first(v4, "filter", "FORWARD", "-m bpf --object-pinned /sys/fs/bpf/guard -j DROP")
		}},
		{code: NodePortEphemeral, do: func(w *capturedNode) {
			w.set("net/ipv4/ip_local_port_range", "1024\t60999")
			w.set("net/ipv4/ip_local_reserved_ports", "")
		}},
		{code: NodePortsExposed, do: func(w *capturedNode) {
			w.replace("configz.json", `"nodePortAddresses":null`, `"nodePortAddresses":["10.77.0.0/16"]`)
		}},
		{code: NodeAddressCaptured, base: "ipvs", do: func(w *capturedNode) { w.bindVIP("10.77.0.12") }},
		{code: NodePortClash, base: "ipvs", do: func(w *capturedNode) { w.ipvsPort("30080", 30080) }},
		{code: HintsIgnored, do: func(w *capturedNode) { w.zones("d", "b", "c"); w.hinted("a", "b", "c") }},
		{code: LoadBalancerBypassed, do: func(w *capturedNode) {
			w.service("shop/lb").Annotations = map[string]string{"load-balancer.hetzner.cloud/uses-proxyprotocol": "true"}
		}},
		{code: HealthCheckNotServed, do: func(w *capturedNode) { w.drop("listen.txt", ":31000") }},
		{code: HealthCheckBlocked, do: func(w *capturedNode) {
			w.first(v4, "filter", "INPUT", "-p tcp -m tcp --dport 31000 -j DROP")
		}},
		{code: HealthCheckStale, do: func(w *capturedNode) {
			w.replace("listen.txt", ":31000", ":31077", ":31000")
		}},
		{code: TwoProxies, do: func(w *capturedNode) { w.link("bpfin.cali") }},
		{code: ProgramOnPath, do: func(w *capturedNode) {
			w.files["programs.txt"] = []byte("netfilter ip prerouting -128 program 7\n")
		}},
		{code: NoCarrier, base: "real-2node-iptables", do: func(w *capturedNode) {
			w.edit("ip-addr.json", oneLine(`"ifname":"eth0","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"]`,
				`"ifname":"eth0","flags":["NO-CARRIER","BROADCAST","MULTICAST","UP"]`))
		}},
		{code: WrongNeighbour, base: "real-2node-iptables", do: func(w *capturedNode) {
			w.flannel()
			w.layer2("10.244.2.0", "flannel.1", `"lladdr":"02:00:00:00:00:99","state":["PERMANENT"]`, "02:00:00:00:00:99",
				"10.77.0.12")
		}},
		{code: NoTunnelEnd, base: "real-2node-iptables", do: func(w *capturedNode) {
			w.flannel()
			w.layer2("10.244.2.0", "flannel.1", `"lladdr":"02:00:00:00:00:02","state":["PERMANENT"]`, "02:00:00:00:00:03",
				"10.77.0.13")
		}},
		{code: TunnelPacketsDropped, base: "real-2node-iptables", do: func(w *capturedNode) {
			w.tunnelled()
			w.first(v4, "filter", "OUTPUT", "-p udp -m udp --dport 8472 -j DROP")
		}},
		{code: NeighbourFailed, base: "real-2node-iptables", do: func(w *capturedNode) {
			w.layer2("10.77.0.12", "eth0", `"state":["FAILED"]`, "02:00:00:00:00:02", "10.77.0.12")
		}},
		{code: BridgeVLANs, base: "real-2node-iptables", do: func(w *capturedNode) {
			w.files[snapshot.LinkFile] = []byte(`[{"ifname":"cni0","linkinfo":{"info_kind":"bridge",` +
				`"info_data":{"vlan_filtering":1}}}]`)
		}},
		{code: MTUTooSmall, base: "real-2node-iptables", do: (*capturedNode).flannel},
		{code: endtoend.PMTUBlackHole, base: "real-2node-iptables", do: func(w *capturedNode) {
			w.flannel()
			w.first(v4, "filter", "OUTPUT", "-p icmp -j DROP")
		}},
		{code: NotProgrammed, do: (*capturedNode).flush},
		{code: FamilyMissing, do: func(w *capturedNode) { w.files[v6] = emptyTables6 }},
		{code: KubeProxyDown, do: func(w *capturedNode) { w.stop() }},
		{code: KubeProxyUnhealthy, do: health(0)},
		{code: NotSyncing, do: health(0)},
		{code: RestoreFailing, do: health(17)},
		{code: NodeLeaving, do: func(w *capturedNode) {
			w.health(time.Second, false)
			w.replace("healthz.json", `"nodeEligible":true`, `"nodeEligible":false`)
		}},
		{code: ModeMismatch, do: func(w *capturedNode) {
			w.edit("configz.json", oneLine(`"mode":"iptables"`, `"mode":"ipvs"`))
		}},
		{code: Replaced, do: func(w *capturedNode) { w.stop(); w.flush(); w.link("cilium_host") }},
		{code: NodeLocalDNS, do: (*capturedNode).dnsCache},
		{code: ProxyNotListening, base: "nftables", do: func(w *capturedNode) {
			w.localhostNodePorts()
			w.files["listen.txt"] = []byte("tcp LISTEN 0 4096 127.0.0.1:22 0.0.0.0:* users:((\"sshd\",pid=1,fd=3))\n")
		}},
		{code: expect.ReasonNodePortAddress, base: "nftables", do: func(w *capturedNode) {
			w.localhostNodePorts() // which serves TCP alone
			w.foreign("ip", "filter", "output", "0", `{"match":{"op":"==","left":{"payload":{"protocol":"ip","field":"daddr"}},`+
				`"right":"127.0.0.1"}}, {"match":{"op":"==","left":{"meta":{"key":"l4proto"}},"right":"udp"}}, {"reject":null}`)
		}},
		{code: Programmed, do: func(w *capturedNode) {
			w.table(v4, "nat", func(l string) []string {
				switch l {
				case "*nat":
					return []string{l, ":SVCPROXY-0123abcd-NAT - [0:0]"}
				case "COMMIT":
					return []string{
						"-A SVCPROXY-0123abcd-NAT -d 10.96.77.154/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination " + a.String(), l,
					}
				}
				return []string{l}
			})
			w.first(v4, "nat", "OUTPUT", "-j SVCPROXY-0123abcd-NAT")
		}},

		{code: ConntrackStale, do: func(w *capturedNode) {
			w.files["conntrack.txt"] = []byte(entry("udp", "", "10.244.1.5:40000", "10.96.178.81:53", "10.244.9.9:5353"))
		}},
		{code: ConntrackFull, do: func(w *capturedNode) {
			w.replace("sysctl.txt", "nf_conntrack_count=3", "nf_conntrack_count=262144")
		}},
		{code: ConntrackFull, do: func(w *capturedNode) {
			w.replace("sysctl.txt", "nf_conntrack_count=3", "nf_conntrack_count=250000")
		}, but: report.Warn},
		{code: ConntrackInvalid, do: func(w *capturedNode) {
			w.probing(&snapshot.Probing{Tracked: &snapshot.Tracked{Seconds: 2, InsertFailed: 1}})
		}},
		{code: ConntrackInvalid, do: func(w *capturedNode) {
			w.probing(&snapshot.Probing{Tracked: &snapshot.Tracked{Seconds: 2, Invalid: 1}})
		}, but: report.Info},
		{code: EndpointRefused, do: probed(refused, none, refused)},
		{code: EndpointTimeout, do: probed(timeout, a, timeout)},
		{code: EndpointReachableDirectly, do: probed(timeout, a, ok)},
		{code: EndpointUnreachable, do: probed(snapshot.ProbeNoRoute, a, snapshot.ProbeNoRoute)},
		{code: EndpointSilent, do: probed(snapshot.ProbeSilent, a, snapshot.ProbeSilent)},
		{code: DataNotAcknowledged, do: probed(snapshot.ProbeUnacknowledged, a, snapshot.ProbeUnacknowledged)},
		{code: PacketDropped, do: probed(timeout, a, ok, snapshot.Drop{Reason: "IP_RPFILTER"})},
		{code: WalkDisagrees, do: probed(ok, netip.MustParseAddrPort("10.9.9.9:1"), ok)},
		{code: ObservedSkew, do: probed(ok, a, ok)},
	}
}

// codesIn adds the codes of a report, each with its severities.
func codesIn(found map[string][]report.Severity, r *report.NodeReport) {
	add := func(list []report.Finding) {
		for i := range list {
			f := &list[i]
			if !slices.Contains(found[f.Code], f.Severity) {
				found[f.Code] = append(found[f.Code], f.Severity)
			}
		}
	}
	add(r.Findings)
	for i := range r.Paths {
		add(r.Paths[i].Findings)
	}
}

// TestEveryKindIsFound: each registered kind of finding is found in a captured node, in one with a fault, or in one of
// the samples, with the severity that it is registered with, and says who finds it.
func TestEveryKindIsFound(t *testing.T) {
	found := map[string][]report.Severity{}
	for _, name := range []string{"iptables", "nftables", "ipvs"} {
		r := openCaptured(t, name).run()
		codesIn(found, &r)
	}
	// What is confirmed by a second reading: the fault is gone, and another one is there.
	first, second := openCaptured(t, "iptables").run(), openCaptured(t, "iptables")
	second.drop(v4, "-A KUBE-SERVICES", "shop/extip external IP")
	changed := second.run()
	Doubt(&first, &changed, "it keeps changing")
	codesIn(found, &changed)

	for _, s := range samples() {
		w := openCaptured(t, base(s.base))
		s.do(w)
		r := Files(w.cluster, snapshot.NewNode("node1", w.files), Request{
			Backwards: true, Matching: true, PerPathService: true, From: s.from,
		})
		here := map[string][]report.Severity{}
		codesIn(here, &r)
		want := s.but
		if want == "" {
			want = kinds[s.code].severity
		}
		if !slices.Contains(here[s.code], want) {
			t.Errorf("%s is not found, or not as %s: %v %s", s.code, want, here, r.Error)
		}
		codesIn(found, &r)
	}
	for _, s := range append(placements(), droppedARP("arp", "input", ofARP("operation", "reply"), ""),
		droppedARP("arp", "input", ofARP("operation", "reply"), entryFailed)) {
		r := s.report(t)
		codesIn(found, r)
	}
	_, other := reportRecorded(t, filepath.Join(recordedFaults, "iptables-neighbours",
		"a-failed-neighbour-entry-of-an-address-that-nobody-uses.fault"),
		map[string]func(string) string{"ip-neigh.json": instead(entryOfNode, entryOfOther)},
		func(req *Request) {
			req.Others = func(Owner) (*snapshot.Node, error) {
				return ownLinks("node2", "10.79.0.12/24", "02:00:00:00:00:12"), nil
			}
		})
	codesIn(found, other)
	_, lost := reportRecorded(t, filepath.Join(recordedFaults, "iptables-neighbours",
		"a-neighbour-entry-of-another-node-that-is-wrong-for-good.fault"),
		map[string]func(string) string{"ip-route.json": instead(`"dst":"10.245.0.0/24"`, `"dst":"10.246.0.0/24"`)})
	codesIn(found, lost)
	lists := []struct {
		base   string
		faults []fault
	}{
		{"iptables", faults(openCaptured(t, "iptables"))},
		{"ipvs", ipvsFaults()},
		{"nftables", nftFaults()},
		{"iptables", orphanFaults()},
		{"iptables", answerFaults()},
	}
	for _, code := range slices.Sorted(maps.Keys(kinds)) {
		k := kinds[code]
		if k.by == segments {
			continue // TestSegmentsBecomeFindings
		}
		for _, l := range lists {
			for i := range l.faults {
				if slices.Contains(found[code], k.severity) {
					break
				}
				if f := &l.faults[i]; strings.Contains(strings.Join(f.want, " "), code) {
					w := openCaptured(t, l.base)
					f.do(w)
					r := w.run()
					codesIn(found, &r)
				}
			}
		}
		if !slices.Contains(found[code], k.severity) {
			t.Errorf("no fault, sample or captured node has %s as %s: %v", code, k.severity, found[code])
		}
		if k.by == nil {
			t.Errorf("%s does not say who finds it", code)
		}
	}
}

// base is the snapshot of a fault.
func base(name string) string {
	if name == "" {
		return "iptables"
	}
	return name
}
