// SPDX-License-Identifier: Apache-2.0

package program

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// served are endpoints as "ADDRESS:PORT WEIGHT".
func served(scheduler string, flags uint32, reals ...string) *VirtualServer {
	v := &VirtualServer{
		Protocol: "TCP", Address: netip.MustParseAddrPort("10.96.0.10:80"), Scheduler: scheduler, Flags: flags,
		Netmask: mask4,
	}
	for _, r := range reals {
		at, weight, _ := strings.Cut(r, " ")
		v.Reals = append(v.Reals, RealServer{
			Address: netip.MustParseAddrPort(at), Weight: map[string]int{"0": 0, "1": 1, "7": 7}[weight],
		})
	}
	return v
}

func frontTo(endpoints ...string) *plan.Plan {
	f := plan.Frontend{
		Port: "shop/web:http", Kind: expect.ClusterIP, Address: netip.MustParseAddrPort("10.96.0.10:80"), Protocol: "TCP",
	}
	for _, e := range endpoints {
		f.ForOthers.Endpoints = append(f.ForOthers.Endpoints, netip.MustParseAddrPort(e))
	}
	f.ForNode = f.ForOthers
	return &plan.Plan{Name: "0123abcd", Mark: 0x4000, Services: []string{"shop/web"}, Frontends: []plan.Frontend{f}}
}

const (
	a1 = "10.244.1.1:8080"
	a2 = "10.244.1.2:8080"
	a3 = "10.244.1.3:8080"
)

func TestServe(t *testing.T) {
	for _, tt := range []struct {
		name, scheduler string
		affinity        int32
		before          *VirtualServer
		want            *VirtualServer
	}{
		{"none before", "", 0, nil, served("rr", 0, a1+" 1", a2+" 1")},
		{"another scheduler", "sed", 0, nil, served("sed", 0, a1+" 1", a2+" 1")},
		{
			"what is to get nothing stays, without weight", "", 0, served("wrr", 0, a3+" 7", a1+" 7"),
			served("rr", 0, a1+" 1", a2+" 1", a3+" 0"),
		},
		{
			"a hash that may choose such a one looks further", "sh", 0, served("rr", 0, a3+" 1"),
			served("sh", shFallback, a1+" 1", a2+" 1", a3+" 0"),
		},
		{"a hash that may not", "sh", 0, served("rr", 0, a2+" 1"), served("sh", 0, a1+" 1", a2+" 1")},
		{"affinity", "", 90, nil, func() *VirtualServer {
			v := served("rr", persistent, a1+" 1", a2+" 1")
			v.Timeout = 90
			return v
		}()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := frontTo(a1, a2, a1)
			p.Frontends[0].Affinity = tt.affinity
			if got := serve(&p.Frontends[0], tt.scheduler, tt.before); !reflect.DeepEqual(&got, tt.want) {
				t.Errorf("%+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// Undoing recognizes as its own: the state after apply, or, if apply or undo was interrupted, a mixture of the states
// before and after.
func TestOurs(t *testing.T) {
	s := Served{Before: served("wrr", 0, a1+" 1", a3+" 1"), After: *served("rr", 0, a1+" 1", a2+" 1", a3+" 0")}
	earlier := frontTo("10.244.1.9:8080")
	for _, tt := range []struct {
		name     string
		now      *VirtualServer
		settled  bool
		underway bool
	}{
		{"as it was left", &s.After, true, true},
		{"in another order", served("rr", 0, a3+" 0", a2+" 1", a1+" 1"), true, true},
		{"as it was before", s.Before, false, true},
		{"half way", served("rr", 0, a1+" 1", a3+" 1", a2+" 1"), false, true},
		{"of the earlier plan", served("rr", 0, a1+" 1", "10.244.1.9:8080 1"), false, true},
		{"kube-proxy has removed what was to get nothing", served("rr", 0, a1+" 1", a2+" 1"), false, true},
		{"kube-proxy has added one", served("rr", 0, a1+" 1", a2+" 1", a3+" 0", "10.244.1.4:8080 1"), false, false},
		{"another weight", served("rr", 0, a1+" 7", a2+" 1", a3+" 0"), false, true},
		{"another scheduler", served("lc", 0, a1+" 1", a2+" 1", a3+" 0"), false, true},
		{"gone", nil, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := s.ours(tt.now, true, nil); got != tt.settled {
				t.Errorf("when all is settled: %v", got)
			}
			if got := s.ours(tt.now, false, earlier); got != tt.underway {
				t.Errorf("on the way: %v", got)
			}
		})
	}
	left := s
	left.Left = true
	if left.ours(&s.After, true, nil) || left.ours(&s.After, false, nil) {
		t.Error("what was found to be someone else's is touched")
	}
}

// An update keeps the state before the first one, unless another program has changed it since.
func TestNext(t *testing.T) {
	key := serverKey{"TCP", netip.MustParseAddrPort("10.96.0.10:80")}
	first := (&IPVS{Sysctls: map[string]string{"conntrack": "0"}}).next(frontTo(a1), "", map[serverKey]*VirtualServer{
		key: served("rr", 0, a3+" 1"),
	})
	if len(first.Servers) != 1 || !first.Servers[0].Before.equal(served("rr", 0, a3+" 1")) ||
		!first.Servers[0].After.equal(served("rr", 0, a1+" 1", a3+" 0")) || first.Sysctls["conntrack"] != "0" {
		t.Fatalf("%+v", first)
	}
	second := first.next(frontTo(a2), "lc", map[serverKey]*VirtualServer{key: served("rr", 0, a1+" 1", a3+" 0")})
	if !second.Servers[0].Before.equal(served("rr", 0, a3+" 1")) ||
		!second.Servers[0].After.equal(served("lc", 0, a2+" 1", a3+" 0")) {
		t.Errorf("%+v", second)
	}
	synced := first.next(frontTo(a2), "", map[serverKey]*VirtualServer{key: served("rr", 0, a1+" 1")})
	if !synced.Servers[0].Before.equal(served("rr", 0, a1+" 1")) ||
		!synced.Servers[0].After.equal(served("rr", 0, a2+" 1", a1+" 0")) {
		t.Errorf("%+v", synced)
	}
	other := frontTo(a2)
	other.Frontends[0].Address = netip.MustParseAddrPort("192.0.2.1:30080")
	moved := first.next(other, "", nil)
	if len(moved.Servers) != 2 || moved.Servers[0].Gone || !moved.Servers[1].Gone || moved.Servers[1].After.key() != key {
		t.Errorf("%+v", moved)
	}
}

func TestVIPs(t *testing.T) {
	p, q := frontTo(a1), frontTo(a1)
	p.Frontends = append(p.Frontends, p.Frontends[0], p.Frontends[0])
	p.Frontends[1].Address, p.Frontends[1].Kind = netip.MustParseAddrPort("192.0.2.1:30080"), expect.NodePort
	p.Frontends[2].Address, p.Frontends[2].Kind = netip.MustParseAddrPort("10.96.0.10:81"), expect.LoadBalancerIP
	q.Frontends[0].Address = netip.MustParseAddrPort("[fd00::1]:80")
	got, want := vips(p, nil, q), []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00::1")}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A virtual server sends all clients to the same real servers.
func TestOneServer(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(f *plan.Frontend)
		want string // in the reason
	}{
		{"everybody alike", func(*plan.Frontend) {}, ""},
		{"in another order", func(f *plan.Frontend) { f.ForNode = frontTo(a2, a1).Frontends[0].ForNode }, ""},
		{"masqueraded or not", func(f *plan.Frontend) { f.ForNode.Masquerade = true }, ""},
		{"source ranges", func(f *plan.Frontend) { f.Ranges = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} }, ""},
		{
			"the node elsewhere", func(f *plan.Frontend) { f.ForNode = frontTo(a3).Frontends[0].ForNode },
			"different endpoints",
		},
		{"pods elsewhere", func(f *plan.Frontend) {
			f.Pods, f.ForPods = &plan.Pods{Iface: "cni0"}, &frontTo(a3).Frontends[0].ForNode
		}, "different endpoints"},
		{"others dropped", func(f *plan.Frontend) { f.ForOthers = plan.Destination{} }, "packets of some clients are to " +
			"be dropped"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := frontTo(a1, a2)
			tt.do(&p.Frontends[0])
			l := layoutOf(p, false)
			if got := l.oneServer(&l.entry[0]); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
