// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"fmt"
	"maps"
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What a Service costs is counted before anything of it is expanded, from the lengths of its lists: the paths that are
// judged, each as pathCost and its endpoints. It does not depend on a node, so that a Service is left out on all of
// them or on none.
const (
	// pathCost is what a path costs without endpoints, in what an endpoint on it does.
	pathCost = 30
	// rangePaths is how many clients stand for a source range: its ends, and those next to them.
	rangePaths = 4
	// With session affinity, and for pods that reach themselves, there is a walk for each endpoint, or for each on the
	// node, through the rules of all: rulesRun is how many of these take the time of an endpoint, branchesFollowed how
	// many where all endpoints are possible.
	rulesRun, branchesFollowed = 128, 2
	// rangesLookedAt is how many source ranges are compared in the time that an endpoint takes.
	rangesLookedAt = 16
	// endpointMemory is what an Endpoint takes without its texts, in bytes, and hintMemory what a hint does; reportMemory
	// is what one takes in a report, where the endpoints of a port are one list for all paths that are not right.
	endpointMemory, hintMemory, reportMemory = 160, 16, 80
)

// loads are what the Services of a cluster cost, and why those are not judged that cost too much.
type loads struct {
	cost   map[types.NamespacedName]int
	beyond map[types.NamespacedName]string
}

// loadsOf finds out which Services are judged: none that is left out already, or that costs more than
// bounds.ServiceWork, and of the rest as many as bounds.Work and bounds.Endpoints allow, shared out by bounds.Share.
func loadsOf(
	services []*corev1.Service, index map[types.NamespacedName][]*discoveryv1.EndpointSlice,
	left map[types.NamespacedName]string,
) loads {
	out := loads{cost: make(map[types.NamespacedName]int, len(services)), beyond: map[types.NamespacedName]string{}}
	maps.Copy(out.beyond, left)
	work := make(map[types.NamespacedName]int, len(services))
	memory := make(map[types.NamespacedName]int, len(services))
	for _, svc := range services {
		name := NameOf(svc)
		cost, takes := costOf(svc, index[name])
		out.cost[name] = cost
		switch {
		case out.beyond[name] != "":
		case cost > bounds.ServiceWork:
			out.beyond[name] = fmt.Sprintf("judging it takes more than %d steps (its ports × addresses × clients × "+
				"endpoints)", bounds.ServiceWork)
		default:
			work[name], memory[name] = cost, takes
		}
	}
	for _, name := range bounds.Share(bounds.Work, work) {
		out.beyond[name] = fmt.Sprintf("judging all Services takes more than %d steps, and those of its namespace more than "+
			"its share", bounds.Work)
		delete(memory, name)
	}
	for _, name := range bounds.Share(bounds.Endpoints, memory) {
		out.beyond[name] = "the endpoints of all Services' ports take more than " + bounds.Bytes(bounds.Endpoints) +
			", and those of its namespace more than its share"
	}
	return out
}

// costOf counts what judging a Service takes, and how many bytes of memory its endpoints do meanwhile.
func costOf(svc *corev1.Service, all []*discoveryv1.EndpointSlice) (cost, memory int) {
	if svc.Spec.Type == corev1.ServiceTypeExternalName || svc.Spec.ClusterIP == corev1.ClusterIPNone {
		return 0, 0
	}
	listed := map[string]int{} // endpoints, by the name of the port
	on := map[string]int{}     // of all ports, by the name of the node
	// Those that a traffic policy uses are a list of their own where it does not use all.
	lists := 1
	if local := corev1.ServiceExternalTrafficPolicyLocal; svc.Spec.ExternalTrafficPolicy == local ||
		svc.Spec.InternalTrafficPolicy != nil && string(*svc.Spec.InternalTrafficPolicy) == string(local) {
		lists++
	}
	chosen, twice := 0, false
	seen := map[string]bool{}
	for _, s := range all {
		texts := 0 // bytes, of a port
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if name := e.NodeName; name != nil {
				on[*name]++
			}
			if t := e.TargetRef; t != nil {
				texts += len(t.Namespace) + len(t.Name) + 1
			}
			if e.Hints != nil {
				texts += hintMemory * (len(e.Hints.ForZones) + len(e.Hints.ForNodes))
			}
			if len(e.Addresses) > 0 && !twice {
				twice = seen[e.Addresses[0]]
				seen[e.Addresses[0]] = true
			}
			if e.Hints != nil || !IsReady(e) {
				chosen = 1
			}
		}
		memory += texts * len(s.Ports)
		for i := range s.Ports {
			if name := s.Ports[i].Name; name != nil {
				listed[*name] += len(s.Endpoints)
			}
		}
	}
	ranges := len(svc.Spec.LoadBalancerSourceRanges)
	ingress, external := len(svc.Status.LoadBalancer.Ingress), len(svc.Spec.ExternalIPs)
	cost = ranges
	onOne := 0
	for _, count := range on {
		onOne = max(onOne, count)
	}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		count := listed[p.Name]
		memory += count * (endpointMemory*(lists+chosen) + reportMemory*lists)
		if twice {
			memory += min(count*listsOf(len(all)), maxListed) * (endpointMemory*(lists+chosen) + reportMemory)
		}
		each := pathCost + count
		if svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
			each += count * (count / rulesRun)
		}
		other := each + ranges/rangesLookedAt // what looks for a client outside of all ranges
		cost += count + max(len(svc.Spec.ClusterIPs), 1)*(3*each+onOne*count/branchesFollowed) +
			external*2*other + ingress*(2+rangePaths*ranges)*other
		if p.NodePort != 0 {
			cost += 2 * max(len(svc.Spec.ClusterIPs), 1) * other
		}
	}
	return cost, memory
}

// Beyond returns why a Service is not judged, in a clause; "" where it is.
func (n *Node) Beyond(svc *corev1.Service) string { return n.of(svc).beyond }

// Cost is about what judging a Service takes, to begin with those that cost little.
func (n *Node) Cost(svc *corev1.Service) int { return n.in.Index.cost[NameOf(svc)] }

// wide are the claims of a Service that is not judged: every address with every port.
type wide struct {
	service types.NamespacedName
	ports   map[claim]string // without addresses; the names of the ports
	kinds   map[netip.Addr]FrontendKind
}

// Claimed returns whether a Service that is not judged claims an address and port, of any other Service than except.
func (n *Node) Claimed(a netip.Addr, port uint16, protocol corev1.Protocol) bool {
	return len(n.claims.wide(claim{a, int32(port), protocol}, 1)) > 0
}

// ClaimsAddress returns whether a Service that is not judged has an address.
func (n *Node) ClaimsAddress(a netip.Addr) bool { return len(n.claims.at[a]) > 0 }

// wide returns the Services that are not judged and have a claim, at most some.
func (c *claims) wide(k claim, most int) (out []claimant) {
	port := claim{port: k.port, protocol: k.protocol}
	for _, w := range c.at[k.address] {
		if name, ok := w.ports[port]; ok && len(out) < most {
			out = append(out, claimant{w.service, name, w.kinds[k.address]})
		}
	}
	return out
}

// addWide adds the claims of a Service that is not judged.
func (n *Node) addWide(out *claims, svc *corev1.Service) {
	w := &wide{NameOf(svc), make(map[claim]string, len(svc.Spec.Ports)), map[netip.Addr]FrontendKind{}}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		w.ports[claim{port: p.Port, protocol: protocolOf(p.Protocol)}] = p.Name
	}
	n.eachAddress(svc, func(kind FrontendKind, text string) {
		if a, ok := kubeproxy.ParseAddr(text); ok && w.kinds[a] == "" {
			w.kinds[a] = kind
			out.at[a] = append(out.at[a], w)
		}
	})
}
