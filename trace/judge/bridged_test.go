// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// bridgedByIPVS makes the captured node of IPVS one whose pods are at a bridge.
func bridgedByIPVS(t *testing.T, hairpin bool) *capturedNode {
	t.Helper()
	w := openCaptured(t, "ipvs")
	port := func(name string) string {
		mode := "false"
		if hairpin {
			mode = "true"
		}
		return `{"ifname":"` + name + `","master":"cni0","link_netnsid":1,"linkinfo":{"info_kind":"veth",` +
			`"info_slave_kind":"bridge","info_slave_data":{"state":"forwarding","hairpin":` + mode + `,"isolated":false}}}`
	}
	w.files[snapshot.LinkFile] = []byte(`[{"ifname":"lo"},{"ifname":"eth0"},{"ifname":"kube-ipvs0"},` +
		`{"ifname":"cni0","linkinfo":{"info_kind":"bridge"}},` + port("veth1") + "," + port("veth2") + "]")
	w.files[snapshot.AddrFile] = []byte(strings.Replace(string(w.files[snapshot.AddrFile]), "[",
		`[{"ifname":"cni0","flags":["UP","LOWER_UP"],"addr_info":[{"family":"inet","local":"10.244.1.1","prefixlen":24,`+
			`"scope":"global"}]},`, 1))
	w.files[snapshot.RouteFile] = []byte(`[{"dst":"default","gateway":"10.77.0.1","dev":"eth0","flags":[]},` +
		`{"dst":"10.77.0.0/24","dev":"eth0","scope":"link","prefsrc":"10.77.0.11","flags":[]},` +
		`{"dst":"10.244.1.0/24","dev":"cni0","scope":"link","prefsrc":"10.244.1.1","flags":[]},` +
		`{"dst":"10.244.2.0/24","gateway":"10.77.0.12","dev":"eth0","flags":[]}]`)
	w.files[snapshot.RuleFile] = []byte(`[{"priority":0,"src":"all","table":"local"},` +
		`{"priority":32766,"src":"all","table":"main"},{"priority":32767,"src":"all","table":"default"}]`)
	w.set("net/bridge/bridge-nf-call-iptables", "1")
	w.set("net/ipv4/conf/cni0/forwarding", "1")
	return w
}

// TestIPVSOnABridge: a request to a virtual server is the node's own, which the bridge's own interface sends. Its
// answer is a frame of the endpoint's port, which the bridge forwards where it goes to a neighbour, or to an address
// that br_netfilter translates; and of that the route is asked.
func TestIPVSOnABridge(t *testing.T) {
	const itself, other = "10.244.1.32", "10.244.1.200"
	for _, c := range []struct {
		name, from        string
		hairpin           bool
		set               [2]string
		clusterIP, byNode string // the code of the finding; "" for none
	}{
		{"as it is", other, true, [2]string{"net/ipv4/ip_forward", "1"}, "", ""},
		{"as it is, for a pod that reaches itself", itself, true, [2]string{"net/ipv4/ip_forward", "1"}, "", ""},
		{
			"nothing is forwarded from the bridge", other, true,
			[2]string{"net/ipv4/conf/cni0/forwarding", "0"},
			"",
			ForwardingOff,
		},
		{
			"nothing is forwarded from the bridge, to itself", itself, true,
			[2]string{"net/ipv4/conf/cni0/forwarding", "0"},
			ForwardingOff, ForwardingOff,
		},
		{
			"no hairpin mode, and br_netfilter translates the answer", itself, false,
			[2]string{"net/ipv4/ip_forward", "1"},
			HairpinOff, HairpinOff,
		},
		{"no hairpin mode, and another pod", other, false, [2]string{"net/ipv4/ip_forward", "1"}, "", ""},
		{
			"no hairpin mode, and the node routes the answer", itself, false,
			[2]string{"net/bridge/bridge-nf-call-iptables", "0"},
			"", "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := bridgedByIPVS(t, c.hairpin)
			w.set(c.set[0], c.set[1])
			r := Files(w.cluster, snapshot.NewNode("node1", w.files), Request{
				Services: []types.NamespacedName{{Namespace: "shop", Name: "np"}}, Matching: true,
				From: &From{Kind: expect.FromPod, Address: netip.MustParseAddr(c.from)},
			})
			if len(r.Paths) < 2 {
				t.Fatalf("%d paths; %s", len(r.Paths), r.Error)
			}
			for i := range r.Paths {
				p := &r.Paths[i]
				var codes []string
				for _, f := range p.Findings {
					if f.Severity == report.Error {
						codes = append(codes, f.Code)
					}
				}
				want := c.clusterIP
				if p.Frontend.Kind != "ClusterIP" {
					want = c.byNode
				}
				if want == "" && len(codes) > 0 || want != "" && !slices.Equal(codes, []string{want}) {
					t.Errorf("%s: %v, want %q: %+v", p.Frontend.Kind, codes, want, p.Findings)
				}
			}
		})
	}
}
