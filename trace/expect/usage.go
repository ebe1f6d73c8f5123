// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Use tells whether traffic of one policy is sent to an endpoint, and why or why not, in one clause for the user.
type Use struct {
	Used bool
	Why  string
	// NotFollowed says that no traffic of the Service follows the policy, so that it uses no endpoint.
	NotFollowed bool
}

// Usage is an endpoint with its use by each traffic policy on this node.
type Usage struct {
	Endpoint
	// Cluster is for traffic policy Cluster, and for pods and processes of this node even where externalTrafficPolicy is
	// Local.
	Cluster Use
	// Local is for traffic policy Local.
	Local Use
}

// Usage returns every endpoint of a Service port in a family, used or not, in the order of Endpoints, each with the
// reason why it is used or not (pkg/proxy/topology.go, CategorizeEndpoints).
func (n *Node) Usage(name types.NamespacedName, port *corev1.ServicePort, family corev1.IPFamily) []Usage {
	if s := n.service(name); s != nil && s.reason == "" && port != nil {
		if f := s.families[indexOf(family)]; f != nil {
			if p := f.port(port.Name, port.Protocol); p != nil {
				return n.usage(p)
			}
		}
	}
	all := n.Endpoints(name, port, family)
	out := make([]Usage, len(all))
	for i := range all {
		not := Use{Why: "kube-proxy programs nothing for this Service port"}
		out[i] = Usage{Endpoint: all[i], Cluster: not, Local: not}
	}
	return out
}

func (n *Node) usage(p *servicePort) []Usage {
	out := make([]Usage, len(p.all))
	for i := range p.all {
		e := &p.all[i]
		out[i] = Usage{Endpoint: *e, Cluster: n.clusterUse(p, e), Local: n.localUse(p, e)}
	}
	return out
}

func containsEndpoint(l []Endpoint, e *Endpoint) bool {
	for i := range l {
		if l[i].Address == e.Address {
			return true
		}
	}
	return false
}

func (n *Node) clusterUse(p *servicePort, e *Endpoint) Use {
	used := containsEndpoint(p.cluster, e)
	switch {
	case !p.usesCluster:
		return Use{Why: "no traffic of this Service follows policy Cluster", NotFollowed: true}
	case used && e.Ready && p.topology == sameZone:
		return Use{Used: true, Why: "ready, and meant for zone " + n.zone}
	case used && e.Ready && p.topology == sameNode:
		return Use{Used: true, Why: "ready, and meant for node " + n.name}
	case used:
		return Use{Used: true, Why: n.conditions(e, "")}
	case e.Ready && p.topology == sameZone:
		return Use{Why: "ready, but meant for " + list("zone", e.HintZones) + ", and zone " + n.zone + " has its own"}
	case e.Ready && p.topology == sameNode:
		return Use{Why: "ready, but meant for " + list("node", e.HintNodes) + ", and node " + n.name + " has its own"}
	}
	return Use{Why: n.conditions(e, "others are ready")}
}

func (n *Node) localUse(p *servicePort, e *Endpoint) Use {
	switch {
	case !p.usesLocal:
		return Use{Why: "no traffic of this Service follows policy Local", NotFollowed: true}
	case !e.Local && e.Node == "":
		return Use{Why: "its EndpointSlice names no node"}
	case !e.Local:
		return Use{Why: "on node " + e.Node + ", not on " + n.name}
	case containsEndpoint(p.local, e):
		return Use{Used: true, Why: n.conditions(e, "")}
	}
	return Use{Why: n.conditions(e, "others on this node are ready")}
}

// conditions describes an endpoint's conditions; besides is the reason why a terminating one is not used.
func (n *Node) conditions(e *Endpoint, besides string) string {
	switch {
	case e.Ready:
		return "ready"
	case e.Terminating && e.Serving && besides == "":
		return "terminating, but still serving, and none is ready"
	case e.Terminating && e.Serving:
		return "terminating; " + besides
	case e.Terminating:
		return "terminating, and no longer serving"
	case e.Serving:
		return "not ready, though serving"
	}
	return "not ready"
}

func list(what string, names []string) string {
	switch len(names) {
	case 0:
		return "no " + what
	case 1:
		return what + " " + names[0]
	}
	return what + "s " + strings.Join(names, ", ")
}
