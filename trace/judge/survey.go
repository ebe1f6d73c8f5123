// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/parallel"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/ipvs"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
)

// survey is what the rules of a node hold, and what the API has that rules are due for.
type survey struct {
	programmed   map[netfilter.Family]bool // kube-proxy's rules are there
	backends     map[netfilter.Family]map[netfilter.Backend]bool
	hasFrontends map[netfilter.Family]bool
	clusterIPs   map[netip.Addr]bool                 // of every Service that kube-proxy serves
	frontends    map[frontendKey]bool                // every frontend of every Service
	servers      map[frontendKey]*ipvs.VirtualServer // with an address, NodePorts too
	notJudged    int                                 // Services that are not judged
}

// frontendKey is a frontend as a rule names it; NodePorts have no address.
type frontendKey struct {
	addr  netip.Addr
	proto uint8
	port  uint16
}

// keyWithAddress is a frontend with its address, that of a NodePort too.
func keyWithAddress(f expect.Frontend) frontendKey {
	return frontendKey{f.Address, protocolNumber(f.Protocol), f.Port}
}

func keyOf(f expect.Frontend) frontendKey {
	k := keyWithAddress(f)
	if f.Kind == expect.NodePort {
		k.addr = netip.Addr{}
	}
	return k
}

// serverKey is the frontend of a virtual server with an address.
func serverKey(v *ipvs.VirtualServer) frontendKey {
	p, _ := op.Protocol(strings.ToLower(v.Protocol))
	return frontendKey{v.Address.Addr(), p, v.Address.Port()}
}

func (n *node) surveyed() survey {
	s := survey{
		programmed: map[netfilter.Family]bool{}, backends: map[netfilter.Family]map[netfilter.Backend]bool{},
		hasFrontends: map[netfilter.Family]bool{},
		clusterIPs:   make(map[netip.Addr]bool, len(n.cluster.Services)),
		frontends:    make(map[frontendKey]bool, 2*len(n.cluster.Services)),
		servers:      make(map[frontendKey]*ipvs.VirtualServer, len(n.Virtual)),
	}
	s.ofRules(n)
	s.ofServices(n)
	for i := range n.Virtual {
		v := &n.Virtual[i]
		if v.Address.IsValid() {
			s.servers[serverKey(v)] = v
		}
	}
	return s
}

func (s *survey) ofRules(n *node) {
	for _, t := range n.Rules.Tables {
		if !n.mode.home(t) {
			continue
		}
		if c := t.Chain(n.mode.names().Services); c != nil && len(c.Rules) > 0 {
			s.programmed[t.Family] = true
			if s.backends[t.Family] == nil {
				s.backends[t.Family] = map[netfilter.Backend]bool{}
			}
			s.backends[t.Family][t.Backend] = true
		}
	}
	for _, f := range nodestate.Families {
		s.programmed[f] = (s.programmed[f] || onlyServers(n.State)) && n.mode.programmed(n.State, f)
	}
}

func (s *survey) ofServices(n *node) {
	// The first question about a Service finds out all that is expected of it, which takes longer than what follows.
	_ = parallel.Each(n.cluster.Services, func() func(*corev1.Service) error {
		return func(svc *corev1.Service) error {
			if n.stopped() {
				return errStopped
			}
			_, _ = n.exp.Ignored(svc)
			return nil
		}
	})
	for _, svc := range n.cluster.Services {
		if n.stopped() {
			return
		}
		if n.exp.Beyond(svc) != "" {
			s.ofNotJudged(svc)
		}
		for _, f := range n.frontends(svc) {
			k := keyOf(f)
			s.hasFrontends[netfilter.FamilyOf(f.Address)] = true
			if f.Kind == expect.ClusterIP {
				s.clusterIPs[f.Address] = true
			}
			s.frontends[k] = true
		}
		if p := svc.Spec.HealthCheckNodePort; p != 0 {
			s.frontends[frontendKey{proto: netfilter.TCP, port: uint16(p)}] = true //nolint:gosec // a port
		}
		for i := range svc.Spec.Ports {
			if p := &svc.Spec.Ports[i]; p.NodePort != 0 {
				nodePort := uint16(p.NodePort) //nolint:gosec // a port
				s.frontends[frontendKey{proto: protocolNumber(p.Protocol), port: nodePort}] = true
			}
		}
	}
}

// ofNotJudged notes what is known of a Service that is not judged.
func (s *survey) ofNotJudged(svc *corev1.Service) {
	for _, text := range append([]string{svc.Spec.ClusterIP}, svc.Spec.ClusterIPs...) {
		if a, ok := kubeproxy.ParseAddr(text); ok {
			s.clusterIPs[a], s.hasFrontends[netfilter.FamilyOf(a)] = true, true
		}
	}
	s.notJudged++
}

// isFrontend tells whether an address and port, also that of a NodePort, is a frontend of a Service.
func (n *node) isFrontend(k frontendKey) bool {
	if n.due(k) {
		return true
	}
	local, _ := n.net.Local(k.addr)
	return local && n.survey.frontends[frontendKey{proto: k.proto, port: k.port}]
}

func protocolNumber(p corev1.Protocol) uint8 {
	switch p {
	case corev1.ProtocolUDP:
		return netfilter.UDP
	case corev1.ProtocolSCTP:
		return netfilter.SCTP
	case corev1.ProtocolTCP:
	}
	return netfilter.TCP
}
