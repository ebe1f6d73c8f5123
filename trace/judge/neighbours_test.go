// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// bridgedPods are the interfaces of a node with two pods on a bridge.
const bridgedPods = `[{"ifname":"cni0","flags":["UP"],"linkinfo":{"info_kind":"bridge"}},` +
	`{"ifname":"eth0","flags":["UP"]},{"ifname":"lo","flags":["UP","LOOPBACK"]},` +
	`{"ifname":"veth1","master":"cni0","link_netnsid":1,"flags":["UP"],"linkinfo":{"info_kind":"veth",` +
	`"info_slave_kind":"bridge","info_slave_data":{"hairpin":true,"state":"forwarding"}}},` +
	`{"ifname":"veth2","master":"cni0","link_netnsid":2,"flags":["UP"],"linkinfo":{"info_kind":"veth",` +
	`"info_slave_kind":"bridge","info_slave_data":{"hairpin":true,"state":"forwarding"}}}]`

// bridgedAddresses are the addresses of that node.
const bridgedAddresses = `[{"ifname":"lo","addr_info":[{"family":"inet","local":"127.0.0.1","prefixlen":8,` +
	`"scope":"host"}]},{"ifname":"eth0","addr_info":[{"family":"inet","local":"10.77.0.11","prefixlen":24,` +
	`"scope":"global"}]},{"ifname":"cni0","addr_info":[{"family":"inet","local":"10.244.1.1","prefixlen":24,` +
	`"scope":"global"}]}]`

const (
	standardRules = `{"priority":0,"src":"all","table":"local"},{"priority":32766,"src":"all","table":"main"},` +
		`{"priority":32767,"src":"all","table":"default"}`
	toClient = `,{"priority":100,"src":"all","dst":"10.244.1.2",%s"table":"100"}`
	byUplink = `{"dst":"10.244.1.2","dev":"eth0","table":"100","scope":"link","flags":[]},`
)

// The routes of a node to its own pods are for others than their neighbours on the bridge, and do not say where the
// pods are. Each case was made in a network namespace, with what connections did: a Match were those with a route of
// the answers by another interface; a Mismatch, though all connections worked, those of neighbours on the bridge
// and those with a rule for the node's own packets.
func TestRoutesToPodsOfTheNode(t *testing.T) {
	remote := []string{"10.244.2.2:8080", "10.244.2.3:8080"}
	for _, c := range []struct {
		name, routes, rule, filter string
		code                       string
		endpoints                  []string
		verdict                    report.Verdict
	}{
		{name: "as captured", verdict: report.Match},
		{
			name: "answers go by the uplink", routes: byUplink, rule: fmt.Sprintf(toClient, ""),
			// The client is an endpoint, too, and what it sends to itself goes by the uplink.
			code: AnswerLost, endpoints: slices.Insert(slices.Clone(remote), 0, "10.244.1.2:8080"),
			verdict: report.Mismatch,
		},
		{
			name: "answers go by the uplink, and requests are filtered for it", routes: byUplink,
			rule: fmt.Sprintf(toClient, ""), filter: "1", code: ReversePathFilter, verdict: report.Mismatch,
		},
		{
			name: "what the node sends goes by the uplink", routes: byUplink, rule: fmt.Sprintf(toClient, `"iif":"lo",`),
			verdict: report.Match,
		},
		{
			name: "answers from other nodes are refused", routes: `{"type":"blackhole","dst":"10.244.1.2","table":"100"},`,
			rule: fmt.Sprintf(toClient, `"ipproto":"tcp","sport":8080,`),
			code: AnswerLost, endpoints: remote, verdict: report.Mismatch,
		},
		{
			name:   "an endpoint of the node is routed to another node",
			routes: `{"dst":"10.244.1.3","gateway":"10.77.0.12","dev":"eth0","flags":[]},`,
			code:   PodsCutOff, verdict: report.Unknown,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := openCaptured(t, "real-2node-iptables")
			w.files["ip-link.json"], w.files["ip-addr.json"] = []byte(bridgedPods), []byte(bridgedAddresses)
			w.files["ip-rule.json"] = []byte(`[` + standardRules + c.rule + `]`)
			routes := strings.ReplaceAll(string(w.files["ip-route.json"]), `"flags":[]`, `"table":"main","flags":[]`)
			w.files["ip-route.json"] = []byte(strings.Replace(routes, "[", "["+c.routes, 1))
			for _, dev := range []string{"all", "cni0", "eth0"} {
				w.set("net/ipv4/conf/"+dev+"/rp_filter", "0")
				w.set("net/ipv4/conf/"+dev+"/src_valid_mark", "0")
			}
			if c.filter != "" {
				w.set("net/ipv4/conf/cni0/rp_filter", c.filter)
			}
			r := Files(w.cluster, snapshot.NewNode("node1", w.files), Request{
				Matching: true, PerPathService: true,
				From: &From{Kind: expect.FromPod, Address: netip.MustParseAddr("10.244.1.2")},
			})
			judged := 0
			for i := range r.Paths {
				p := &r.Paths[i]
				if p.Service.Name != "echo" || p.Frontend.Kind != "ClusterIP" {
					continue
				}
				judged++
				if p.Verdict != c.verdict {
					t.Errorf("%s: %s %+v", p.Frontend.Address, p.Verdict, p.Findings)
				}
				for _, f := range p.Findings {
					if f.Code == c.code && c.endpoints != nil && !slices.Equal(f.Endpoints, c.endpoints) {
						t.Errorf("%s of %v, want %v", f.Code, f.Endpoints, c.endpoints)
					}
					if f.Code == AnswerLost && c.name == "answers go by the uplink" && !strings.Contains(f.Remedy, "leads answers") {
						t.Errorf("the remedy of an answer that leaves elsewhere is %q", f.Remedy)
					}
				}
				if c.code != "" && !slices.Contains(p.Codes(), c.code) {
					t.Errorf("%v, want %s", p.Codes(), c.code)
				}
			}
			if judged == 0 {
				t.Error("no path is judged: " + r.Error)
			}
		})
	}
}
