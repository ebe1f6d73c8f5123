// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"net/netip"
	"sync"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Inputs are the objects and settings from which kube-proxy on one node computes its rules.
type Inputs struct {
	Services []*corev1.Service
	Slices   []*discoveryv1.EndpointSlice
	Node     *corev1.Node // nil when the Node object was not collected
	// NodeName is the node name that kube-proxy uses (hostnameOverride, else the Node's name).
	NodeName string
	Config   kubeproxy.Config
	// Layout is what the node's rules show; what they do not show is taken from Config.Version.
	Layout kubeproxy.Layout
	// Addresses are the node's own addresses (ip addr); nil when they were not collected.
	Addresses []netip.Addr
	// PodNames gives namespace/name for pod addresses, where pods were collected.
	PodNames map[netip.Addr]string
	// Index is an index of Slices, built once for the expectations of many nodes; nil: New builds one.
	Index *Index
}

// Index is what the expectations of all nodes share. It is immutable and safe for concurrent use.
type Index struct {
	loads

	slices map[types.NamespacedName][]*discoveryv1.EndpointSlice
}

// NewIndex indexes the EndpointSlices of a cluster by Service, and counts what judging each Service takes. They must
// not be changed afterwards. left are Services that are not judged, and why.
func NewIndex(
	services []*corev1.Service, all []*discoveryv1.EndpointSlice, left map[types.NamespacedName]string,
) *Index {
	out := &Index{slices: indexSlices(all)}
	out.loads = loadsOf(services, out.slices, left)
	return out
}

// Node is the expectation for one node. It is safe for concurrent use.
type Node struct {
	in       Inputs
	name     string
	zone     string
	features features
	layout   kubeproxy.Layout
	mode     *mode
	services map[types.NamespacedName]*service
	local    map[netip.Addr]bool // the node's own addresses
	claims   claims
	crowds   sync.Map // of *crowd, by claim

	// By family.
	detectors [2]detector
	nodeIPs   [2]netip.Addr
	nodePorts [2]nodePorts
}

// New prepares the expectation. The objects in must not be changed afterwards.
func New(in Inputs) *Node {
	minor, _ := minorOf(in.Config.Version)
	n := &Node{
		in: in, name: in.NodeName, layout: in.Layout.Over(minor), nodeIPs: nodeIPsOf(&in),
	}
	n.mode = modeOf(&in.Config, n.layout)
	n.features = featuresOf(&in.Config).of(n.mode)
	if in.Node != nil {
		n.zone = in.Node.Labels[corev1.LabelTopologyZone]
		if n.name == "" {
			n.name = in.Node.Name
		}
	}
	n.local = make(map[netip.Addr]bool, len(in.Addresses))
	for _, a := range in.Addresses {
		n.local[a.Unmap()] = true
	}
	for family := range n.detectors {
		n.detectors[family] = detectorOf(&n.in, family)
		n.nodePorts[family] = n.nodePortsOf(family)
	}
	n.services = make(map[types.NamespacedName]*service, len(in.Services))
	all := make([]service, len(in.Services))
	for i, svc := range in.Services {
		all[i].svc, all[i].name = svc, NameOf(svc)
		n.services[all[i].name] = &all[i]
	}
	if n.in.Index == nil {
		n.in.Index = NewIndex(in.Services, in.Slices, nil)
	}
	n.claims = n.claimsOf(in.Services)
	return n
}

// Ignored returns the reason code and a clause for the user when kube-proxy programs nothing for the Service (headless,
// ExternalName, service-proxy-name, no port); the code is empty when it does. The rules are those of ShouldSkipService
// (pkg/proxy/util/utils.go) and of the informers' selectors (cmd/kube-proxy/app/server.go).
func (n *Node) Ignored(svc *corev1.Service) (reason, why string) {
	s := n.of(svc)
	return s.reason, s.why
}

// Endpoints returns every endpoint of a Service port in a family, used or not, ordered by address. Also for Services
// that kube-proxy ignores; a nil port then takes every address, with port 0. The result must not be changed.
func (n *Node) Endpoints(name types.NamespacedName, port *corev1.ServicePort, family corev1.IPFamily) []Endpoint {
	s := n.service(name)
	if s != nil && s.reason == "" && port != nil {
		if f := s.families[indexOf(family)]; f != nil {
			if p := f.port(port.Name, port.Protocol); p != nil {
				return p.all
			}
		}
	}
	if s != nil && s.beyond != "" {
		return nil
	}
	return n.collect(name, port, indexOf(family), s == nil || s.reason != "").endpoints
}

// port returns a port by name and protocol, nil when there is none.
func (f *familyService) port(name string, protocol corev1.Protocol) *servicePort {
	for i := range f.ports {
		if p := f.ports[i].spec; p.Name == name && protocolOf(p.Protocol) == protocolOf(protocol) {
			return &f.ports[i]
		}
	}
	return nil
}
