// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// flannel makes of a node one that reaches the pods of node2 through a tunnel, with what the CNI sets for it.
func (w *capturedNode) flannel() {
	const tunnel = `{"ifname":"flannel.1","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],"mtu":1450,` +
		`"address":"02:00:00:00:00:01","addr_info":[{"family":"inet","local":"10.244.1.0","prefixlen":32,"scope":"global"}]},`
	w.files["ip-addr.json"] = []byte(strings.Replace(string(w.files["ip-addr.json"]), "[", "["+tunnel, 1))
	w.edit("ip-route.json", oneLine(
		`"gateway":"10.77.0.12","dev":"eth0"`, `"gateway":"10.244.2.0","dev":"flannel.1"`,
	))
	for _, o := range w.cluster.Nodes {
		if o.Name == "node2" {
			o.Annotations = map[string]string{
				snapshot.FlannelBackendType: "vxlan", snapshot.FlannelBackendData: `{"VNI":1,"VtepMAC":"02:00:00:00:00:02"}`, snapshot.FlannelPublicIP: "10.77.0.12",
			}
		}
	}
	w.layer2("10.244.2.0", "flannel.1", `"lladdr":"02:00:00:00:00:02","state":["PERMANENT"]`,
		"02:00:00:00:00:02", "10.77.0.12")
}

// tunnelled is flannel with the tunnel's own parameters.
func (w *capturedNode) tunnelled() {
	w.flannel()
	w.files[snapshot.LinkFile] = []byte(`[{"ifname":"flannel.1","flags":["UP"],"linkinfo":{"info_kind":"vxlan",` +
		`"info_data":{"id":1,"local":"10.77.0.11","port":8472}}}]`)
}

// layer2 gives a node a neighbour, and flannel.1 an entry of its forwarding table.
func (w *capturedNode) layer2(ip, dev, state, mac, end string) {
	w.files[snapshot.NeighbourFile] = []byte(`[{"dst":"` + ip + `","dev":"` + dev + `",` + state + `}]`)
	w.files[snapshot.BridgeFDBFile] = []byte(`[{"mac":"` + mac + `","ifname":"flannel.1","dst":"` + end +
		`","flags":["self"],"state":"permanent"}]`)
}

// The interface and the next hop of a path are judged by what contradicts them; what says nothing changes nothing.
func TestLayer2(t *testing.T) {
	const eth0, cni0 = "a6:fb:8a:95:57:5d", "ce:23:43:b7:59:aa"
	permanent := func(mac string) string { return `"lladdr":"` + mac + `","state":["PERMANENT"]` }
	for _, tt := range []struct {
		name   string
		do     func(w *capturedNode)
		want   string // code; "" for none
		away   bool   // paths to endpoints of the other node are meant, and no others
		unread bool   // a file that all paths depend on cannot be read
	}{
		{name: "as captured", do: func(*capturedNode) {}},
		{name: "a tunnel as it should be", do: (*capturedNode).flannel, want: "MTUTooSmall", away: true},
		{name: "another node's pods have a neighbour", do: func(w *capturedNode) {
			w.layer2("10.77.0.12", "eth0", `"lladdr":"02:00:00:00:00:12","state":["REACHABLE"]`, "02:00:00:00:00:02", "10.77.0.12")
		}},
		{name: "a permanent one that nothing contradicts", do: func(w *capturedNode) {
			w.layer2("10.77.0.12", "eth0", permanent("02:00:00:00:00:12"), "02:00:00:00:00:02", "10.77.0.12")
		}},
		{name: "the interface's own", do: func(w *capturedNode) {
			w.layer2("10.77.0.12", "eth0", permanent(eth0), "02:00:00:00:00:02", "10.77.0.12")
		}, want: WrongNeighbour, away: true},
		{name: "the interface's own, made by the kernel", do: func(w *capturedNode) {
			w.layer2("10.77.0.12", "eth0", `"lladdr":"`+eth0+`","state":["NOARP"]`, "02:00:00:00:00:02", "10.77.0.12")
		}},
		{name: "another interface's", do: func(w *capturedNode) {
			w.layer2("10.77.0.12", "eth0", permanent(cni0), "02:00:00:00:00:02", "10.77.0.12")
		}},
		{name: "nothing answers", do: func(w *capturedNode) {
			w.layer2("10.77.0.12", "eth0", `"state":["FAILED"]`, "02:00:00:00:00:02", "10.77.0.12")
		}, want: NeighbourFailed, away: true},
		{name: "someone else does not answer", do: func(w *capturedNode) {
			w.layer2("10.77.0.99", "eth0", `"state":["FAILED"]`, "02:00:00:00:00:02", "10.77.0.12")
		}},
		{name: "no carrier", do: func(w *capturedNode) {
			w.edit("ip-addr.json", oneLine(`"ifname":"eth0","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"]`,
				`"ifname":"eth0","flags":["NO-CARRIER","BROADCAST","MULTICAST","UP"]`))
		}, want: NoCarrier, away: true},
		{name: "it is dormant, and has a carrier", do: func(w *capturedNode) {
			w.edit("ip-addr.json", oneLine(`"ifname":"eth0","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"]`,
				`"ifname":"eth0","flags":["NO-CARRIER","BROADCAST","MULTICAST","UP","LOWER_UP","DORMANT"]`))
		}},
		{name: "another than flannel has noted", do: func(w *capturedNode) {
			w.flannel()
			w.layer2("10.244.2.0", "flannel.1", permanent("02:00:00:00:00:99"), "02:00:00:00:00:99", "10.77.0.12")
		}, want: WrongNeighbour, away: true},
		{name: "a tunnel without an entry", do: func(w *capturedNode) {
			w.flannel()
			w.layer2("10.244.2.0", "flannel.1", permanent("02:00:00:00:00:02"), "02:00:00:00:00:03", "10.77.0.13")
		}, want: NoTunnelEnd, away: true},
		{name: "a tunnel to another node", do: func(w *capturedNode) {
			w.flannel()
			w.layer2("10.244.2.0", "flannel.1", permanent("02:00:00:00:00:02"), "02:00:00:00:00:02", "10.77.0.11")
		}, want: NoTunnelEnd, away: true},
		{name: "a tunnel to an address that no Node has", do: func(w *capturedNode) {
			w.flannel()
			w.layer2("10.244.2.0", "flannel.1", permanent("02:00:00:00:00:02"), "02:00:00:00:00:02", "192.0.2.1")
		}, want: MTUTooSmall, away: true},
		{name: "the tunnel's packets are dropped", do: func(w *capturedNode) {
			w.tunnelled()
			w.first(v4, "filter", "OUTPUT", "-p udp -m udp --dport 8472 -j DROP")
		}, want: TunnelPacketsDropped, away: true},
		{name: "the packets of another tunnel are dropped", do: func(w *capturedNode) {
			w.tunnelled()
			w.first(v4, "filter", "OUTPUT", "-p udp -m udp --dport 4789 -j DROP")
		}, want: MTUTooSmall, away: true},
		{name: "what comes back in the tunnel is dropped", do: func(w *capturedNode) {
			w.tunnelled()
			w.first(v4, "filter", "INPUT", "-i eth0 -p udp -m udp --dport 8472 -j DROP")
		}, want: TunnelPacketsDropped, away: true},
		{name: "what comes back in the tunnel is dropped of one node alone", do: func(w *capturedNode) {
			w.tunnelled()
			w.first(v4, "filter", "INPUT", "-s 10.77.0.13/32 -p udp -m udp --dport 8472 -j DROP")
		}, want: MTUTooSmall, away: true},
		{name: "files that cannot be read", unread: true, do: func(w *capturedNode) {
			w.files[snapshot.NeighbourFile], w.files[snapshot.BridgeFDBFile] = []byte("[{"), []byte("<html>")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, "real-2node-iptables")
			tt.do(w)
			r := w.run()
			if r.Error != "" {
				t.Fatal(r.Error)
			}
			found, matched := map[string]bool{}, 0
			for i := range r.Paths {
				p := &r.Paths[i]
				if p.Verdict == "Match" {
					matched++
				}
				for _, f := range p.Findings {
					if !slices.Contains(
						[]string{NoCarrier, WrongNeighbour, NoTunnelEnd, TunnelPacketsDropped, NeighbourFailed, MTUTooSmall}, f.Code) {
						continue
					}
					found[f.Code] = true
					if tt.away && slices.ContainsFunc(f.Endpoints, func(e string) bool { return strings.HasPrefix(e, "10.244.1.") }) {
						t.Errorf("%s: %s %v", pathKey(p), f.Code, f.Endpoints)
					}
				}
			}
			if tt.want == "" && len(found) > 0 || tt.want != "" && !found[tt.want] || len(found) > 2 {
				t.Errorf("found %v, want %q", found, tt.want)
			}
			// Every Service has an endpoint behind eth0, and all paths have a next hop.
			if none := tt.want == NoCarrier || tt.unread; none != (matched == 0) {
				t.Errorf("%d paths match", matched)
			}
		})
	}
}
