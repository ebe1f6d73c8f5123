// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// A pod that has the link-layer address of another one behind the same bridge sends to that one: what goes to its own
// client is not unknown for that, and what goes to anybody else is.
func TestAPodAnswersOneBesideIt(t *testing.T) {
	load := func(links, addrs, neighbours string) *nodestate.State {
		t.Helper()
		s, err := nodestate.Load(snapshot.NewNode("node1", map[string][]byte{
			snapshot.LinkFile: []byte(links), snapshot.AddrFile: []byte(addrs), "ip-neigh.json": []byte(neighbours),
		}))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	link := func(index, peer int, name, mac, more string) string {
		return fmt.Sprintf(`{"ifindex":%d,"link_index":%d,"ifname":%q,"address":%q,"flags":["UP"],`+
			`"linkinfo":{"info_kind":"veth"}%s}`, index, peer, name, mac, more)
	}
	addr := func(index int, dev, ip string) string {
		return fmt.Sprintf(`{"ifindex":%d,"ifname":%q,"addr_info":[{"family":"inet","local":%q,"prefixlen":24}]}`, index,
			dev, ip)
	}
	const clientMAC, podMAC = "02:00:00:00:01:04", "02:00:00:00:01:03"
	node := func(second string) *Node {
		return &Node{State: load("["+strings.Join([]string{
			link(2, 9, "veth1", "02:00:00:00:00:02", `,"master":"cni0"`),
			link(3, 8, "veth2", "02:00:00:00:00:03", `,"master":"`+second+`"`),
			`{"ifindex":4,"ifname":"cni0","address":"02:00:00:00:00:04","flags":["UP"],"linkinfo":{"info_kind":"bridge"}}`,
		}, ",")+"]", "["+addr(4, "cni0", "10.244.1.1")+"]", "[]")}
	}
	client := load("["+link(8, 3, "eth0", clientMAC, "")+"]", "["+addr(8, "eth0", "10.244.1.4")+"]", "[]")
	for _, tt := range []struct {
		name, mac, second string
		beside            *nodestate.State
		ok                bool
	}{
		{"the client's own address", clientMAC, "cni0", client, true},
		{"another one's address", "02:00:00:00:01:05", "cni0", client, false},
		{"a client of which nothing was read", clientMAC, "cni0", nil, false},
		{"a client behind another bridge", clientMAC, "cni1", client, false},
	} {
		pod := load("["+link(9, 2, "eth0", podMAC, "")+"]", "["+addr(9, "eth0", "10.244.1.3")+"]",
			`[{"dst":"10.244.1.4","dev":"eth0","lladdr":"`+tt.mac+`","state":["REACHABLE"]}]`)
		v := &veth{
			pod: pod, node: node(tt.second), segment: report.SegmentAnswer, place: "pod shop/web", podPlace: "pod shop/web",
			beside: tt.beside,
		}
		s, in, ok := v.leavesPod(&netfilter.Packet{
			Family: netfilter.IPv4, Out: "eth0", Src: netip.MustParseAddr("10.244.1.3"), Dst: netip.MustParseAddr("10.244.1.4"),
		})
		if ok != tt.ok || in != "cni0" || !ok && s.Verdict != report.SegmentUnknown {
			t.Errorf("%s: %v %q %+v", tt.name, ok, in, s)
		}
	}
}

// A frame that a bridge translates between two of its ports has the sender's link-layer address, and not the bridge's.
func TestAFrameWithinABridge(t *testing.T) {
	const podMAC, senderMAC, bridgeMAC = "02:00:00:00:01:03", "02:00:00:00:01:04", "02:00:00:00:00:04"
	load := func(files map[string]string) *nodestate.State {
		t.Helper()
		all := map[string][]byte{}
		for name, text := range files {
			all[name] = []byte(text)
		}
		s, err := nodestate.Load(snapshot.NewNode("node1", all))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, c := range []struct {
		name, calls, came, sender, takes string
		verdict                          report.SegmentVerdict
	}{
		{"routed, taken", "1", "eth0", "", bridgeMAC, ""},
		{"routed, not taken", "1", "eth0", "", senderMAC, report.SegmentWrong},
		{"bridged, the bridge's alone is taken", "1", "cni0", senderMAC, bridgeMAC, report.SegmentUnknown},
		{"bridged, the sender's alone is taken", "1", "cni0", senderMAC, senderMAC, report.SegmentUnknown},
		{"bridged, neither is taken", "1", "cni0", senderMAC, "02:00:00:00:77:77", report.SegmentWrong},
		{"bridged, both are taken", "1", "cni0", senderMAC, bridgeMAC + `","` + senderMAC, ""},
		{"bridged, from one that was not read", "1", "cni0", "", bridgeMAC, report.SegmentUnknown},
		{"translated without the bridge", "0", "cni0", senderMAC, bridgeMAC, ""},
	} {
		node := load(map[string]string{
			snapshot.LinkFile: `[{"ifindex":2,"link_index":9,"ifname":"veth1","address":"02:00:00:00:00:02","flags":["UP"],
				"master":"cni0","linkinfo":{"info_kind":"veth"}},{"ifindex":4,"ifname":"cni0","address":"` + bridgeMAC + `",
				"flags":["UP"],"linkinfo":{"info_kind":"bridge"}}]`,
			"sysctl.txt": "net/bridge/bridge-nf-call-iptables=" + c.calls + "\n",
		})
		pod := load(map[string]string{
			snapshot.LinkFile: `[{"ifindex":9,"link_index":2,"ifname":"eth0","address":"02:00:00:00:01:09","flags":["UP"],
				"linkinfo":{"info_kind":"veth"}},{"ifindex":10,"link":"eth0","ifname":"mv0","address":"` + podMAC + `",
				"flags":["UP"],"linkinfo":{"info_kind":"macvlan","info_data":{"mode":"source",
				"macaddr_data":["` + c.takes + `"]}}}]`,
		})
		v := &veth{
			pod: pod, node: &Node{State: node}, dev: "mv0", pair: "eth0", end: "veth1", podPlace: "pod shop/web",
			segment: report.SegmentEndpointNode, noRoute: EndpointNodeNoRoute, came: c.came, sender: c.sender,
		}
		s, ok := v.takenFromSender(&netfilter.Packet{
			Family: netfilter.IPv4, Out: "cni0", Dst: netip.MustParseAddr("10.244.1.3"), DNAT: true,
		})
		if s.Verdict != c.verdict || ok != (c.verdict == "") {
			t.Errorf("%s: %v %+v", c.name, ok, s)
		}
	}
}
