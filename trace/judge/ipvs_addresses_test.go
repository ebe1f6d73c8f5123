// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// bindVIP puts an address on kube-ipvs0.
func (w *capturedNode) bindVIP(address string) {
	w.files["ip-addr.json"] = append(bytes.TrimSuffix(bytes.TrimSpace(w.files["ip-addr.json"]), []byte("]")),
		`,{"ifindex":99,"ifname":"kube-ipvs0","flags":["BROADCAST","NOARP"],"addr_info":[{"family":"inet","local":"`+
			address+`","prefixlen":32,"scope":"global"}]}]`...)
}

// An address of another node on kube-ipvs0 keeps the node from that one; this node's own, and those of Services, do
// not.
func TestAddressesOfOtherNodesOnTheDeviceOfIPVSMode(t *testing.T) {
	const remedy = `kubectl -n shop patch service extip --type=merge ` +
		`-p '{"spec":{"externalIPs":["198.51.100.20","198.51.100.21"]}}'`
	for _, tt := range []struct {
		name, address  string
		asExternal     bool
		as             corev1.NodeAddressType
		want, commands string
	}{
		{name: "as captured"},
		{
			name: "another node's, as an external IP", address: "10.77.0.12", asExternal: true,
			want: "10.77.0.12", commands: remedy,
		},
		{name: "another node's, of no Service", address: "10.77.0.12", want: "10.77.0.12"},
		{name: "this node's own", address: "10.77.0.11", asExternal: true},
		{name: "one that no node has", address: "10.77.0.99", asExternal: true},
		{name: "an external address of a node", address: "10.77.0.12", asExternal: true, as: corev1.NodeExternalIP},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, "ipvs")
			if tt.address != "" {
				w.bindVIP(tt.address)
			}
			if tt.asExternal {
				svc := w.service("shop/extip")
				svc.Spec.ExternalIPs = append(svc.Spec.ExternalIPs, tt.address)
			}
			if tt.as != "" {
				for i, a := range w.cluster.Nodes[1].Status.Addresses {
					if a.Address == tt.address {
						w.cluster.Nodes[1].Status.Addresses[i].Type = tt.as
					}
				}
			}
			r := w.run()
			found := nodeFindings(&r, NodeAddressCaptured)
			if subjects(found) != tt.want {
				t.Fatalf("found %+v", found)
			}
			if len(found) == 0 {
				return
			}
			if found[0].Severity != report.Warn {
				t.Errorf("%+v", found[0])
			}
			line := ""
			if len(found[0].Commands) > 0 {
				line = found[0].Commands[0].Line
			}
			if line != tt.commands {
				t.Errorf("command %s, want %s", line, tt.commands)
			}
		})
	}
}

// ipvsPort gives the Service shop/ep3 another port, with what kube-proxy makes of that.
func (w *capturedNode) ipvsPort(port string, number int32) {
	was, now := []byte("10.96.180.79:80"), []byte("10.96.180.79:"+port)
	w.files["ipvsadm.txt"] = bytes.ReplaceAll(w.files["ipvsadm.txt"], was, now)
	was, now = []byte("10.96.180.79,tcp:80"), []byte("10.96.180.79,tcp:"+port)
	w.files["ipset-save.txt"] = bytes.ReplaceAll(w.files["ipset-save.txt"], was, now)
	w.service("shop/ep3").Spec.Ports[0].Port = number
}

// In ipvs mode the rules for a NodePort meet cluster IPs with a port of that number: the source is translated, which
// no restart changes, and which is no mismatch.
func TestAPortWithTheNumberOfANodePort(t *testing.T) {
	const path = "shop/ep3 ClusterIP 10.96.180.79:"
	for port, want := range map[int32][]string{
		30080: {
			path + "30080/TCP from node → Match",
			path + "30080/TCP from pod → Warning: NodePortClash TCP 10.96.180.79:30080",
			path + "80/TCP from node → gone", path + "80/TCP from pod → gone",
		},
		30053: { // a NodePort of UDP
			path + "30053/TCP from node → Match", path + "30053/TCP from pod → Match",
			path + "80/TCP from node → gone", path + "80/TCP from pod → gone",
		},
	} {
		w := openCaptured(t, "ipvs")
		before := facts(w.run())
		w.ipvsPort(strconv.Itoa(int(port)), port)
		compareChanges(t, want, changes(before, facts(w.run())))
	}
	w := openCaptured(t, "ipvs")
	w.ipvsPort("30080", 30080)
	w.service("shop/np").Spec.Ports[0].NodePort = 30079 // the set has an entry that is nobody's
	if got := facts(w.run())[path+"30080/TCP from pod"]; !strings.Contains(got, "WrongMasquerade") {
		t.Errorf("without a NodePort of that number: %s", got)
	}
}
