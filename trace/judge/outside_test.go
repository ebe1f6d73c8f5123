// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// TestAnswersToClientsOutside: a client outside has been asked for, or has asked, before it is answered: that the node
// does not know its next hop says nothing against it. Of an address that the node itself has nothing is certain, and no
// remedy takes it away.
func TestAnswersToClientsOutside(t *testing.T) {
	add := func(w *capturedNode, file, item string) {
		w.files[file] = []byte(strings.Replace(string(w.files[file]), "[", "["+item+",", 1))
	}
	docker := func(w *capturedNode) {
		add(w, snapshot.RouteFile, `{"dst":"172.17.0.0/16","dev":"docker0","protocol":"kernel","scope":"link",`+
			`"prefsrc":"172.17.0.1","flags":[]}`)
		add(w, snapshot.AddrFile, `{"ifindex":90,"ifname":"docker0","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],`+
			`"operstate":"UP","link_type":"ether","address":"02:42:00:00:00:01","addr_info":[{"family":"inet",`+
			`"local":"172.17.0.1","prefixlen":16,"scope":"global"}]}`)
		add(w, snapshot.LinkFile, `{"ifindex":90,"ifname":"docker0","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],`+
			`"mtu":1500,"operstate":"UP","link_type":"ether","address":"02:42:00:00:00:01","linkinfo":{"info_kind":"bridge",`+
			`"info_data":{"vlan_filtering":0}}},{"ifindex":91,"link_index":2,"ifname":"vethd0",`+
			`"flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],"mtu":1500,"master":"docker0","operstate":"UP",`+
			`"link_type":"ether","address":"02:42:00:00:00:02","link_netnsid":7,"linkinfo":{"info_kind":"veth",`+
			`"info_slave_kind":"bridge","info_slave_data":{"state":"forwarding"}}}`)
	}
	router := func(w *capturedNode) {
		add(w, snapshot.RouteFile, `{"dst":"10.50.0.0/16","gateway":"10.79.0.254","dev":"eth0","flags":[]}`)
	}
	for _, c := range []struct {
		name, from string
		do         func(w *capturedNode)
		want       report.Verdict
	}{
		{name: "behind the default gateway", from: "203.0.113.5", want: report.Match},
		{name: "another node", from: "10.79.0.12", want: report.Match},
		{name: "behind a router that was not needed lately", from: "10.50.1.2", do: router, want: report.Match},
		{name: "a container of the node that is no pod", from: "172.17.0.5", do: docker, want: report.Match},
		{name: "an address of the pods' bridge", from: "10.245.1.1", want: report.Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster, n := openSnapshot(t, "testdata/faults/iptables-neighbours/healthy", "node1")
			w := &capturedNode{t: t, cluster: cluster, files: snap.Files(t, n)}
			if c.do != nil {
				c.do(w)
			}
			r := Files(w.cluster, snapshot.NewNode("node1", w.files), Request{
				Matching: true, PerPathService: true,
				From: &From{Kind: expect.FromExternal, Address: netip.MustParseAddr(c.from)},
			})
			seen := 0
			for i := range r.Paths {
				p := &r.Paths[i]
				if p.Expected.Action != string(expect.DNAT) || p.Frontend.Kind != string(expect.NodePort) ||
					strings.Contains(p.Frontend.Address, ":") {
					continue
				}
				seen++
				if p.Verdict != c.want {
					t.Errorf("%s is %s, want %s: %+v", p.Frontend.Address, p.Verdict, c.want, p.Findings)
				}
				for _, f := range p.Findings {
					if slices.ContainsFunc(f.Commands, func(x report.Command) bool { return strings.Contains(x.Line, " del ") }) {
						t.Errorf("%s: %+v", f.Code, f.Commands)
					}
				}
			}
			if seen == 0 {
				t.Error("no NodePort was judged")
			}
		})
	}
}
