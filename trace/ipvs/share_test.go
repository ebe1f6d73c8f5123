// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// shares says what becomes of new connections: "1 0.5, 2 0.5", "1 ? by load", "rejected 0.25".
func shares(v *VirtualServer) string {
	choices, by := v.choices()
	var out []string
	for _, c := range choices {
		to, share := "rejected", fmt.Sprintf("%.4g", c.share)
		if c.real != nil {
			to = c.real.Address.Addr().String()[len("10.0.0."):]
		}
		if by != "" {
			share = "? by " + by
		}
		out = append(out, to+" "+share)
	}
	return strings.Join(out, ", ")
}

func TestSharesByScheduler(t *testing.T) {
	for _, tt := range []struct {
		scheduler string
		weights   []int
		flags     string
		want      string
	}{
		{"rr", []int{1, 1, 1, 1}, "", "1 0.25, 2 0.25, 3 0.25, 4 0.25"},
		{"rr", []int{1, 5}, "", "1 0.5, 2 0.5"},
		{"rr", []int{1, 0, 1}, "", "1 0.5, 3 0.5"},
		{"rr", []int{0, 0}, "", ""},
		{"rr", nil, "", ""},
		{"wrr", []int{1, 3, 0}, "", "1 0.25, 2 0.75"},
		{"lc", []int{1, 1, 0}, "", "1 ? by load, 2 ? by load"},
		{"wlc", []int{1, 9}, "", "1 ? by load, 2 ? by load"},
		{"sed", []int{1, 1}, "", "1 ? by load, 2 ? by load"},
		{"nq", []int{1, 1}, "", "1 ? by load, 2 ? by load"},
		{"lblc", []int{1, 1}, "", "1 ? by load, 2 ? by load"},
		{"lblcr", []int{1, 1}, "", "1 ? by load, 2 ? by load"},
		{"ovf", []int{1, 2}, "", "1 ? by load, 2 ? by load"},
		{"lc", []int{1}, "", "1 1"},
		{"fo", []int{1, 3, 2}, "", "2 1"},
		{"fo", []int{3, 3, 2}, "", "1 ? by order of real servers, 2 ? by order of real servers"},
		{"sh", []int{1, 1}, "", "1 ? by client address, 2 ? by client address"},
		{"sh", []int{1, 0}, "", "1 ? by client address, rejected ? by client address"},
		{"sh", []int{1, 0}, "sh-fallback", "1 1"},
		{"mh", []int{1, 0, 1}, "", "1 ? by client address, 3 ? by client address"},
		{"dh", []int{1, 1}, "", "1 ? by destination, 2 ? by destination"},
		{"new", []int{1, 1}, "", "1 ? by scheduler, 2 ? by scheduler"},
	} {
		v := VirtualServer{Scheduler: tt.scheduler}
		if tt.flags != "" {
			v.Flags = []string{tt.flags}
		}
		for i, w := range tt.weights {
			v.Reals = append(v.Reals, RealServer{
				Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 80), Method: "Masq", Weight: w,
			})
		}
		if got := shares(&v); got != tt.want {
			t.Errorf("%s %v %s: %q, want %q", tt.scheduler, tt.weights, tt.flags, got, tt.want)
		}
	}
}

const node = `[{"ifindex":1,"ifname":"lo","flags":["LOOPBACK","UP"],
	"addr_info":[{"family":"inet","local":"127.0.0.1","prefixlen":8,"scope":"host"}]},
	{"ifindex":2,"ifname":"eth0","flags":["UP"],
	"addr_info":[{"family":"inet","local":"192.168.0.1","prefixlen":24,"scope":"global"}]},
	{"ifindex":3,"ifname":"kube-ipvs0","flags":["NOARP"],
	"addr_info":[{"family":"inet","local":"10.96.0.1","prefixlen":32,"scope":"global"}]}]`

const routes = `[{"dst":"default","gateway":"192.168.0.254","dev":"eth0"},
	{"dst":"192.168.0.0/24","dev":"eth0","prefsrc":"192.168.0.1"},{"dst":"10.244.1.0/24","dev":"cni0"}]`

// rules masquerade what has a mark, drop one real server's packets in OUTPUT, and count what comes by each hook by
// marking it.
var rules = []*netfilter.Chain{
	{Name: "POSTROUTING", Base: &netfilter.Base{
		Hook: netfilter.Postrouting, Priority: 100, Type: netfilter.TypeNAT,
		Policy: netfilter.Accept,
	}, Rules: []*netfilter.Rule{
		{
			Num: 1, Ops: []netfilter.Op{
				act(func(p *netfilter.Packet) netfilter.Kind { p.SNAT = true; return netfilter.Accept }),
			},
		},
	}},
	{Name: "OUTPUT", Base: &netfilter.Base{Hook: netfilter.Output, Policy: netfilter.Accept}, Rules: []*netfilter.Rule{
		{Num: 1, Ops: []netfilter.Op{act(func(p *netfilter.Packet) netfilter.Kind {
			if p.Dst == netip.MustParseAddr("10.244.1.9") {
				return netfilter.Drop
			}
			return netfilter.Next
		})}},
	}},
	{Name: "FORWARD", Base: &netfilter.Base{Hook: netfilter.Forward, Policy: netfilter.Drop}},
}

type act func(p *netfilter.Packet) netfilter.Kind

func (a act) Run(c *netfilter.Context) netfilter.Effect { return netfilter.Effect{Kind: a(c.Packet)} }

// TestPathThroughIPVS: from which hook a packet comes to IPVS, and where it goes from there.
func TestPathThroughIPVS(t *testing.T) {
	const servers = "-A -t 10.96.0.1:80 -s wrr\n-a -t 10.96.0.1:80 -r 10.244.1.8:8080 -m -w 3\n" +
		"-a -t 10.96.0.1:80 -r 10.244.1.9:8080 -m -w 1\n" +
		"-A -t 10.96.0.1:81 -s rr\n-a -t 10.96.0.1:81 -r 192.168.0.1:9100 -m -w 1\n" +
		"-A -t 10.96.0.1:82 -s rr\n-a -t 10.96.0.1:82 -r 10.244.1.8:82 -g -w 1\n" +
		"-A -t 10.96.0.1:83 -s rr\n" +
		"-A -t 10.96.0.2:80 -s rr\n-a -t 10.96.0.2:80 -r 10.244.1.8:8080 -m -w 1\n" +
		"-A -t 127.0.0.1:80 -s rr\n-a -t 127.0.0.1:80 -r 10.244.1.8:8080 -m -w 1\n" +
		"-A -t 127.0.0.1:81 -s rr\n-a -t 127.0.0.1:81 -r 192.168.0.1:9100 -m -w 1\n" +
		"-A -f 7 -s rr\n-a -f 7 -r 10.244.1.7:7 -m -w 1\n"
	for _, tt := range []struct {
		name string
		// the interface that the packet comes in by; "" for one of the node's own, lo for one that it sends from 127.0.0.1
		in      string
		dst     string
		mark    uint32
		tracked op.Truth
		want    []string
	}{
		{
			"from outside", "eth0", "10.96.0.1:80", 0, op.Yes, []string{
				"dropped 10.244.1.9:8080 0.25 snat=false", "sent 10.244.1.8:8080 0.75 snat=true",
			},
		},
		{
			"from the node", "", "10.96.0.1:80", 0, op.Yes, []string{
				"dropped 10.244.1.9:8080 0.25 snat=false", "sent 10.244.1.8:8080 0.75 snat=true",
			},
		},
		{
			"without connection tracking", "eth0", "10.96.0.1:80", 0, op.No, []string{
				"dropped 10.244.1.9:8080 0.25 snat=false", "sent 10.244.1.8:8080 0.75 snat=false",
			},
		},
		{
			"the setting is not known", "eth0", "10.96.0.1:80", 0, op.Maybe,
			[]string{
				"? dropped 10.244.1.9:8080 0.25 snat=false", "? dropped 10.244.1.9:8080 0.25 snat=false",
				"? sent 10.244.1.8:8080 0.75 snat=false", "? sent 10.244.1.8:8080 0.75 snat=true",
			},
		},
		{
			"to the node itself, from outside", "eth0", "10.96.0.1:81", 0, op.Yes, []string{
				"delivered 192.168.0.1:9100 1 snat=false",
			},
		},
		{
			"to the node itself, from the node", "", "10.96.0.1:81", 0, op.Yes, []string{
				"delivered 192.168.0.1:9100 1 snat=true",
			},
		},
		{"direct routing", "eth0", "10.96.0.1:82", 0, op.Yes, []string{"taken 10.96.0.1:82 1 snat=false"}},
		{"no real server", "eth0", "10.96.0.1:83", 0, op.Yes, []string{"rejected 10.96.0.1:83 1 snat=false"}},
		{"no virtual server", "eth0", "10.96.0.1:84", 0, op.Yes, []string{"delivered 10.96.0.1:84 1 snat=false"}},
		{
			"an address that is not bound, from outside", "eth0", "10.96.0.2:80", 0, op.Yes, []string{
				"dropped 10.96.0.2:80 1 snat=false",
			},
		},
		{
			"an address that is not bound, from the node", "", "10.96.0.2:80", 0, op.Yes, []string{
				"sent 10.244.1.8:8080 1 snat=true",
			},
		},
		{"from 127.0.0.1 to another host", "lo", "127.0.0.1:80", 0, op.Yes, []string{"dropped 10.244.1.8:8080 1 snat=false"}},
		{
			"from 127.0.0.1 to the node itself", "lo", "127.0.0.1:81", 0, op.Yes, []string{
				"delivered 192.168.0.1:9100 1 snat=true",
			},
		},
		{"a firewall mark comes first", "eth0", "10.96.0.1:80", 7, op.Yes, []string{"sent 10.244.1.7:7 1 snat=true"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			vs, err := Parse([]byte(servers))
			if err != nil {
				t.Fatal(err)
			}
			network, errs := host.Parse(host.Files{Addr: []byte(node), Route4: []byte(routes)})
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			rs := &netfilter.Ruleset{
				Tables: []*netfilter.Table{{Family: netfilter.IPv4, Backend: netfilter.BackendNFT, Name: "all", Chains: rules}},
			}
			rs.Link()
			rs.Add(Tables(vs, tt.tracked)...)
			dst := netip.MustParseAddrPort(tt.dst)
			start := netfilter.Start{Hook: netfilter.Prerouting, Packet: netfilter.Packet{
				Family: netfilter.IPv4, Proto: netfilter.TCP, Src: netip.MustParseAddr("192.168.0.77"), Dst: dst.Addr(),
				DstPort: dst.Port(), In: tt.in, Mark: tt.mark,
			}}
			switch tt.in {
			case "":
				start.Hook, start.Packet.Src = netfilter.Output, netip.MustParseAddr("192.168.0.1")
			case "lo":
				start.Hook, start.Packet.Src, start.Packet.In = netfilter.Output, netip.MustParseAddr("127.0.0.1"), ""
			}
			var got []string
			for _, o := range netfilter.NewWalker(rs, network, nil).Walk(start, netfilter.Options{}).Outcomes {
				s := fmt.Sprintf("%s %s:%d %.4g snat=%v", o.End, o.Packet.Dst, o.Packet.DstPort, o.P, o.Packet.SNAT)
				if !o.Certain {
					s = "? " + s
				}
				got = append(got, s)
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}
