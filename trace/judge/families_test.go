// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// netdev is a table of a family whose chain drops every packet of UDP and TCP.
func netdev(family, hook, dev string) []byte {
	return fmt.Appendf(nil, `{"nftables":[{"metainfo":{"json_schema_version":1}},
		{"table":{"family":%[1]q,"name":"f"}},
		{"chain":{"family":%[1]q,"table":"f","name":"c","type":"filter","hook":%[2]q%[3]s,"prio":0,"policy":"accept"}},
		{"rule":{"family":%[1]q,"table":"f","chain":"c","expr":[
			{"match":{"op":"in","left":{"meta":{"key":"l4proto"}},"right":{"set":["tcp","udp"]}}},{"drop":null}]}}]}`,
		family, hook, dev)
}

// bridgeLinks are the node's interfaces, as ip -d shows them.
const bridgeLinks = `[{"ifname":"lo"},{"ifname":"eth0"},{"ifname":"cni0","linkinfo":{"info_kind":"bridge"}},
	{"ifname":"veth6946d7ba","master":"cni0","linkinfo":{"info_slave_kind":"bridge"}},
	{"ifname":"vethcb1e5ddb","master":"cni0","linkinfo":{"info_slave_kind":"bridge"}}]`

// What drops a pod's packets before IP meets them is found, and what may is Unknown; elsewhere nothing changes.
func TestHooksOfDevicesAndBridges(t *testing.T) {
	const file = "nft-ruleset.json"
	for _, c := range []struct {
		name    string
		do      func(w *capturedNode)
		verdict report.Verdict
		code    string
		says    string // of a finding
	}{
		{"netdev ingress of the bridge", func(w *capturedNode) {
			w.files[file] = netdev("netdev", "ingress", `,"dev":"cni0"`)
		}, report.Mismatch, Dropped, "nft netdev f c rule 1 drops it"},
		{"inet ingress of the bridge", func(w *capturedNode) {
			w.files[file] = netdev("inet", "ingress", `,"dev":["cni0","lo"]`)
		}, report.Mismatch, Dropped, "nft f c rule 1 drops it"},
		{"the bridge family", func(w *capturedNode) {
			w.files[file] = netdev("bridge", "prerouting", "")
		}, report.Mismatch, Dropped, "nft bridge f c rule 1 drops it"},
		{"ingress of one port of two", func(w *capturedNode) {
			w.files[file] = netdev("netdev", "ingress", `,"dev":"vethcb1e5ddb"`)
		}, report.Unknown, RuleNotEvaluated, "by which port of cni0 it goes is not known"},
		{"ingress of both ports", func(w *capturedNode) {
			w.files[file] = netdev("netdev", "ingress", `,"dev":["vethcb1e5ddb","veth6946d7ba"]`)
		}, report.Mismatch, Dropped, "nft netdev f c rule 1 drops it"},
		{"a listing without the devices", func(w *capturedNode) {
			w.files[file] = netdev("netdev", "ingress", "")
		}, report.Unknown, RuleNotEvaluated, "its devices are not in the listing"},
		{"ingress of another interface", func(w *capturedNode) {
			w.files[file] = netdev("netdev", "ingress", `,"dev":"eth9"`)
		}, report.Match, "", ""},
		{"ingress of the interface by which answers of other nodes come in", func(w *capturedNode) {
			w.files[file] = netdev("netdev", "ingress", `,"dev":"eth0"`)
		}, report.Mismatch, AnswerDropped, "drops the endpoint's answer"},
		{"a table of arp", func(w *capturedNode) { w.files[file] = netdev("arp", "input", "") }, report.Match, "", ""},
		{"a filter of tc", func(w *capturedNode) {
			w.files["programs.txt"] = []byte("tc cni0 ingress filter protocol all pref 1 bpf chain 0\n")
		}, report.Unknown, ProgramOnPath, "tc cni0 ingress rule 1 is on the packet's path"},
		{"a filter of tc at another interface", func(w *capturedNode) {
			w.files["programs.txt"] = []byte("tc eth1 ingress filter protocol all pref 1 bpf chain 0\n")
		}, report.Match, "", ""},
		{"a filter of tc for arp", func(w *capturedNode) {
			w.files["programs.txt"] = []byte("tc cni0 ingress filter protocol arp pref 1 u32 chain 0\n")
		}, report.Unknown, NeighbourLapses, "filters of tc decide, which are not rules"},
		{"a filter of tc for arp at another interface", func(w *capturedNode) {
			w.files["programs.txt"] = []byte("tc eth9 ingress filter protocol arp pref 1 u32 chain 0\n")
		}, report.Match, "", ""},
		{"an XDP program", func(w *capturedNode) {
			w.replace("ip-link.json", `{"ifname":"cni0",`, `{"ifname":"cni0","xdp":{"mode":2,"prog":{"id":7}},`)
		}, report.Unknown, ProgramOnPath, "xdp cni0 rule 1 is on the packet's path"},
		{"a rule of ebtables", func(w *capturedNode) {
			w.files["ebtables.txt"] = []byte("ebtables nat PREROUTING 1 rules policy accept\n")
		}, report.Unknown, ProgramOnPath, "rules of ebtables-legacy decide"},
		{"a program at connect", func(w *capturedNode) {
			w.files["programs.txt"] = []byte("cgroup connect4 program 7\n")
		}, report.Unknown, ProgramOnClient, "decides at connect4 about its connections"},
		{"a program at connect of all pods", func(w *capturedNode) {
			w.files["programs.txt"] = []byte("cgroup connect4 /kubepods.slice program 7\n")
		}, report.Unknown, ProgramOnClient, "decides at connect4"},
		{"a program of a service of the node", func(w *capturedNode) {
			w.files["programs.txt"] = []byte("cgroup egress /system.slice/systemd-logind.service program 7\n")
		}, report.Match, "", ""},
		{"a program for datagrams", func(w *capturedNode) {
			w.files["programs.txt"] = []byte("cgroup recvmsg4 program 7\ncgroup sendmsg4 /kubepods program 8\n")
		}, report.Match, "", ""},
		{"a program of netfilter", func(w *capturedNode) {
			w.files["programs.txt"] = []byte("netfilter ip prerouting -128 program 7\n")
		}, report.Unknown, ProgramOnPath, "bpf ip prerouting rule 1 is on the packet's path"},
		{"a policy of IPsec for others", func(w *capturedNode) {
			w.files["xfrm-policy.txt"] = []byte("src 192.0.2.0/24 dst 192.0.3.0/24\n\tdir out priority 1\n")
		}, report.Match, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := openCaptured(t, base("real-2node-iptables"))
			w.files["ip-link.json"] = []byte(bridgeLinks)
			c.do(w)
			w.judgesPods(t, c.verdict, c.code, c.says, func(f *report.Finding) string { return f.Message })
		})
	}
}

// judgesPods looks at the paths from pods to the Service kubernetes: each has the verdict, and, where there is a code,
// a finding with it that says something in the text of it.
func (w *capturedNode) judgesPods(
	t *testing.T, verdict report.Verdict, code, says string, text func(f *report.Finding) string,
) {
	t.Helper()
	seen := 0
	for _, p := range w.run().Paths {
		if p.Origin.Kind != "pod" || p.Frontend.Kind != "ClusterIP" || p.Service.Name != "kubernetes" {
			continue
		}
		seen++
		var said []string
		found := code == ""
		for i := range p.Findings {
			f := &p.Findings[i]
			said = append(said, f.Code+": "+f.Message)
			found = found || f.Code == code && strings.Contains(text(f), says)
		}
		if p.Verdict != verdict || !found {
			t.Errorf("%s:\n  %s", p.Verdict, strings.Join(said, "\n  "))
		}
	}
	if seen == 0 {
		t.Error("no such path")
	}
}
