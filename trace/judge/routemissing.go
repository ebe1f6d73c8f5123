// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// RouteMissing says that the pods of a Node have no route of their own, as those of others have.
const RouteMissing = "RouteMissing"

var _ = register(kind{
	code: RouteMissing, severity: note, scope: onPath,
	by: unsureHop(stageOnward, RouteMissing, (*pathCase).byDefaultGateway,
		"the endpoint's Node is on the same link, and packets to its pods leave by the default gateway, while the pods of "+
			"another Node have a route of their own: whether the gateway passes them on is not known"),
})

// byDefaultGateway: a CNI that routes pods' packets to their Nodes gives the pods of each Node on the link a route.
// Where it gives none to any of them, the network beyond the node routes to pods.
func (p *pathCase) byDefaultGateway(h hop, end *netfilter.Outcome) *doubt {
	if !p.net.DefaultGateway(h.ip) || h.ip == end.Packet.Dst || p.cluster.ofNode(h.ip) != "" {
		return nil
	}
	q := host.Query{Dst: end.Packet.Dst, AnyMark: true, AnyUID: true}
	if o := &p.want.Origin; o.Kind == expect.FromPod {
		q.Src = o.Address
		if !netfilter.IsUnknown(o.Iface) {
			q.In = o.Iface
		}
	}
	if l := p.net.Lookup(q); !l.Known || !l.By.Default() {
		return nil // somebody has set a route by that gateway
	}
	of := p.cluster.nodeOfPods(end.Packet.Dst)
	if of == nil || of.Name == p.Name || !p.onLink(of, h) {
		return nil
	}
	v4 := h.ip.Is4()
	for _, other := range p.routedNodes(v4) {
		if other.node == of.Name {
			continue
		}
		return &doubt{
			evidence: fmt.Sprintf("%s is a pod's of %s, and leaves by %s; %s has %s", end.Packet.Dst, of.Name, h.ip,
				other.node, other.route),
			look: []report.Command{p.onNode("to see the routes", "ip", familyFlag(v4), "route")},
		}
	}
	return nil
}

func familyFlag(v4 bool) string {
	if v4 {
		return "-4"
	}
	return "-6"
}

// onLink tells whether a Node has an address that is not behind a gateway, by the interface of a next hop.
func (n *node) onLink(o *corev1.Node, h hop) bool {
	for _, x := range o.Status.Addresses {
		a, err := netip.ParseAddr(x.Address)
		if err != nil || x.Type != corev1.NodeInternalIP || a.Is4() != h.ip.Is4() {
			continue
		}
		if r, known, _ := n.net.Route(a); known && r.Dev == h.dev && !r.Gateway.IsValid() && !r.Unusable() {
			return true
		}
	}
	return false
}

// routedNode is a Node to whose pods a route leads by its own address.
type routedNode struct{ node, route string }

// routedNodes are two of those, at most: found once.
func (w *worker) routedNodes(v4 bool) []routedNode {
	if out, known := w.routed[v4]; known {
		return out
	}
	out := []routedNode{}
	for _, o := range w.cluster.Nodes {
		for _, text := range o.Spec.PodCIDRs {
			pods, ok := kubeproxy.ParsePrefix(text)
			if !ok || o.Name == w.Name || pods.Addr().Is4() != v4 || len(out) == 2 {
				continue
			}
			r, known, _ := w.net.Route(pods.Addr().Next())
			if known && r.Gateway.IsValid() && !w.net.DefaultGateway(r.Gateway) && w.cluster.ofNode(r.Gateway) == o.Name {
				out = append(out, routedNode{o.Name, fmt.Sprintf("%s via %s dev %s", pods, r.Gateway, r.Dev)})
			}
		}
	}
	if w.routed == nil {
		w.routed = map[bool][]routedNode{}
	}
	w.routed[v4] = out
	return out
}
