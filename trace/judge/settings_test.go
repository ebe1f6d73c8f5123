// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// bridgedPod are the interfaces of a node with a pod on a bridge, with or without hairpin mode.
const bridgedPod = `[{"ifname":"cni0"},{"ifname":"eth0"},{"ifname":"lo"},{"ifname":"veth1","master":"cni0","linkinfo":{"info_slave_kind":"bridge","info_slave_data":{"hairpin":%v}}}]`

// byEth1 are routes by which outsiders, and some of their addresses always, are reached through eth1.
const byEth1 = `{"dst":"default","gateway":"10.88.0.1","dev":"eth1","table":"100","flags":[]},{"dst":"10.5.0.0/16","gateway":"10.88.0.1","dev":"eth1","flags":[]},`

// set gives a kernel setting a value. Where it is of an interface, all interfaces get those that a helper reads of
// each.
func (w *capturedNode) set(key, value string) {
	if strings.Contains(key, "/conf/") && !strings.Contains(key, "/conf/all/") &&
		!strings.Contains(string(w.files["sysctl.txt"]), "/conf/lo/") {
		forwarding := "1"
		if strings.Contains(string(w.files["sysctl.txt"]), "net/ipv4/ip_forward=0") {
			forwarding = "0"
		}
		for _, dev := range []string{"lo", "cni0", "eth0", "eth1"} {
			for _, line := range []string{"forwarding=" + forwarding, "rp_filter=0", "route_localnet=0", "src_valid_mark=0"} {
				w.files["sysctl.txt"] = append(w.files["sysctl.txt"], "net/ipv4/conf/"+dev+"/"+line+"\n"...)
			}
		}
	}
	was := ""
	for line := range strings.Lines(string(w.files["sysctl.txt"])) {
		if strings.HasPrefix(line, key+"=") {
			was = line
		}
	}
	w.files["sysctl.txt"] = []byte(strings.Replace(string(w.files["sysctl.txt"]), was, "", 1) + key + "=" + value + "\n")
}

// routing adds routes and a routing rule, and an interface eth1 with a strict filter on all of them.
func (w *capturedNode) routing(routes, rule string) {
	const std = `[{"priority":0,"src":"all","table":"local"},{"priority":32766,"src":"all","table":"main"},{"priority":32767,"src":"all","table":"default"}`
	w.files["ip-rule.json"] = []byte(std + rule + "]")
	w.files["ip-route.json"] = []byte(strings.Replace(string(w.files["ip-route.json"]), "[", "["+routes, 1))
	w.files["ip-addr.json"] = []byte(strings.Replace(
		string(w.files["ip-addr.json"]),
		"[",
		`[{"ifname":"eth1","flags":["UP"],"addr_info":[{"family":"inet","local":"10.88.0.11","prefixlen":24,"scope":"global"}]},`,
		1,
	))
	w.files["ip-link.json"] = []byte(strings.Replace(string(w.files["ip-link.json"]), "[", `[{"ifname":"eth1"},`, 1))
	for _, dev := range []string{"all", "eth0", "eth1", "cni0"} {
		w.set("net/ipv4/conf/"+dev+"/rp_filter", "1")
		w.set("net/ipv4/conf/"+dev+"/src_valid_mark", "0")
	}
}

// TestSettings turns off a kernel setting that packets need: the paths that need it are wrong, with its code, and no
// other.
func TestSettings(t *testing.T) {
	set := func(key, value string) func(*capturedNode) {
		return func(w *capturedNode) { w.set(key, value) }
	}
	routing := func(routes, rule string) func(*capturedNode) {
		return func(w *capturedNode) { w.routing(routes, rule) }
	}
	itself := &From{Kind: expect.FromPod, Address: netip.MustParseAddr("10.244.1.3")}
	for _, tt := range []struct {
		name   string
		damage []func(*capturedNode)
		from   *From
		code   string // "" for nothing
		hits   func(p *report.Path) bool
	}{
		{"as captured", nil, nil, "", nil},
		{"ip_forward", []func(*capturedNode){set("net/ipv4/ip_forward", "0")}, nil, ForwardingOff, func(p *report.Path) bool {
			return p.Origin.Kind != "node" && strings.Contains(p.Frontend.Address, ".")
		}},
		{
			"forwarding of the interface is on",
			[]func(*capturedNode){
				set("net/ipv4/ip_forward", "0"),
				set("net/ipv4/conf/cni0/forwarding", "1"),
				set("net/ipv4/conf/eth0/forwarding", "1"),
			},
			nil,
			"",
			nil,
		},
		{"forwarding of the bridge alone", []func(*capturedNode){
			set("net/ipv4/conf/cni0/forwarding", "0"),
		}, nil, ForwardingOff, func(p *report.Path) bool { // answers of its pods come in by it
			return p.Origin.Kind != "node" && strings.Contains(p.Frontend.Address, ".")
		}},
		{"route_localnet", []func(*capturedNode){
			set("net/ipv4/conf/all/route_localnet", "0"), set("net/ipv4/conf/cni0/route_localnet", "0"),
			set("net/ipv4/conf/eth0/route_localnet", "0"),
		}, nil, RouteLocalnetOff, func(p *report.Path) bool { return p.Frontend.Address == "127.0.0.1" }},
		{
			"route_localnet, of interfaces not collected",
			[]func(*capturedNode){set("net/ipv4/conf/all/route_localnet", "0")},
			nil,
			"",
			nil,
		},
		{"bridge-nf-call-iptables", []func(*capturedNode){
			set("net/bridge/bridge-nf-call-iptables", "0"),
		}, nil, BridgeNetfilterOff, func(p *report.Path) bool {
			return p.Origin.Kind == "pod" && slices.ContainsFunc(
				p.Expected.Endpoints,
				func(e report.Endpoint) bool { return strings.HasPrefix(e.Address, "10.244.1.") },
			)
		}},
		{"bridge-nf-call-iptables, and the bridge's own nf_call_iptables is on", []func(*capturedNode){
			set("net/bridge/bridge-nf-call-iptables", "0"), func(w *capturedNode) {
				w.files["ip-link.json"] = bytes.Replace(w.files["ip-link.json"], []byte(`{"ifname":"cni0"}`),
					[]byte(`{"ifname":"cni0","linkinfo":{"info_kind":"bridge","info_data":{"nf_call_iptables":1}}}`), 1)
			},
		}, nil, "", nil},
		{"hairpin mode", []func(*capturedNode){
			func(w *capturedNode) { w.files["ip-link.json"] = fmt.Appendf(nil, bridgedPod, false) },
		}, itself, HairpinOff, func(p *report.Path) bool {
			return slices.ContainsFunc(p.Expected.Endpoints, func(e report.Endpoint) bool { return e.Address == "10.244.1.3" })
		}},
		{
			"hairpin mode is on",
			[]func(*capturedNode){func(w *capturedNode) { w.files["ip-link.json"] = fmt.Appendf(nil, bridgedPod, true) }},
			itself,
			"",
			nil,
		},
		{"rp_filter, ways back as ways there", []func(*capturedNode){routing(byEth1, "")}, nil, "", nil},
		{"rp_filter, what goes from pods to outsiders has a way of its own", []func(*capturedNode){
			routing(byEth1, `,{"priority":9,"src":"10.244.0.0","srclen":16,"dst":"192.0.2.0","dstlen":24,"table":"100"}`),
		}, nil, ReversePathFilter, func(p *report.Path) bool {
			return p.Origin.Kind == "external" && strings.Contains(p.Frontend.Address, ".")
		}},
		{"rp_filter of that interface was not collected", []func(*capturedNode){
			routing(
				byEth1,
				`,{"priority":9,"src":"10.244.0.0","srclen":16,"dst":"192.0.2.0","dstlen":24,"table":"100"}`,
			), func(w *capturedNode) {
				w.files["sysctl.txt"] = []byte(
					strings.Replace(string(w.files["sysctl.txt"]), "net/ipv4/conf/eth0/rp_filter=1\n", "", 1),
				)
			},
		}, nil, "", nil},
		{"rp_filter, the way back to this client is another one", []func(*capturedNode){
			routing(byEth1, ""),
		}, &From{
			Kind:    expect.FromExternal,
			Address: netip.MustParseAddr("10.5.0.9"),
		}, ReversePathFilter, func(p *report.Path) bool {
			// An address of eth0's subnet; of others it is not known by what they come in.
			return strings.HasPrefix(p.Frontend.Address, "10.77.0.")
		}},
		{"rp_filter, what is masqueraded leaves by another way, and its answers come in there", []func(*capturedNode){
			routing(byEth1, `,{"priority":9,"src":"all","fwmark":"0x4000","fwmask":"0x4000","table":"100"}`),
		}, nil, ReversePathFilter, func(p *report.Path) bool {
			// What the node sends has the mark, too, when its route is looked up again behind the translation.
			return p.Origin.Kind != "pod" && p.Expected.Masquerade == "Always" && strings.Contains(p.Frontend.Address, ".")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, "real-2node-iptables")
			w.files["ip-link.json"] = fmt.Appendf(nil, bridgedPod, true)
			for _, d := range tt.damage {
				d(w)
			}
			r := Files(
				w.cluster,
				snapshot.NewNode("node1", w.files),
				Request{Matching: true, PerPathService: true, From: tt.from},
			)
			if r.Error != "" || len(r.Paths) == 0 {
				t.Fatal(r.Error)
			}
			hit := 0
			for i := range r.Paths {
				p := &r.Paths[i]
				due := tt.code != "" && p.Expected.Action == "DNAT" && tt.hits(p)
				var codes []string
				for _, f := range p.Findings {
					if f.Severity == report.Error {
						codes = append(codes, f.Code)
					}
				}
				if due {
					hit++
				}
				if due && !slices.Equal(codes, []string{tt.code}) || !due && len(codes) > 0 {
					t.Errorf(
						"%s %s %s from %s %s: %v, due: %v",
						p.Service.Name,
						p.Frontend.Kind,
						p.Frontend.Address,
						p.Origin.Kind,
						p.Origin.Address,
						p.Findings,
						due,
					)
				}
			}
			if tt.code != "" && hit == 0 {
				t.Error("no path is hit: the test proves nothing")
			}
		})
	}
}

// TestSettingsAreJudgedByThePathsOwnWalk: the walks of a pod that reaches itself, and of a client that comes back, used
// the buffer of the path's own outcomes, and a setting was said to stop packets to the last of the endpoints alone.
func TestSettingsAreJudgedByThePathsOwnWalk(t *testing.T) {
	w := openCaptured(t, "real-2node-iptables")
	w.files["sysctl.txt"] = []byte("net/ipv4/ip_forward=0\nnet/ipv6/conf/all/forwarding=0\n")
	r := Files(w.cluster, snapshot.NewNode("node1", w.files), Request{Matching: true, PerPathService: true})
	several := 0
	for i := range r.Paths {
		p := &r.Paths[i]
		for _, f := range p.Findings {
			if f.Code != ForwardingOff || p.Origin.Kind != "pod" {
				continue
			}
			var want []string
			for _, e := range p.Expected.Endpoints {
				want = append(want, net.JoinHostPort(e.Address, strconv.Itoa(int(e.Port))))
			}
			if len(want) > 1 {
				several++
			}
			if !slices.Equal(f.Endpoints, want) {
				t.Errorf("%s %s: %v, want %v", p.Service.Name, p.Frontend.Address, f.Endpoints, want)
			}
		}
	}
	if several == 0 {
		t.Error("no path with several endpoints is hit: the test proves nothing")
	}
}

// TestForwardingIsTurnedOnWhereItIsOff: ip_forward turns on all interfaces only when it was off itself, and is no
// remedy where a single interface is.
func TestForwardingIsTurnedOnWhereItIsOff(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  map[string]string
		want []string
	}{
		{"everywhere", map[string]string{"ip_forward": "0", "conf/cni0/forwarding": "0"}, []string{
			"sysctl -w net/ipv4/ip_forward=1",
		}},
		{"one interface", map[string]string{"ip_forward": "1", "conf/cni0/forwarding": "0"}, []string{
			"sysctl -w net/ipv4/conf/cni0/forwarding=1",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, "real-2node-iptables")
			for key, value := range tt.set {
				w.set("net/ipv4/"+key, value)
			}
			found := 0
			for _, p := range w.run().Paths {
				for _, f := range p.Findings {
					if f.Code != ForwardingOff || p.Origin.Kind != "pod" || strings.Contains(p.Frontend.Address, ":") {
						continue
					}
					found++
					var lines []string
					for _, c := range f.Commands {
						lines = append(lines, c.Line)
					}
					if !slices.Equal(lines, tt.want) {
						t.Errorf("%q, want %q", lines, tt.want)
					}
				}
			}
			if found == 0 {
				t.Error("ForwardingOff is not found")
			}
		})
	}
}
