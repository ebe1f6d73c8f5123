// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"

	corev1 "k8s.io/api/core/v1"
)

// nodePorts is where the NodePorts of one family are served (pkg/proxy/util/nodeport_addresses.go).
type nodePorts struct {
	all       bool           // nodePortAddresses leaves no address of the family out
	cidrs     []netip.Prefix // otherwise: the ranges that it selects
	loopback  bool           // also at the loopback address
	proxied   bool           // at the loopback address by a process, which knows TCP only
	addresses []netip.Addr   // the addresses for which there are frontends, ordered
	asked     []string       // what selects them, as nodePortAddresses has it
}

// primaryRule tells when nftables mode serves NodePorts at the node's own IPs alone.
type primaryRule uint8

const (
	// primaryUnset: where nodePortAddresses is not set (from 1.31 on; cmd/kube-proxy/app/server_linux.go,
	// platformApplyDefaults).
	primaryUnset primaryRule = iota
	// primaryOfFamily: in a family of which nodePortAddresses selects none (1.30; pkg/proxy/util/nodeport_addresses.go).
	primaryOfFamily
	// primaryNever: where it is asked for (1.29).
	primaryNever
)

func primaryRuleOf(minor int) primaryRule {
	switch {
	case minor <= 29:
		return primaryNever
	case minor == 30:
		return primaryOfFamily
	}
	return primaryUnset
}

// serves tells whether NodePorts are served at an address of the node.
func (p *nodePorts) serves(a netip.Addr) bool {
	if a.IsLoopback() && !p.loopback {
		return false
	}
	return p.all || contains(p.cidrs, a)
}

var loopbacks = [2]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

func (n *Node) nodePortsOf(family int) nodePorts {
	p := nodePorts{asked: n.in.Config.NodePortAddresses}
	if len(p.asked) == 0 && n.features.primary != primaryNever {
		p.asked = n.mode.nodePortAddresses
	}
	for _, s := range n.nodePortCIDRs(p.asked) {
		if familyIndex(s.Addr()) != family {
			continue
		}
		if s.Bits() == 0 {
			p.all = true
		}
		p.cidrs = append(p.cidrs, s)
	}
	if ip := n.nodeIPs[family]; len(p.cidrs) == 0 && n.features.primary == primaryOfFamily && !ip.IsLoopback() {
		p.asked, p.cidrs = n.mode.nodePortAddresses, []netip.Prefix{netip.PrefixFrom(ip, ip.BitLen())}
	}
	p.all = p.all || len(p.cidrs) == 0
	// In iptables mode any part of 127.0.0.0/8 counts (nodeport_addresses.go, containsIPv4Loopback).
	reach := p.all || slices.ContainsFunc(p.cidrs, func(c netip.Prefix) bool {
		return c.Addr().IsLoopback() || c.Contains(loopbacks[family].Addr())
	})
	p.loopback = reach && n.mode.loopbackNodePorts(&n.in.Config, family == 1)
	// A range that holds other addresses besides the loopback ones does not make kube-proxy listen
	// (ContainsExplicitLoopback).
	p.proxied = n.loopbackFeature() &&
		slices.ContainsFunc(p.cidrs, func(c netip.Prefix) bool { return c.Bits() > 0 && c.Masked().Addr().IsLoopback() })
	p.addresses = n.nodePortAddresses(&p, family)
	return p
}

// loopbackFeature tells whether the mode serves or rejects NodePorts at loopback addresses
// (KubeProxyNFTablesLocalhostNodePorts).
func (n *Node) loopbackFeature() bool { return n.features.loopback }

// nodePortCIDRs returns nodePortAddresses with its keywords resolved: "primary" (only by itself before 1.37),
// "localhost" and "all" (cmd/kube-proxy/app/server.go, expandNodePortAddressKeywords).
func (n *Node) nodePortCIDRs(list []string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		switch s {
		case "primary":
			for _, a := range n.nodeIPs {
				if !a.IsLoopback() {
					out = append(out, netip.PrefixFrom(a, a.BitLen()))
				}
			}
		case "localhost":
			out = append(out, loopbacks[:]...)
		case "all":
			out = append(out, netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0))
		default:
			if p, ok := kubeproxy.ParsePrefix(s); ok {
				out = append(out, p)
			}
		}
	}
	return out
}

// nodePortAddresses returns the addresses for which there are frontends: where NodePorts are served at every address,
// those in the Node's status; where nodePortAddresses selects some, each one selected. The loopback address is among
// them where it is served.
func (n *Node) nodePortAddresses(p *nodePorts, family int) []netip.Addr {
	var out []netip.Addr
	take := func(a netip.Addr) {
		if familyIndex(a) == family && !a.IsLoopback() && p.serves(a) && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	for _, a := range n.statusAddresses(family) {
		take(a)
	}
	if !p.all {
		for _, a := range n.in.Addresses {
			take(a.Unmap())
		}
	}
	loopback := [...]netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}[family]
	if family == 0 && p.serves(loopback) || p.proxied {
		out = append(out, loopback)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// statusAddresses returns the Node's addresses of a family that the node itself has, as far as its addresses are known.
// An external address may be that of a NAT gateway. Without a Node object it is the first usable address.
func (n *Node) statusAddresses(family int) []netip.Addr {
	var own, internal []netip.Addr
	if n.in.Node == nil {
		for _, a := range n.in.Addresses {
			if a = a.Unmap(); familyIndex(a) == family && a.IsGlobalUnicast() {
				return []netip.Addr{a}
			}
		}
		return nil
	}
	for _, s := range n.in.Node.Status.Addresses {
		a, ok := kubeproxy.ParseAddr(s.Address)
		if !ok || familyIndex(a) != family || s.Type != corev1.NodeInternalIP && s.Type != corev1.NodeExternalIP {
			continue
		}
		if _, mine := n.local[a]; mine {
			own = append(own, a)
		}
		if s.Type == corev1.NodeInternalIP {
			internal = append(internal, a)
		}
	}
	if len(own) > 0 {
		return own
	}
	return internal
}

// nodeIPsOf returns what kube-proxy takes for the node's own IP, for each family: bindAddress, else the Node's first
// address of the family, internal ones first, else the loopback address (cmd/kube-proxy/app/server.go, detectNodeIPs).
func nodeIPsOf(in *Inputs) [2]netip.Addr {
	ips := [2]netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	var found [2]bool
	if in.Node != nil {
		for _, want := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
			for _, s := range in.Node.Status.Addresses {
				a, ok := kubeproxy.ParseAddr(s.Address)
				if f := familyIndex(a); ok && s.Type == want && !found[f] {
					ips[f], found[f] = a, true
				}
			}
		}
	}
	if a := in.Config.BindAddress; a.IsValid() && !a.IsUnspecified() {
		ips[familyIndex(a)] = a
	}
	return ips
}
