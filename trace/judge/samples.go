// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/internal/parallel"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
)

// sources are the addresses of a node that stand for others in the judgement, where nobody names an origin.
type sources struct {
	// Local pods, by family: of its networks first, then those that are not an endpoint, then by address.
	pods    [2][]pod
	outside [2][]netip.Addr       // of nobody in the cluster, by family
	inside  []netip.Prefix        // the networks of pods, Services and nodes
	local   map[netip.Addr]string // local pods by address, with their names where known
}

// strangers are addresses for documentation and benchmarks, which nobody has (RFC 5737, RFC 2544, RFC 3849, RFC 5180,
// RFC 9637), and last, as firewalls drop those, some of servers for names of private networks (AS112, RFC 7535), which
// the Internet routes.
var strangers = [2][]string{
	{
		"192.0.2.77", "198.18.0.77", "203.0.113.177", "198.51.100.177", "198.19.255.77", "192.0.2.201", "203.0.113.9",
		"198.51.100.9", "192.31.196.77", "192.175.48.77",
	},
	{"2001:db8::77", "2001:2::77", "2001:db8:ffff::77", "3fff::77", "2001:4:112::77", "2620:4f:8000::77"},
}

// familyIndex is the place of a family in tables of two.
func familyIndex(v4 bool) int {
	if v4 {
		return 0
	}
	return 1
}

// look surveys what is expected, and finds who sends from outside, and which rules tell senders apart.
func (n *node) look() {
	sampled := *n // the survey copies the node for its worlds
	var beside parallel.Group
	beside.Go(func() {
		sampled.sources.inside, sampled.sources.outside = sampled.strangersTo()
		sampled.distinct = sampled.distinguished()
		sampled.preferUnnamed()
	})
	n.survey = n.surveyed()
	beside.Wait()
	n.sources, n.distinct = sampled.sources, sampled.distinct
}

// podsAsSamples are the pods of the node, by family in the order of sources.pods, and by address.
func (n *node) podsAsSamples() (pods [2][]pod, local map[netip.Addr]string) {
	local = n.localPods()
	for a, name := range local {
		i := familyIndex(a.Is4())
		p := pod{name: name}
		if a.Is4() {
			p.v4 = a
		} else {
			p.v6 = a
		}
		pods[i] = append(pods[i], p)
	}
	for i := range pods {
		v4 := i == 0
		slices.SortFunc(pods[i], func(a, b pod) int {
			x, y := a.address(v4), b.address(v4)
			// Whoever writes an EndpointSlice can name this node beside any address.
			if e, f := within(x, n.podCIDRs), within(y, n.podCIDRs); e != f {
				if e {
					return -1
				}
				return 1
			}
			if e, f := n.cluster.hasEndpoint(x), n.cluster.hasEndpoint(y); e != f {
				if f {
					return -1
				}
				return 1
			}
			return x.Compare(y)
		})
	}
	return pods, local
}

// strangersTo are the addresses of nobody in the cluster, by family, and the networks that those are not of.
func (n *node) strangersTo() (inside []netip.Prefix, outside [2][]netip.Addr) {
	inside = n.clusterNetworks()
	for i := range outside {
		for _, text := range strangers[i] {
			if a := netip.MustParseAddr(text); !within(a, inside) && !n.cluster.hasEndpoint(a) {
				outside[i] = append(outside[i], a)
			}
		}
	}
	return inside, outside
}

// localPods are the pods of the node, by address: those that the API lists, else the endpoints that have the node's
// name.
func (n *node) localPods() map[netip.Addr]string {
	out := map[netip.Addr]string{}
	add := func(a netip.Addr, name string) {
		if local, _ := n.net.Local(a); !a.IsValid() || local || a == n.internalIP(a.Is4()) {
			return // of the node's own network
		}
		out[a] = name
	}
	for _, p := range n.pods() {
		add(p.v4, p.name)
		add(p.v6, p.name)
	}
	if len(out) > 0 {
		return out
	}
	for a, name := range n.cluster.onNode[n.Name] {
		add(a, name)
	}
	return out
}

// clusterNetworks are the networks that nobody outside of the cluster has an address of, as far as they are known.
func (n *node) clusterNetworks() []netip.Prefix {
	out := slices.Concat(n.podCIDRs, n.config.ClusterCIDRs)
	for _, o := range n.cluster.Nodes {
		for _, text := range o.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				out = append(out, p)
			}
		}
		for i := range o.Status.Addresses {
			if a, err := netip.ParseAddr(o.Status.Addresses[i].Address); err == nil {
				out = append(out, netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	for _, a := range n.net.Addresses() {
		if _, subnet := n.net.SubnetOf(a); subnet.IsValid() && subnet.Bits() > 0 {
			out = append(out, subnet.Masked())
		}
	}
	// The Services' networks are in no Node; the addresses given are of them.
	seen := map[netip.Prefix]bool{}
	for _, svc := range n.cluster.Services {
		for _, text := range append([]string{svc.Spec.ClusterIP}, svc.Spec.ClusterIPs...) {
			a, err := netip.ParseAddr(text)
			if err != nil {
				continue
			}
			if p := netip.PrefixFrom(a, serviceNetworkBits[familyIndex(a.Is4())]).Masked(); !seen[p] {
				seen[p] = true
				out = append(out, p)
			}
		}
	}
	return out
}

// serviceNetworkBits are the lengths of networks, by family, in which every address is taken for one of the Services'
// where a cluster IP is in it. They are seldom smaller.
var serviceNetworkBits = [2]int{16, 112}

// stranger returns an address of nobody in the cluster that is in none of the ranges.
func (n *node) stranger(f expect.Frontend, ranges []netip.Prefix) netip.Addr {
	for _, a := range n.sources.outside[familyIndex(f.Address.Is4())] {
		if !within(a, ranges) && a != f.Address {
			return a
		}
	}
	return netip.Addr{}
}

// fromPod is a pod of this node that is not itself an endpoint behind the frontend; an address of the node's pod
// network where no pod is known.
func (n *node) fromPod(f expect.Frontend) expect.Origin {
	v4 := f.Address.Is4()
	list := n.sources.pods[familyIndex(v4)]
	for i := range list {
		if a := list[i].address(v4); !n.cluster.hasEndpoint(a) || !n.behind(f, a) {
			return n.podOrigin(a, list[i].name)
		}
	}
	for _, cidr := range n.podCIDRs {
		if cidr.Addr().Is4() != v4 {
			continue
		}
		// From the top: what a CNI gives out first is at the bottom, the broadcast address is never a pod's.
		a := lastOf(cidr)
		for range 1024 {
			a = a.Prev()
			if !cidr.Contains(a) {
				break
			}
			if local, known := n.net.Local(a); !n.cluster.hasEndpoint(a) && (!known || !local) {
				return n.podOrigin(a, "")
			}
		}
	}
	return expect.Origin{Kind: expect.FromPod, Sample: true}
}

// podOrigin is a pod of the node as a sample.
func (n *node) podOrigin(a netip.Addr, name string) expect.Origin {
	return expect.Origin{Kind: expect.FromPod, Address: a, Pod: name, Iface: n.ifaceOf(a), Sample: true}
}

// behind tells whether an address is one of the endpoints of a frontend's Service.
func (n *node) behind(f expect.Frontend, a netip.Addr) bool {
	return slices.ContainsFunc(n.endpointsBehind(f), func(e expect.Endpoint) bool { return e.Address.Addr() == a })
}

// endpointsBehind are all endpoints of a frontend's Service port, used or not.
func (n *node) endpointsBehind(f expect.Frontend) []expect.Endpoint {
	svc := n.cluster.services[f.Service]
	if svc == nil {
		return nil
	}
	for i := range svc.Spec.Ports {
		if p := &svc.Spec.Ports[i]; p.Name == f.PortName && (p.Protocol == f.Protocol || p.Protocol == "") {
			return n.exp.Endpoints(f.Service, p, familyOf(f))
		}
	}
	return nil
}

// fromItself is an endpoint of this node as its own client, through its Service (hairpin); false where the node has
// none.
func (n *node) fromItself(f expect.Frontend) (expect.Origin, bool) {
	for _, e := range n.endpointsBehind(f) {
		a := e.Address.Addr()
		local, known := n.net.Local(a)
		if !e.Local || !e.Ready || !known || local {
			continue
		}
		o := n.podOrigin(a, e.Pod)
		if o.Pod == "" {
			o.Pod = n.sources.local[a]
		}
		return o, true
	}
	return expect.Origin{}, false
}

// knownOrigin makes a pod of an address that was asked for as one from outside, where it is a pod of the node: one that
// is known, or one of the node's pod network to which the node has a route of its own.
func (n *node) knownOrigin(o expect.Origin) expect.Origin {
	if o.Kind != expect.FromExternal || !o.Address.IsValid() {
		return o
	}
	if name, ok := n.sources.local[o.Address]; ok {
		o.Kind, o.Pod = expect.FromPod, name
		return o
	}
	own := n.podNetworks()
	local, _ := n.net.Local(o.Address)
	switch name, ok := n.cluster.onNode[n.Name][o.Address]; {
	case local:
		return o
	case ok || within(o.Address, own):
		o.Kind, o.Pod = expect.FromPod, name
		return o
	case !within(o.Address, slices.Concat(n.podCIDRs, n.config.ClusterCIDRs)):
		return o
	}
	// Of another node's pods the packets come in by the uplink, or by a tunnel of the network between the nodes.
	if n.elsewhere(o.Address) {
		return o
	}
	if dev := n.net.Toward(o.Address); dev == "" || dev != n.uplink(o.Address.Is4()) && n.net.OnLink(o.Address) {
		o.Kind = expect.FromPod
	}
	return o
}

// elsewhere tells whether an address is known to be of another node: of its pod network, or of a pod or endpoint there.
func (n *node) elsewhere(a netip.Addr) bool {
	for _, o := range n.cluster.Nodes {
		for _, text := range o.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(text); err == nil && p.Contains(a) {
				return o.Name != n.Name
			}
		}
	}
	for name, list := range n.cluster.onNode {
		if _, ok := list[a]; ok && name != n.Name {
			return true
		}
	}
	for name, list := range n.cluster.pods {
		for i := range list {
			if list[i].address(a.Is4()) == a && name != n.Name {
				return true
			}
		}
	}
	return false
}
