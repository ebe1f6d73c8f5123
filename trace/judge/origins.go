// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// from is an origin to judge. A quiet one is reported only when something is wrong with it: it samples the edge of a
// source range that another origin stands for.
type from struct {
	expect.Origin
	quiet bool
}

// originsOf returns who sends to a frontend: those asked for, or the default ones.
func (n *node) originsOf(svc *corev1.Service, f expect.Frontend, asked *From) []from {
	if asked != nil && asked.Kind != expect.FromNode && f.Address.IsLoopback() {
		return nil // there it is the sender's own address
	}
	if asked != nil {
		return []from{{Origin: n.askedOrigin(svc, f, asked)}}
	}
	if f.Address.IsLoopback() {
		return []from{{Origin: n.fromNode(f)}} // nobody else can send there
	}
	switch f.Kind {
	case expect.ClusterIP:
		out := []from{{Origin: n.fromPod(f)}, {Origin: n.fromNode(f)}}
		if self, ok := n.fromItself(f); ok {
			out = append(out, from{self, true})
		}
		return out
	case expect.NodePort, expect.ExternalIP, expect.LoadBalancerIP:
	}
	return append(n.fromOutside(svc, f), from{Origin: n.fromNode(f)})
}

func (n *node) askedOrigin(svc *corev1.Service, f expect.Frontend, asked *From) expect.Origin {
	o := n.knownOrigin(expect.Origin{Kind: asked.Kind, Address: asked.Address, Pod: asked.Pod})
	if asked.Address.IsValid() && netfilter.FamilyOf(asked.Address) != netfilter.FamilyOf(f.Address) {
		o.Address = netip.Addr{}
	}
	switch o.Kind {
	case expect.FromNode:
		return n.fromNode(f)
	case expect.FromPod:
		if asked.Pod == "" && !asked.Address.IsValid() {
			return n.fromPod(f)
		}
		if asked.Pod != "" {
			o.Address = n.podAddress(asked.Pod, f.Address.Is4())
		}
		o.Iface = n.ifaceOf(o.Address)
	case expect.FromExternal:
		if !asked.Address.IsValid() {
			for _, out := range n.fromOutside(svc, f) {
				return out.Origin
			}
		}
		o.Iface = n.entrance(&f, true)
	}
	return o
}

// fromNode is a process in the node's own network namespace. Its source address is the one that the route gives.
func (n *node) fromNode(f expect.Frontend) expect.Origin {
	src := netfilter.SourceFor(n.net, protocolNumber(f.Protocol), netip.AddrPortFrom(f.Address, f.Port))
	if !src.IsValid() {
		src = n.internalIP(f.Address.Is4())
	}
	return expect.Origin{Kind: expect.FromNode, Address: src}
}

func (n *node) external(f *expect.Frontend, a netip.Addr) expect.Origin {
	return expect.Origin{Kind: expect.FromExternal, Address: a, Iface: n.entrance(f, false), Sample: true}
}

// entrance returns the interface by which packets from outside to a frontend come in: the one whose subnet the
// frontend's address is of, where others than its neighbours get there (some route leads out by it to a gateway, or
// somebody is named who does); the uplink for all else.
func (n *node) entrance(f *expect.Frontend, named bool) string {
	v4 := f.Address.Is4()
	dev, subnet := n.net.SubnetOf(f.Address)
	pods := slices.ContainsFunc(n.podCIDRs, subnet.Overlaps)
	if dev == "" || dev == "lo" || pods || n.net.Bridge(dev) || !named && !n.net.HasGateway(dev, v4) {
		return n.uplink(v4)
	}
	return dev
}

// enters tells whether packets of an origin are certain to come in by its interface: a pod's do, and an outsider's
// where the way back to it is by that interface, as far as the main table tells, or where the frontend's address is of
// the interface's subnet. An address that merely stands for outsiders says nothing where the node has a route of its
// own for it.
func (n *node) enters(f *expect.Frontend, o *expect.Origin, named bool) bool {
	if o.Kind != expect.FromExternal || o.Iface == netfilter.UnknownIface {
		return o.Kind == expect.FromPod
	}
	back := n.net.Toward(o.Address)
	if back == o.Iface {
		return true
	}
	dev, _ := n.net.SubnetOf(f.Address)
	return dev == o.Iface && (named || back == n.uplink(o.Address.Is4()))
}

// fromOutside returns the outside origins of a load-balancer IP: one stranger; with source ranges one inside and one
// outside of them, and quietly every edge of every range.
func (n *node) fromOutside(svc *corev1.Service, f expect.Frontend) []from {
	ranges := sourceRanges(svc, f.Address.Is4())
	if f.Kind != expect.LoadBalancerIP || len(ranges) == 0 {
		a := n.stranger(f, ranges)
		if !a.IsValid() {
			a = n.stranger(f, nil) // the ranges are not for this frontend
		}
		return []from{{Origin: n.external(&f, a)}}
	}
	var out []from
	for i, r := range ranges {
		first, last := r.Addr(), lastOf(r)
		// No host has the broadcast address of a subnet: the kernel refuses packets that come from it
		// (fib_validate_source in net/ipv4/fib_frontend.c).
		if n.net.BroadcastsOn(first) != "" && first != last {
			first = first.Next()
		}
		if n.net.BroadcastsOn(last) != "" && first != last {
			last = last.Prev()
		}
		out = append(out, from{n.external(&f, first), i > 0}, from{n.external(&f, last), true})
		for _, edge := range []netip.Addr{r.Addr().Prev(), lastOf(r).Next()} {
			if local, known := n.net.Local(edge); edge.IsValid() && edge.IsGlobalUnicast() && !within(edge, ranges) &&
				known && !local && n.net.BroadcastsOn(edge) == "" {
				out = append(out, from{n.external(&f, edge), true})
			}
		}
	}
	if a := n.stranger(f, ranges); a.IsValid() { // else the ranges together allow everybody
		out = append(out, from{Origin: n.external(&f, a)})
	}
	return out
}

// sourceRanges returns the loadBalancerSourceRanges of a family; none where one of them allows everybody
// (kube-proxy, pkg/proxy/serviceport.go).
func sourceRanges(svc *corev1.Service, v4 bool) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range svc.Spec.LoadBalancerSourceRanges {
		p, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err != nil || p.Addr().Is4() != v4 {
			continue
		}
		if p.Bits() == 0 {
			return nil
		}
		out = append(out, p.Masked())
	}
	return out
}

func within(a netip.Addr, ranges []netip.Prefix) bool {
	for _, r := range ranges {
		if r.Contains(a) {
			return true
		}
	}
	return false
}

// lastOf returns the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := range b {
		free := 8*(i+1) - p.Bits()
		if free > 0 {
			b[i] |= byte(1<<min(free, 8) - 1)
		}
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// ifaceOf returns the interface that packets of a pod come in by: behind which the kernel has found it, and else that
// of the node's own route to it, which may be for others than it.
func (n *node) ifaceOf(a netip.Addr) string {
	if !a.IsValid() {
		return netfilter.UnknownIface
	}
	dev, known := n.net.IfaceOf(a)
	if (!known || !n.net.PodsOnly(dev, a.Is4())) && n.local(a) {
		if behind := n.net.Behind(a); behind != "" {
			return behind
		}
	}
	if known && dev != "" {
		return dev
	}
	return netfilter.UnknownIface
}

func (n *node) uplink(v4 bool) string {
	if dev := n.net.Uplink(v4); dev != "" {
		return dev
	}
	return netfilter.UnknownIface
}

func (n *node) podAddress(name string, v4 bool) netip.Addr {
	for _, p := range n.pods() {
		if p.name == name {
			return p.address(v4)
		}
	}
	return netip.Addr{}
}
