// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// dnsListens are the sockets of a name server.
const dnsListens = "udp UNCONN 0 0 *:53 *:* users:((\"coredns\",pid=7,fd=3))\n" +
	"tcp LISTEN 0 4096 *:53 *:* users:((\"coredns\",pid=7,fd=4))\n"

// withServer gives the node a pod of the name server's Service, behind a veth, as the client's pod then is, too. The
// Service's other endpoint is on a node that is not read.
func (w *nameCase) withServer(listens string) map[string]string {
	w.t.Helper()
	merge := func(name string, add ...any) {
		var list []any
		if data := w.files[name]; data != nil {
			if err := json.Unmarshal(data, &list); err != nil {
				w.t.Fatal(err)
			}
		}
		data, err := json.Marshal(append(list, add...))
		if err != nil {
			w.t.Fatal(err)
		}
		w.files[name] = data
	}
	type object = map[string]any
	flags := []string{"BROADCAST", "UP", "LOWER_UP"}
	merge(snapshot.LinkFile, object{"ifindex": 1, "ifname": "lo", "flags": []string{"LOOPBACK", "UP", "LOWER_UP"}},
		object{"ifindex": 2, "ifname": "eth0", "flags": flags})
	for i, pod := range []struct{ dev, address string }{{"vethcli", "10.244.1.19"}, {"vethdns", "10.244.1.73"}} {
		merge(snapshot.LinkFile, object{
			"ifindex": 40 + i, "ifname": pod.dev, "link_index": 2, "link_netnsid": i, "flags": flags, "operstate": "UP",
			"linkinfo": object{"info_kind": "veth"},
		})
		merge(snapshot.AddrFile, object{
			"ifindex": 40 + i, "ifname": pod.dev, "flags": flags, // each end has the pods' gateway, as by the CNI plugin ptp
			"addr_info": []any{object{"family": "inet", "local": "10.244.1.1", "prefixlen": 32, "scope": "global"}},
		})
		merge(snapshot.RouteFile, object{"dst": pod.address, "dev": pod.dev, "scope": "link", "flags": []string{}})
	}
	// It also answers for the others of the pods' subnet.
	for _, dev := range []string{"vethcli", "vethdns"} {
		for _, line := range [][2]string{{"proxy_arp", "1"}, {"forwarding", "1"}, {"rp_filter", "0"}} {
			w.set("net/ipv4/conf/"+dev+"/"+line[0], line[1])
		}
	}
	link := func(peer string) string {
		return `[{"ifindex":1,"ifname":"lo","flags":["LOOPBACK","UP","LOWER_UP"]},{"ifindex":2,"ifname":"eth0","link_index":` +
			peer + `,"link_netnsid":0,"flags":["BROADCAST","UP","LOWER_UP"],"linkinfo":{"info_kind":"veth"}}]`
	}
	w.pod[snapshot.LinkFile] = link("40")
	server := maps.Clone(w.pod)
	delete(server, snapshot.ResolvConfFile)
	server[snapshot.LinkFile], server[snapshot.ListenFile] = link("41"), listens
	server[snapshot.PacketFile] = "sk RefCnt Type Proto Iface R Rmem User Inode\n"
	for _, name := range []string{snapshot.AddrFile, snapshot.RouteFile} {
		server[name] = strings.ReplaceAll(server[name], "10.244.1.19", "10.244.1.73")
	}
	return server
}

// Queries are followed to the endpoints of the name server's Service whose pods were read: what loses them there is
// found without asking, and what was not read is not claimed.
func TestNamesBeyondTheNode(t *testing.T) {
	wrong, right, unknown := report.SegmentWrong, report.SegmentRight, report.SegmentUnknown
	tcp, udp := strings.Index(dnsListens, "tcp"), 0
	const drop = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n" +
		"-A INPUT -p udp -m udp --dport 53 -j DROP\nCOMMIT\n"
	for _, c := range []struct {
		name    string
		listens string
		do      func(w *nameCase, server map[string]string) // nil: nothing is wrong
		unread  bool                                        // the server's pod
		verdict report.SegmentVerdict
		codes   string
		has     string
	}{
		{
			name: "it listens", listens: dnsListens, verdict: right,
			has: "UDP and TCP get into the pods of 1 of its 2 endpoints, and back; expected",
		},
		{
			name: "trap: its pod was not read", unread: true, verdict: right,
			has: "UDP and TCP get as far as node node1",
		},
		{
			name: "it does not listen", listens: "\n", verdict: wrong, codes: DNSServerUnreachable,
			has: "endpoint 10.244.1.73:53: pod shop/pod-68: nothing listens at 10.244.1.73:53 for UDP: connections are " +
				"refused (1 of 2 endpoints cannot be asked)",
		},
		{
			name: "it listens over UDP alone", listens: dnsListens[udp:tcp], verdict: unknown, codes: DNSOverTCPUnreachable,
			has: "UDP reaches the name server, TCP does not",
		},
		{
			name: "its pod drops", listens: dnsListens, verdict: wrong, codes: DNSServerUnreachable,
			has: "dropped by filter INPUT",
			do:  func(_ *nameCase, server map[string]string) { server[snapshot.IPTablesFile] = drop },
		},
		{
			name: "its pod has no route back", listens: dnsListens, verdict: wrong, codes: DNSServerUnreachable,
			has: "the answer: there is no usable route to 10.244.1.19", do: func(_ *nameCase, server map[string]string) {
				server[snapshot.RouteFile] = `[{"type":"blackhole","dst":"default","flags":[]}]`
			},
		},
		{
			name: "its rules could not be read", listens: dnsListens, verdict: unknown, codes: NameUnknown,
			has: "iptables-save.txt could not be read", do: func(_ *nameCase, server map[string]string) {
				server[snapshot.UnreadFile] = `{"iptables-save.txt":"permission denied"}`
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newNameCase(t, kubeletDNS+nameServer)
			server := w.withServer(c.listens)
			if c.do != nil {
				c.do(w, server)
			}
			if !c.unread {
				for name, text := range server {
					w.files["pods/shop_pod-68/"+name] = []byte(text)
				}
			}
			s, codes, _ := w.judged()
			if s.Verdict != c.verdict || strings.Join(codes, " ") != c.codes || !strings.Contains(s.Message, c.has) {
				t.Errorf("%v %+v", codes, s)
			}
		})
	}
}
