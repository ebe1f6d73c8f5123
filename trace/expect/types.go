// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"net/netip"

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

// Origin is the sender of the packet.
type Origin struct {
	Kind    OriginKind
	Address netip.Addr // source address of the packet
	Iface   string     // interface that it comes in by; "" for FromNode, netfilter.UnknownIface when not known
	Pod     string     // namespace/name, where known
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

// Masquerade says when the source address is translated on the way to the endpoint.
type Masquerade string

// The masquerade expectations.
const (
	MasqAlways  Masquerade = "Always"
	MasqNever   Masquerade = "Never"   // not by kube-proxy (a CNI may)
	MasqHairpin Masquerade = "Hairpin" // only when the endpoint chosen is the sender itself
	MasqUnknown Masquerade = ""        // depends on kube-proxy's configuration, which was not collected
)

// Leads tells whether packets come to an endpoint.
func (a Action) Leads() bool { return a == DNAT || a == Proxy }

// Reason codes of by-design answers; they are also finding codes (docs/findings.md).
const (
	ReasonNoEndpoints      = "NoEndpoints"
	ReasonNoLocalEndpoints = "NoLocalEndpoints"
	ReasonSourceRange      = "SourceRange"
	ReasonNotForKubeProxy  = "NotForKubeProxy"
	ReasonHeadless         = "Headless"
	ReasonExternalName     = "ExternalName"
	ReasonNodePortAddress  = "NodePortAddress" // a node address that nodePortAddresses (or the mode) leaves out
)

// Endpoint is one address and port that a Service port leads to, and why it is used or not.
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
	// a by-design code, where Action is not DNAT, or where it leads to endpoints that the traffic policy rules out
	Reason string
	Why    string // one clause for people, with names and numbers, where there is a Reason
	// Unsure says, in one clause, why the answer is not certain: it rests on something that was not collected or that
	// kube-proxy leaves to chance. Action and Endpoints are then the likelier answer, and a difference proves nothing.
	Unsure string

	admitted bool // the sender is within the source ranges, whatever its address
}
