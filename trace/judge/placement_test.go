// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// placed is a recorded fault of routes and neighbours, with files that were changed, and what is said of it.
type placed struct {
	name, fault string
	edit        map[string]func(string) string
	want        report.Verdict
	codes       []string // of the path's findings
}

// report judges it.
func (p *placed) report(t *testing.T) *report.NodeReport {
	t.Helper()
	_, r := reportRecorded(t, filepath.Join(recordedFaults, "iptables-neighbours", p.fault+".fault"), p.edit)
	return r
}

// instead replaces a text once.
func instead(was, is string) func(string) string {
	return func(text string) string { return strings.Replace(text, was, is, 1) }
}

// The addresses of the recorded node: an endpoint of another node, and that node.
const (
	awayEndpoint = "10.245.0.4"
	client       = "10.245.1.6"
	wrongMAC     = "02:00:00:00:00:99"
)

// disabled makes the state of a bridge's port another than forwarding.
func disabled(port string) func(string) string {
	return func(text string) string {
		before, after, _ := strings.Cut(text, `"ifname":"`+port+`"`)
		return before + `"ifname":"` + port + `"` + strings.Replace(after, `"state":"forwarding"`, `"state":"disabled"`, 1)
	}
}

// locked makes a bridge's port one that takes frames from known addresses alone.
func locked(port string) func(string) string {
	return func(text string) string {
		before, after, _ := strings.Cut(text, `"ifname":"`+port+`"`)
		return before + `"ifname":"` + port + `"` + strings.Replace(after, `"locked":false`, `"locked":true`, 1)
	}
}

func placements() []placed {
	const (
		nobody   = "a-next-hop-that-is-nobody"
		half     = "half-of-the-next-hops-are-nobody"
		bridge   = "an-endpoint-of-another-node-is-routed-to-the-bridge"
		own      = "an-endpoint-s-address-is-made-the-node-s-own"
		static   = "a-neighbour-entry-of-another-node-that-is-wrong-for-good"
		static6  = static + "-ipv6"
		local    = "a-neighbour-entry-of-the-endpoint-of-the-node-that-is-wrong-for-good"
		right    = "a-neighbour-entry-that-is-right-for-good"
		bare     = "the-bridge-has-lost-its-address"
		down     = "the-interface-of-an-endpoint-is-down"
		stray    = "the-interface-of-an-endpoint-is-not-in-the-bridge"
		arp      = "the-bridge-answers-no-arp-requests"
		unused   = "a-failed-neighbour-entry-of-an-address-that-nobody-uses"
		at       = `"mac":"da:0b:8a:4b:9b:c6","ifname":"veth8f46cb60","flags":[],"master":"cni0","state":""`
		ownEntry = `"mac":"76:43:13:17:7a:3b","ifname":"cni0","flags":[],"master":"cni0","state":"permanent"`
		detour   = "a-detour-by-another-node-which-tells-of-the-shorter-one"
	)
	failed := `{"dst":"10.79.0.99","dev":"eth0","state":["FAILED"]}`
	found := `{"dst":"10.79.0.99","dev":"eth0","lladdr":"02:00:00:00:00:77","state":["STALE"]}`
	neigh := func(do func(string) string) map[string]func(string) string {
		return map[string]func(string) string{"ip-neigh.json": do}
	}
	return []placed{
		{"nothing answers", nobody, nil, report.Warning, []string{NeighbourFailed}},
		{"one of two next hops does not answer", half, nil, report.Warning, []string{NeighbourFailed}},
		{
			"nobody was asked", nobody, neigh(instead(failed, `{"dst":"10.79.0.98","dev":"eth0","state":["FAILED"]}`)),
			report.Unknown,
			[]string{NextHopUnknown},
		},
		{"the bridge filters VLANs", right, map[string]func(string) string{
			"ip-link.json": instead(`"vlan_filtering":0`, `"vlan_filtering":1`),
		}, report.Unknown, []string{BridgeVLANs}},
		{"the bridge filters VLANs, and pods have answered", right, map[string]func(string) string{
			"ip-link.json":  instead(`"vlan_filtering":0`, `"vlan_filtering":1`),
			"ip-neigh.json": strings.NewReplacer("STALE", "REACHABLE", "PERMANENT", "REACHABLE").Replace,
		}, report.Match, nil},
		{"a router", nobody, neigh(instead(failed, found)), report.Match, nil},
		{"a default gateway that was not asked", nobody, map[string]func(string) string{
			"ip-neigh.json": instead(failed, `{"dst":"10.79.0.98","dev":"eth0","state":["FAILED"]}`),
			"ip-route.json": instead(`"dst":"default","gateway":"10.79.0.1"`, `"dst":"default","gateway":"10.79.0.99"`),
		}, report.Match, nil},
		{"routed to the bridge", bridge, nil, report.Mismatch, []string{RoutedToOwnPods, NeighbourFailed}},
		{
			"routed to the bridge, where someone answers", bridge,
			neigh(instead(`"dst":"`+awayEndpoint+`","dev":"cni0","state":["INCOMPLETE"]`,
				`"dst":"`+awayEndpoint+`","dev":"cni0","lladdr":"02:00:00:00:00:77","state":["STALE"]`)), report.Match, nil,
		},
		{"routed to a bridge that leads on", bridge, map[string]func(string) string{
			"ip-link.json": instead(`"info_kind":"veth","info_slave_kind":"bridge"`,
				`"info_kind":"vxlan","info_slave_kind":"bridge"`),
		}, report.Warning, []string{NeighbourFailed}},
		{"a route makes the address the node's own", own, nil, report.Mismatch, []string{EndpointAddressTaken}},
		{"an interface has the address", own, map[string]func(string) string{
			"ip-addr.json": instead(`"addr_info":[`, `"addr_info":[{"family":"inet","local":"`+awayEndpoint+
				`","prefixlen":32,"scope":"global"},`),
		}, report.Mismatch, []string{EndpointAddressTaken}},
		{
			"an interface has the client's address", detour, map[string]func(string) string{
				"ip-addr.json": instead(`"addr_info":[`, `"addr_info":[{"family":"inet","local":"`+client+
					`","prefixlen":32,"scope":"global"},`),
				"ip-route.json": instead("[", `[{"type":"local","dst":"`+client+`","dev":"lo","table":"local","scope":"host"},`),
			}, report.Mismatch, []string{ClientAddressTaken, RoutedByNode},
		},
		{"a permanent neighbour", static, nil, report.Unknown, []string{StaticNeighbour}},
		{"a permanent neighbour, IPv6", static6, nil, report.Unknown, []string{StaticNeighbour}},
		{"a permanent neighbour on the bridge", local, nil, report.Unknown, []string{StaticNeighbour}},
		{"a permanent neighbour behind a port", right, nil, report.Match, nil},
		{
			"a permanent neighbour, as found of the Node's other address", static,
			neigh(instead("[", `[{"dst":"fd00:79::12","dev":"eth0","lladdr":"`+wrongMAC+`","state":["STALE"]},`)), report.Match, nil,
		},
		{
			"a permanent neighbour, as found of another Node's", static,
			neigh(instead("[", `[{"dst":"fd00:79::13","dev":"eth0","lladdr":"`+wrongMAC+`","state":["STALE"]},`)), report.Unknown,
			[]string{StaticNeighbour},
		},
		{"the bridge has no address", bare, nil, report.Unknown, []string{PodsCutOff}},
		{"a port is down", down, nil, report.Unknown, []string{PodsCutOff}},
		{
			"a port is down, and the kernel has forgotten the pod", down,
			neigh(instead(`"dst":"10.245.1.5"`, `"dst":"10.245.1.99"`)), report.Unknown,
			[]string{PodsCutOff},
		},
		{
			"a port is down, and the kernel asks for the pod in vain", down,
			neigh(instead(`"dst":"10.245.1.5","dev":"cni0","lladdr":"da:0b:8a:4b:9b:c6","state":["STALE"]`,
				`"dst":"10.245.1.5","dev":"cni0","state":["FAILED"]`)), report.Unknown,
			[]string{PodsCutOff, NeighbourFailed},
		},
		{
			"all ports are up, and the kernel has forgotten a pod", unused,
			neigh(instead(`"dst":"10.245.1.5"`, `"dst":"10.245.1.99"`)), report.Match, nil,
		},
		{"a port is at another bridge", stray, map[string]func(string) string{
			"ip-link.json": func(text string) string {
				text = instead(`"ifname":"veth8f46cb60"`, `"ifname":"veth8f46cb60","master":"cni1"`)(text)
				return instead("[", `[{"ifname":"cni1","flags":["UP"]},`)(text)
			},
			"bridge-fdb.json": instead("[", "[{"+strings.NewReplacer(`"state":""`, `"state":""},`, "cni0", "cni1").Replace(at)),
		}, report.Mismatch, []string{PodAtOtherBridge}},
		{"a port is in no bridge", stray, nil, report.Unknown, []string{PodsCutOff}},
		{"the bridge answers no ARP requests", arp, nil, report.Unknown, []string{ARPNotAnswered}},
		{"a port does not forward", unused, map[string]func(string) string{
			"ip-link.json": disabled("veth8f46cb60"),
		}, report.Unknown, []string{PodsCutOff}},
		{"a port of a pod that is not on the path does not forward", unused, map[string]func(string) string{
			"ip-link.json": disabled("veth34c1f325"),
		}, report.Match, nil},
		{"a port does not forward, and the bridge has forgotten the pod", unused, map[string]func(string) string{
			"ip-link.json":    disabled("veth8f46cb60"),
			"bridge-fdb.json": instead(`"mac":"da:0b:8a:4b:9b:c6"`, `"mac":"da:0b:8a:4b:9b:c7"`),
		}, report.Unknown, []string{PodsCutOff}},
		{"the bridge has the pod at a port for good", unused, map[string]func(string) string{
			"bridge-fdb.json": instead(at, `"mac":"da:0b:8a:4b:9b:c6","ifname":"vethfad0f8b0","flags":["sticky"],"master":"cni0",`+
				`"state":"static"`),
		}, report.Unknown, []string{PodsCutOff}},
		// On the cluster 9 of 40 connections failed: it moves with the pod's next frame, and a pod that gets none sends none.
		{"the bridge has been told that the pod is at another's port", unused, map[string]func(string) string{
			"bridge-fdb.json": instead(at, `"mac":"da:0b:8a:4b:9b:c6","ifname":"vethfad0f8b0","flags":[],"master":"cni0",`+
				`"state":"static"`),
			"ip-neigh.json": strings.NewReplacer("STALE", "REACHABLE").Replace,
		}, report.Unknown, []string{PodsCutOff}},
		{"the bridge takes the pod's address for its own", unused, map[string]func(string) string{
			"bridge-fdb.json": instead(at, strings.NewReplacer(`"state":""`, `"state":"permanent"`, "veth8f46cb60", "cni0").Replace(at)),
		}, report.Unknown, []string{PodsCutOff}},
		{"the bridge has forgotten its own address", unused, map[string]func(string) string{
			"bridge-fdb.json": instead(ownEntry, strings.Replace(ownEntry, "76:", "78:", 1)),
		}, report.Mismatch, []string{BridgeTakesNothing}},
		{"the bridge has forgotten its own address, and is promiscuous", unused, map[string]func(string) string{
			"bridge-fdb.json": instead(ownEntry, strings.Replace(ownEntry, "76:", "78:", 1)),
			"ip-link.json":    strings.NewReplacer(`"promiscuity":0`, `"promiscuity":1`).Replace,
		}, report.Match, nil},
		{"the bridge has been told where the pod is, and it has answered there", unused, map[string]func(string) string{
			"bridge-fdb.json": instead(at, strings.Replace(at, `"state":""`, `"state":"static"`, 1)),
			"ip-neigh.json":   strings.NewReplacer("STALE", "REACHABLE").Replace,
		}, report.Match, nil},
		{"the bridge has been told where the pod is, and nobody has asked it since", unused, map[string]func(string) string{
			"bridge-fdb.json": instead(at, strings.Replace(at, `"state":""`, `"state":"static"`, 1)),
		}, report.Unknown, []string{PodsCutOff}},
		{"a locked port, and the bridge has forgotten the pod", unused, map[string]func(string) string{
			"ip-link.json":    locked("veth8f46cb60"),
			"bridge-fdb.json": instead(`"mac":"da:0b:8a:4b:9b:c6"`, `"mac":"33:33:00:00:00:09"`),
		}, report.Unknown, []string{PodsCutOff}},
		{"a locked port, where the bridge knows the pod", unused, map[string]func(string) string{
			"ip-link.json": locked("veth8f46cb60"),
		}, report.Match, nil},
		{"a port does not forward, and the kernel has forgotten the pod", unused, map[string]func(string) string{
			"ip-link.json":  disabled("veth8f46cb60"),
			"ip-neigh.json": instead(`"dst":"10.245.1.5"`, `"dst":"10.245.1.99"`),
		}, report.Unknown, []string{PodsCutOff}},
		{"a detour", detour, nil, report.Unknown, []string{RoutedByNode}},
		{"a detour by a pod", detour, map[string]func(string) string{
			"ip-route.json": instead(`"dst":"10.245.0.0/24","gateway":"10.79.0.13","dev":"eth0"`,
				`"dst":"10.245.0.0/24","gateway":"10.245.1.5","dev":"cni0"`),
		}, report.Unknown, []string{RoutedByPod}},
		{"answers by another pod", detour, map[string]func(string) string{
			"ip-route.json": instead(`"dst":"10.245.0.0/24","gateway":"10.79.0.13","dev":"eth0","flags":[]`,
				`"dst":"10.245.0.0/24","gateway":"10.79.0.12","dev":"eth0","flags":[]},`+
					`{"dst":"`+client+`","gateway":"10.245.1.5","dev":"cni0","flags":[]`),
		}, report.Unknown, []string{RoutedByPod}},
	}
}

// Routes and neighbours that were made wrong for real, and traps beside each.
func TestPlacement(t *testing.T) {
	for _, p := range placements() {
		t.Run(p.name, func(t *testing.T) {
			r := p.report(t)
			if len(r.Paths) != 1 {
				t.Fatalf("%d paths; %s", len(r.Paths), r.Error)
			}
			path := &r.Paths[0]
			var got []string
			for i := range path.Findings {
				got = append(got, path.Findings[i].Code)
			}
			slices.Sort(got)
			want := slices.Sorted(slices.Values(p.codes))
			if path.Verdict != p.want || !slices.Equal(got, want) {
				t.Errorf("%s %v, want %s %v", path.Verdict, got, p.want, want)
				for i := range path.Findings {
					t.Logf("%+v", path.Findings[i])
				}
			}
		})
	}
}
