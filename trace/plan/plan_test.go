// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"strings"
	"testing"
)

func good() *Plan {
	to := Destination{Endpoints: []netip.AddrPort{netip.MustParseAddrPort("10.244.1.1:8080")}}
	return &Plan{Name: "0123abcd", Services: []string{"shop/web"}, Mark: 0x4000, Frontends: []Frontend{{
		Port: "shop/web:http", Kind: "ClusterIP", Address: netip.MustParseAddrPort("10.96.0.10:80"), Protocol: "TCP",
		Pods: &Pods{CIDR: netip.MustParsePrefix("10.244.0.0/16")}, ForPods: &to, ForNode: to, ForOthers: to,
	}}}
}

// Nothing of a plan can become another word of a rule than what it is meant to be.
func TestCheck(t *testing.T) {
	if err := good().Check(); err != nil {
		t.Fatal(err)
	}
	front := func(change func(f *Frontend)) func(*Plan) {
		return func(p *Plan) { change(&p.Frontends[0]) }
	}
	for want, spoil := range map[string]func(*Plan){
		`"x -j ACCEPT" is not a name of a plan`: func(p *Plan) { p.Name = "x -j ACCEPT" },
		"there is nothing to program":           func(p *Plan) { p.Frontends = nil },
		"the mark 0x6000 is not one bit":        func(p *Plan) { p.Mark = 0x6000 },
		"the mark 0x0 is not one bit":           func(p *Plan) { p.Mark = 0 },
		`"shop" is not a namespace/name`:        func(p *Plan) { p.Services = []string{"shop"} },
		"10.96.0.10:80/TCP is there twice":      func(p *Plan) { p.Frontends = append(p.Frontends, p.Frontends[0]) },
		`is not a name of a Service port`:       front(func(f *Frontend) { f.Port = `shop/web" -j ACCEPT` }),
		"this is not an address and port": front(func(f *Frontend) {
			f.Address = netip.MustParseAddrPort("0.0.0.0:80")
		}),
		`the protocol "tcp" is not one of`: front(func(f *Frontend) { f.Protocol = "tcp" }),
		"an affinity of -1 seconds":        front(func(f *Frontend) { f.Affinity = -1 }),
		"belong together":                  front(func(f *Frontend) { f.ForPods = nil }),
		"the source range fd00::/8 is of": front(func(f *Frontend) {
			f.Ranges = []netip.Prefix{
				netip.MustParsePrefix("fd00::/8"),
			}
		}),
		"pods are told by a CIDR":                front(func(f *Frontend) { f.Pods.Iface = "cni0" }),
		`"cni0 -j" is not a name of an interfac`: front(func(f *Frontend) { f.Pods = &Pods{Iface: "cni0 -j"} }),
		"the endpoint [fd00::1]:80 is of": front(func(f *Frontend) {
			f.ForNode.Endpoints = []netip.AddrPort{
				netip.MustParseAddrPort("[fd00::1]:80"),
			}
		}),
		"the endpoint 10.0.0.1:0 is of": front(func(f *Frontend) {
			f.ForOthers.Endpoints = []netip.AddrPort{
				netip.MustParseAddrPort("10.0.0.1:0"),
			}
		}),
	} {
		p := good()
		spoil(p)
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestEqual(t *testing.T) {
	a, b := good(), good()
	b.Name = "ffffffff"
	if !a.Equal(b) {
		t.Error("another name makes another plan")
	}
	b.Frontends[0].ForPods.Endpoints[0] = netip.MustParseAddrPort("10.244.1.2:8080")
	if a.Equal(b) {
		t.Error("other endpoints make no other plan")
	}
}
