// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"net/netip"
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// FrontendKind is the kind of address that a Service is reached at.
type FrontendKind string

// The kinds of frontend.
const (
	ClusterIP      FrontendKind = "ClusterIP"
	NodePort       FrontendKind = "NodePort"
	ExternalIP     FrontendKind = "ExternalIP"
	LoadBalancerIP FrontendKind = "LoadBalancerIP"
)

// Frontend is one address and port of one Service port.
type Frontend struct {
	Service  types.NamespacedName
	PortName string
	Kind     FrontendKind
	Address  netip.Addr
	Port     uint16
	Protocol corev1.Protocol
}

// OriginKind is where a packet comes from, seen from the node.
type OriginKind string

// The kinds of origin.
const (
	FromPod      OriginKind = "pod"      // a pod of this node; enters at PREROUTING
	FromNode     OriginKind = "node"     // a local process in the node's network namespace; enters at OUTPUT
	FromExternal OriginKind = "external" // from outside, entering at PREROUTING on the uplink
)

// Origin is the source of a packet.
type Origin struct {
	Kind    OriginKind
	Address netip.Addr // source address of the packet
	Iface   string     // incoming interface; "" for FromNode, netfilter.UnknownIface when not known
	Pod     string     // namespace/name, where known
	Sample  bool       // nobody asked for this address: it stands for others of its kind
}

// Action is what kube-proxy makes the kernel do with a packet to a frontend.
type Action string

// The actions.
const (
	DNAT   Action = "DNAT"   // translated to one of the endpoints
	Reject Action = "Reject" // refused with ICMP port unreachable: no endpoints anywhere
	Drop   Action = "Drop"   // dropped silently: no local endpoints, or the source is outside the source ranges
	None   Action = "None"   // kube-proxy programs nothing for it
	Proxy  Action = "Proxy"  // no rule: kube-proxy itself listens there and connects to one of the endpoints
)

// Masquerade tells when the source address of packets to an endpoint is translated.
type Masquerade string

// The masquerade expectations.
const (
	MasqAlways  Masquerade = "Always"
	MasqNever   Masquerade = "Never"   // not by kube-proxy (a CNI may)
	MasqHairpin Masquerade = "Hairpin" // only when the endpoint chosen is the source itself
	MasqUnknown Masquerade = ""        // depends on kube-proxy's configuration, which was not collected
)

// ReachesEndpoint tells whether packets with this action reach an endpoint.
func (a Action) ReachesEndpoint() bool { return a == DNAT || a == Proxy }

// Reason codes of by-design answers; they are also finding codes (docs/findings.md).
const (
	ReasonNoEndpoints      = "NoEndpoints"
	ReasonNoLocalEndpoints = "NoLocalEndpoints"
	ReasonSourceRange      = "SourceRange"
	ReasonNotForKubeProxy  = "NotForKubeProxy"
	ReasonHeadless         = "Headless"
	ReasonExternalName     = "ExternalName"
	ReasonKubeProxyBug     = "KubeProxyBug"    // a fault of the version of kube-proxy
	ReasonNodePortAddress  = "NodePortAddress" // a node address that nodePortAddresses (or the mode) leaves out
)

// Endpoint is one address and port of a Service port's endpoints, with the conditions that decide whether it is used.
type Endpoint struct {
	Address     netip.AddrPort
	Node, Pod   string // names; Pod is namespace/name; empty where unknown
	Zone        string
	Slices      []string // names of the EndpointSlices that hold it
	Ready       bool
	Serving     bool
	Terminating bool
	Local       bool // on the node the expectation is for
	HintZones   []string
	HintNodes   []string
}

// Path is what must happen to a packet from Origin to Frontend.
type Path struct {
	Frontend        Frontend
	Origin          Origin
	Action          Action
	Endpoints       []Endpoint // for DNAT and Proxy: all with equal share, ordered by address
	Masquerade      Masquerade
	AffinitySeconds int32 // 0: no session affinity
	// a by-design code, where Action is not DNAT, or where the endpoints are some that the traffic policy excludes
	Reason string
	Why    string // one clause for the user, with names and numbers, where there is a Reason
	// Unsure is the reason, in one clause, why the path is not certain: it depends on something that was not collected or
	// that is undefined in kube-proxy. Action and Endpoints are then the more likely ones, and a difference proves
	// nothing.
	Unsure string

	// OneOf is the reason, in one clause, why this is one of several paths that kube-proxy may have programmed for the
	// frontend's own Service (see Node.Answers).
	OneOf string

	inRanges bool // take the source as within the source ranges, whatever its address
}

// EndpointsAt returns the endpoints with an address.
func (p *Path) EndpointsAt(a netip.Addr) []Endpoint {
	first := sort.Search(len(p.Endpoints), func(i int) bool { return p.Endpoints[i].Address.Addr().Compare(a) >= 0 })
	last := first
	for last < len(p.Endpoints) && p.Endpoints[last].Address.Addr() == a {
		last++
	}
	return p.Endpoints[first:last]
}

// Uses returns whether an address and port is one of the endpoints.
func (p *Path) Uses(a netip.AddrPort) bool {
	return slices.ContainsFunc(p.EndpointsAt(a.Addr()), func(e Endpoint) bool { return e.Address == a })
}
