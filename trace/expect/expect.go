// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Inputs are what kube-proxy on one node decides from.
type Inputs struct {
	Services []*corev1.Service
	Slices   []*discoveryv1.EndpointSlice
	Node     *corev1.Node // nil when the Node object was not collected
	// NodeName is the name that kube-proxy takes for its own (hostnameOverride, else the Node's name).
	NodeName string
	Config   Config
	// Addresses are the node's own addresses (ip addr); nil when they were not collected.
	Addresses []netip.Addr
	// PodNames gives namespace/name for pod addresses, where pods were collected.
	PodNames map[netip.Addr]string
}

// Node is the expectation for one node. It is safe for concurrent use.
type Node struct{}

// New prepares the expectation.
func New(in Inputs) *Node { return &Node{} }

// Frontends returns every frontend of a Service that kube-proxy has to program on this node, both families, ordered. It is
// empty for Services that kube-proxy ignores (Ignored says why).
func (n *Node) Frontends(svc *corev1.Service) []Frontend { return nil }

// Ignored returns the reason code and a clause for people when kube-proxy programs nothing for the Service (headless,
// ExternalName, service-proxy-name, no port); the code is empty when it does.
func (n *Node) Ignored(svc *corev1.Service) (reason, why string) { return "", "" }

// Endpoints returns every endpoint of a Service port in a family, used or not, ordered by address.
func (n *Node) Endpoints(svc types.NamespacedName, port *corev1.ServicePort, family corev1.IPFamily) []Endpoint {
	return nil
}

// Path returns what must happen to a packet from o to f.
func (n *Node) Path(f Frontend, o Origin) Path { return Path{} }
