// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// claim is an address and port that a Service asks for; NodePorts have no address. Addresses from outside the cluster's
// own ranges can be given to several Services; cluster IPs and NodePorts, where the API server's allocation was lost
// (a restored etcd). kube-proxy goes through Services in no fixed order (pkg/proxy/iptables/proxier.go and those of the
// other modes, "for svcName, svc := range proxier.svcPortMap").
type claim struct {
	address  netip.Addr
	port     int32
	protocol corev1.Protocol
}

// claimant is a Service port that has a claim, and as what.
type claimant struct {
	service  types.NamespacedName
	portName string
	kind     FrontendKind
}

// claims are all claims: the first claimant of each, and those of other Services.
type claims struct {
	first map[claim]claimant
	more  map[claim][]claimant
	at    map[netip.Addr][]*wide // of Services that are not judged
}

func (c *claims) add(k claim, by claimant) {
	first, ok := c.first[k]
	switch {
	case !ok:
		c.first[k] = by
	case first.service != by.service:
		// A Service's claims are added one after the other.
		if more := c.more[k]; len(more) == 0 || more[len(more)-1].service != by.service {
			c.more[k] = append(more, by)
		}
	}
}

// of returns who has a claim, each Service once.
func (c *claims) of(k claim) []claimant {
	first, ok := c.first[k]
	if !ok {
		return nil
	}
	return append([]claimant{first}, c.more[k]...)
}

// claimsOf returns the claims of all Services that kube-proxy serves.
func (n *Node) claimsOf(services []*corev1.Service) claims {
	out := claims{
		first: make(map[claim]claimant, 2*len(services)), more: map[claim][]claimant{}, at: map[netip.Addr][]*wide{},
	}
	for _, svc := range services {
		if reason, _ := n.features.ignored(svc); reason != "" {
			continue
		}
		n.claim(&out, svc)
	}
	return out
}

// claim adds the claims of one Service.
func (n *Node) claim(out *claims, svc *corev1.Service) {
	name := NameOf(svc)
	for i := range svc.Spec.Ports {
		if p := &svc.Spec.Ports[i]; p.NodePort != 0 {
			out.add(claim{port: p.NodePort, protocol: protocolOf(p.Protocol)}, claimant{name, p.Name, NodePort})
		}
	}
	if n.in.Index.beyond[name] != "" {
		n.addWide(out, svc)
		return
	}
	n.eachAddress(svc, func(kind FrontendKind, text string) {
		a, ok := kubeproxy.ParseAddr(text)
		if !ok {
			return
		}
		for i := range svc.Spec.Ports {
			p := &svc.Spec.Ports[i]
			out.add(claim{a, p.Port, protocolOf(p.Protocol)}, claimant{name, p.Name, kind})
		}
	})
}

// eachAddress calls a function with each address of a Service, but for those of the node, as the API has it.
func (n *Node) eachAddress(svc *corev1.Service, add func(kind FrontendKind, text string)) {
	add(ClusterIP, svc.Spec.ClusterIP)
	for _, ip := range svc.Spec.ClusterIPs[min(1, len(svc.Spec.ClusterIPs)):] {
		add(ClusterIP, ip)
	}
	if n.features.externalIPs {
		for _, ip := range svc.Spec.ExternalIPs {
			add(ExternalIP, ip)
		}
	}
	for i := range svc.Status.LoadBalancer.Ingress {
		if ing := &svc.Status.LoadBalancer.Ingress[i]; !n.features.ipMode || ing.IPMode == nil ||
			*ing.IPMode == corev1.LoadBalancerIPModeVIP {
			add(LoadBalancerIP, ing.IP)
		}
	}
}

// otherClaim returns another Service that claims a frontend's address and port.
func (n *Node) otherClaim(f *Frontend) (types.NamespacedName, bool) {
	k := claim{f.Address, int32(f.Port), f.Protocol}
	if f.Kind == NodePort {
		k.address = netip.Addr{}
	}
	if c, ok := n.claims.first[k]; ok && c.service != f.Service {
		return c.service, true
	}
	for _, c := range n.claims.more[k] {
		if c.service != f.Service {
			return c.service, true
		}
	}
	if w := n.claims.wide(k, 1); len(w) > 0 {
		return w[0].service, true
	}
	// The node's own address may be an external IP, too, with the number of a NodePort.
	switch {
	case f.Kind == NodePort:
		k.address = f.Address
	case n.local[f.Address]:
		k.address = netip.Addr{}
	default:
		return types.NamespacedName{}, false
	}
	c, ok := n.claims.first[k]
	if w := n.claims.wide(k, 1); !ok && len(w) > 0 {
		return w[0].service, true
	}
	return c.service, ok && c.service != f.Service
}

// claimants returns the frontends of other Services at a frontend's address and port, in the order in which kube-proxy
// asks them: those that name the address, then NodePorts. Of too many it returns those that have an endpoint, or none
// where that is the zero AddrPort; left tells whether others of these are left out.
func (n *Node) claimants(f *Frontend, to netip.AddrPort) (named, nodePorts []Frontend, left bool) {
	add := func(list []Frontend, k claim) []Frontend {
		all := n.claims.of(k)
		if len(all) > bounds.Claimants+1 {
			all = n.crowd(k, all, familyIndex(f.Address))[to]
		}
		for _, c := range append(slices.Clip(all), n.claims.wide(k, bounds.Claimants)...) {
			if c.service == f.Service {
				continue
			}
			if len(list) == bounds.Claimants {
				left = true
				break
			}
			other := *f
			other.Service, other.PortName, other.Kind = c.service, c.portName, c.kind
			list = append(list, other)
		}
		return list
	}
	named = add(nil, claim{f.Address, int32(f.Port), f.Protocol})
	if f.Kind == NodePort || n.local[f.Address] {
		nodePorts = add(nil, claim{port: int32(f.Port), protocol: f.Protocol})
	}
	return named, nodePorts, left
}

// crowd are the claimants of an address and port that are too many to be asked, by their endpoints; those without stand
// at the zero AddrPort. It is made once.
type crowd struct {
	once sync.Once
	by   map[netip.AddrPort][]claimant
}

func (n *Node) crowd(k claim, all []claimant, family int) map[netip.AddrPort][]claimant {
	made, _ := n.crowds.LoadOrStore(k, &crowd{})
	c := made.(*crowd) //nolint:forcetypeassert // nothing else is stored
	c.once.Do(func() {
		c.by = map[netip.AddrPort][]claimant{}
		for _, x := range all {
			s := n.service(x.service)
			if s == nil || s.families[family] == nil {
				continue
			}
			p := s.families[family].port(x.portName, k.protocol)
			if p == nil {
				continue
			}
			for i := range p.all {
				c.by[p.all[i].Address] = append(c.by[p.all[i].Address], x)
			}
			if len(p.all) == 0 {
				c.by[netip.AddrPort{}] = append(c.by[netip.AddrPort{}], x)
			}
		}
	})
	return c.by
}
