// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
)

// Class is a class of addresses that the author of a Service or of an EndpointSlice must not reach, or take from
// others, by what an administrator programs. An address may be of several.
type Class string

// The classes. See the table in [classes].
const (
	Unspecified Class = "unspecified"
	Mapped      Class = "ipv4-mapped"
	Loopback    Class = "loopback"
	LinkLocal   Class = "link-local"
	Multicast   Class = "multicast"
	Broadcast   Class = "broadcast"
	Elsewhere   Class = "elsewhere"
	Metadata    Class = "metadata"
	OfNode      Class = "node"
	APIServer   Class = "api-server"
	OfPod       Class = "pod"
	OfService   Class = "service"
	Resolver    Class = "resolver"
	Gateway     Class = "gateway"
	Listener    Class = "listener"
	NoPod       Class = "no-pod"
)

// ruling is what becomes of a plan with an address of a class.
type ruling uint8

const (
	unnoticed ruling = iota
	ask              // refused, unless the class is allowed by name
	refuse           // refused always
)

// classes are all classes, with what becomes of a frontend's address and of an endpoint's. Those that are refused
// always are not addresses that the API server takes, but for the multicast ones (ValidateNonSpecialIP and
// ValidateEndpointIP of pkg/apis/core/validation: neither unspecified, nor loopback, nor link-local).
var classes = []struct {
	class              Class
	frontend, endpoint ruling
	what               string
}{
	{Unspecified, refuse, refuse, "no address of any host (0.0.0.0/8, ::)"},
	{Mapped, refuse, refuse, "an IPv4 address in the form of an IPv6 one"},
	{Loopback, refuse, refuse, "a loopback address: what listens there is for its own host alone"},
	{LinkLocal, refuse, refuse, "a link-local address, as that of a cloud's metadata service is"},
	{Multicast, refuse, refuse, "a multicast address"},
	{Broadcast, refuse, refuse, "a broadcast address"},
	{Elsewhere, ask, unnoticed, "a NodePort at an address that the node does not have"},
	{Metadata, ask, ask, "the address of a cloud's metadata service"},
	{OfNode, ask, ask, "the address of a node, and of no Pod in its network"},
	{APIServer, ask, ask, "the address of the API server"},
	{OfPod, ask, unnoticed, "the address of a Pod"},
	{OfService, ask, ask, "the address of another Service, or of this one behind itself"},
	{Resolver, ask, unnoticed, "the address of a DNS resolver that the node or the public uses"},
	{Gateway, ask, unnoticed, "the address of one of the node's routers"},
	{Listener, ask, unnoticed, "a NodePort at which a process of the node listens"},
	{NoPod, unnoticed, ask, "not an address of a Pod of the Service's namespace"},
}

// Askable names the classes that can be allowed, in order.
func Askable() []string {
	var out []string
	for _, c := range classes {
		if c.frontend == ask || c.endpoint == ask {
			out = append(out, string(c.class))
		}
	}
	return out
}

// prefixes are the classes that an address tells by itself.
var prefixes = []struct {
	class Class
	in    []netip.Prefix
}{
	// RFC 1122, 3.2.1.3; RFC 4291, 2.5.2.
	{Unspecified, parsed("0.0.0.0/8", "::/128")},
	{Loopback, parsed("127.0.0.0/8", "::1/128")},
	// RFC 4291, 2.5.5.1 and 2.5.5.2; RFC 2765, 2.1. The kernel takes some of them for the IPv4 address.
	{Mapped, parsed("::ffff:0:0/96", "::ffff:0:0:0/96", "::/96")},
	// RFC 3927; RFC 4291, 2.5.6, and 2.5.7 of what was site-local.
	{LinkLocal, parsed("169.254.0.0/16", "fe80::/10", "fec0::/10")},
	{Multicast, parsed("224.0.0.0/4", "ff00::/8")},
	{Broadcast, parsed("255.255.255.255/32")},
	// Of EC2 (IPv6), Google Cloud (IPv6), Azure, Alibaba Cloud and Oracle Cloud; the others are link-local.
	{Metadata, parsed(
		"fd00:ec2::254/128", "fd20:ce::254/128", "168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32",
	)},
	// Of Google, Cloudflare, Quad9 and OpenDNS.
	{Resolver, parsed(
		"8.8.8.8/32", "8.8.4.4/32", "2001:4860:4860::8888/128", "2001:4860:4860::8844/128",
		"1.1.1.1/32", "1.0.0.1/32", "2606:4700:4700::1111/128", "2606:4700:4700::1001/128",
		"9.9.9.9/32", "149.112.112.112/32", "2620:fe::fe/128", "2620:fe::9/128",
		"208.67.222.222/32", "208.67.220.220/32", "2620:119:35::35/128", "2620:119:53::53/128",
	)},
}

func parsed(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// embedded are the prefixes whose addresses lead to the IPv4 address that they contain, and the byte at which that
// begins: NAT64 (RFC 6052, RFC 8215 with a prefix of 96 bits) and 6to4 (RFC 3056).
var embedded = []struct {
	in netip.Prefix
	at int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12},
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12},
	{netip.MustParsePrefix("2002::/16"), 2},
}

// meant returns an address, and the IPv4 address that it leads to where it contains one.
func meant(a netip.Addr) []netip.Addr {
	a = a.WithZone("")
	out := []netip.Addr{a}
	if a.Is4In6() {
		return append(out, a.Unmap())
	}
	for _, e := range embedded {
		if e.in.Contains(a) {
			b := a.As16()
			out = append(out, netip.AddrFrom4([4]byte(b[e.at:e.at+4])))
		}
	}
	return out
}

// ofItself returns the classes that an address tells by itself.
func ofItself(a netip.Addr) []Class {
	var out []Class
	if a.Is4In6() {
		out = append(out, Mapped)
	}
	for _, p := range prefixes {
		if slices.ContainsFunc(p.in, func(in netip.Prefix) bool { return in.Contains(a) }) {
			out = append(out, p.class)
		}
	}
	// ::/96 contains :: and ::1, too.
	if slices.Contains(out, Mapped) && len(out) > 1 && !a.Is4In6() {
		out = slices.DeleteFunc(out, func(c Class) bool { return c == Mapped })
	}
	return out
}

// Facts are what is known of a cluster and a node, by which the classes of a plan's addresses are told. What is missing
// puts no address into a class, except that an endpoint is of class NoPod unless Pods or HostPods has it.
type Facts struct {
	// Own are the node's addresses, but for those in Bound; OwnKnown says that they are all, with those in Local: networks
	// each address of which is the node's.
	Own      []netip.Addr   `json:"-"`
	OwnKnown bool           `json:"-"`
	Local    []netip.Prefix `json:"-"`
	// Bound are addresses that are bound on the node for IPVS: those of Services.
	Bound      []netip.Addr `json:"-"`
	Broadcasts []netip.Addr `json:"-"`
	Gateways   []netip.Addr `json:"-"`
	Resolvers  []netip.Addr `json:"-"`
	// Ports are local addresses and ports at which processes of the node listen; with an unspecified address at all.
	Ports []Socket `json:"-"`
	// ByPod tells whether a process of a Pod listens at an address and port of this node; nil: that is not known.
	ByPod func(at netip.AddrPort, protocol string) bool `json:"-"`

	// Nodes are the addresses of all nodes.
	Nodes []netip.Addr `json:"nodes,omitempty"`
	// APIServer is where the API server answers: the endpoints of the Service default/kubernetes, and its cluster IPs.
	APIServer []netip.AddrPort `json:"apiServer,omitempty"`
	// IsAPI says that the plan is that of this Service: its own cluster IP and endpoints are meant.
	IsAPI bool `json:"isAPI,omitempty"`
	// PodNetworks contain addresses of Pods only; AllPods are addresses of Pods, of any namespace.
	PodNetworks []netip.Prefix `json:"podNetworks,omitempty"`
	AllPods     []netip.Addr   `json:"allPods,omitempty"`
	// ClusterIPs are those of other Services; External are the external and load-balancer IPs of others, with their ports.
	ClusterIPs []netip.Addr `json:"clusterIPs,omitempty"`
	External   []Socket     `json:"external,omitempty"`
	// Pods are the addresses of Pods of the Service's namespace, HostPods those of its Pods in the network of their node,
	// which are the node's.
	Pods     []netip.Addr `json:"pods,omitempty"`
	HostPods []netip.Addr `json:"hostPods,omitempty"`
}

// Socket is an address and port of a protocol: TCP, UDP, SCTP.
type Socket struct {
	At       netip.AddrPort `json:"at"`
	Protocol string         `json:"protocol"`
}

// Exposed is an address of a plan that is of a class.
type Exposed struct {
	Class   Class
	What    string         // what the class means, for people
	Address netip.AddrPort // the frontend's, or the endpoint's
	// Frontend is the frontend that has the address, or that leads to it; Endpoint says that it is an endpoint's.
	Frontend *Frontend
	Endpoint bool
	Refused  bool // whatever is allowed
}

func (e *Exposed) String() string {
	if e.Endpoint {
		return fmt.Sprintf("the endpoint %s of %s %s is %s", e.Address, e.Frontend.Kind, e.Frontend.Address, e.What)
	}
	return fmt.Sprintf("%s %s/%s is %s", e.Frontend.Kind, e.Address, e.Frontend.Protocol, e.What)
}

// Exposed returns the addresses of a plan that are of a class, each once for each class, those that are refused always
// first.
func (p *Plan) Exposed(f *Facts) []Exposed {
	t := &teller{Facts: f, sets: map[Class]map[netip.Addr]bool{}}
	t.fill(p)
	var out []Exposed
	type key struct {
		class Class
		at    Socket
		end   bool
	}
	seen := map[key]bool{}
	add := func(front *Frontend, at netip.AddrPort, end bool, found []Class) {
		for _, c := range classes {
			is := c.frontend
			if end {
				is = c.endpoint
			}
			k := key{c.class, Socket{at, front.Protocol}, end}
			if is == unnoticed || !slices.Contains(found, c.class) || seen[k] {
				continue
			}
			seen[k] = true
			out = append(out, Exposed{
				Class: c.class, What: c.what, Address: at, Frontend: front, Endpoint: end, Refused: is == refuse,
			})
		}
	}
	for i := range p.Frontends {
		front := &p.Frontends[i]
		add(front, front.Address, false, t.frontend(front))
		for _, d := range front.Destinations() {
			for _, e := range d.Endpoints {
				add(front, e, true, t.endpoint(front, e))
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Exposed) int {
		switch {
		case a.Refused == b.Refused:
			return 0
		case a.Refused:
			return -1
		}
		return 1
	})
	return out
}

// AsksForSockets tells whether [Plan.Exposed] depends on what listens on the node, whose addresses are own: at its
// NodePorts, and at endpoints that have an address of the node.
func (p *Plan) AsksForSockets(own []netip.Addr) bool {
	mine := setOf(own)
	for i := range p.Frontends {
		f := &p.Frontends[i]
		if f.Kind == expect.NodePort {
			return true
		}
		for _, d := range f.Destinations() {
			for _, e := range d.Endpoints {
				if slices.ContainsFunc(meant(e.Addr()), func(a netip.Addr) bool { return mine[a] }) {
					return true
				}
			}
		}
	}
	return false
}

// exposedLines is how many addresses a refusal names.
const exposedLines = 5

// Expose returns a RefusalError for the addresses of a plan whose classes are not allowed; allowed are names of
// classes.
func (p *Plan) Expose(f *Facts, allowed []string) error {
	var lines, flags []string
	more := 0
	for _, e := range p.Exposed(f) {
		if !e.Refused && slices.Contains(allowed, string(e.Class)) {
			continue
		}
		if !e.Refused && !slices.Contains(flags, string(e.Class)) {
			flags = append(flags, string(e.Class))
		}
		if len(lines) == exposedLines {
			more++
			continue
		}
		never := ""
		if e.Refused {
			never = ": that is never programmed"
		}
		lines = append(lines, fmt.Sprintf("%s (class %s)%s", &e, e.Class, never))
	}
	if len(lines) == 0 {
		return nil
	}
	text := strings.Join(lines, "; ")
	if more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	if len(flags) > 0 {
		text += "; if that is meant, add --allow " + strings.Join(flags, ",")
	}
	return RefusalError(text)
}

// teller tells the classes of addresses.
type teller struct {
	*Facts

	sets     map[Class]map[netip.Addr]bool
	pods     map[netip.Addr]bool // of the Service's namespace
	host     map[netip.Addr]bool // of its Pods in the network of their node
	own      map[netip.Addr]bool
	cluster  map[netip.Addr]bool // cluster IPs of other Services
	external map[Socket]bool
	vips     map[netip.Addr]bool // whatever is the address of a Service, the plan's own frontends among them
}

func setOf(lists ...[]netip.Addr) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, l := range lists {
		for _, a := range l {
			out[a.Unmap().WithZone("")] = true
		}
	}
	return out
}

func (t *teller) fill(p *Plan) {
	own := slices.DeleteFunc(slices.Clone(t.Own), func(a netip.Addr) bool { return a.IsLoopback() })
	t.own, t.pods, t.host, t.cluster = setOf(own), setOf(t.Pods), setOf(t.HostPods), setOf(t.ClusterIPs)
	t.sets[OfNode] = setOf(own, t.Nodes)
	t.sets[Broadcast] = setOf(t.Broadcasts)
	t.sets[Gateway] = setOf(t.Gateways)
	t.sets[Resolver] = setOf(t.Resolvers)
	t.sets[OfPod] = setOf(t.AllPods, t.Pods)
	t.vips, t.external = setOf(t.ClusterIPs, t.Bound), map[Socket]bool{}
	for _, s := range t.External {
		t.external[s], t.vips[s.At.Addr()] = true, true
	}
	for i := range p.Frontends {
		if f := &p.Frontends[i]; f.Kind != expect.NodePort {
			t.vips[f.Address.Addr()] = true
		}
	}
	// A Pod in the network of its node has the node's address: that is none of Pods.
	for a := range t.sets[OfNode] {
		delete(t.sets[OfPod], a)
	}
}

// ofNode reports whether an address is that of a node.
func (t *teller) ofNode(a netip.Addr) bool { return t.sets[OfNode][a] || in(t.Local, a) }

func in(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
}

// frontend returns the classes of a frontend's address.
func (t *teller) frontend(f *Frontend) []Class {
	var out []Class
	for _, a := range meant(f.Address.Addr()) {
		out = append(out, ofItself(a)...)
		for _, c := range []Class{Broadcast, OfPod, Resolver, Gateway} {
			if t.sets[c][a] {
				out = append(out, c)
			}
		}
		if t.ofNode(a) {
			out = append(out, OfNode)
		} else if in(t.PodNetworks, a) {
			out = append(out, OfPod)
		}
		if t.cluster[a] || t.external[Socket{netip.AddrPortFrom(a, f.Address.Port()), f.Protocol}] {
			out = append(out, OfService)
		}
		if t.isAPI(a, f.Address.Port(), f.Kind == expect.NodePort) {
			out = append(out, APIServer)
		}
	}
	if f.Kind == expect.NodePort {
		return t.nodePort(f, out)
	}
	return out
}

// nodePort returns the classes of a NodePort's address, which has to be one of the node's: of that all classes are
// dropped that say so.
func (t *teller) nodePort(f *Frontend, found []Class) []Class {
	a := f.Address.Addr()
	mine := a == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || t.own[a]
	if mine {
		found = slices.DeleteFunc(found, func(c Class) bool { return c != APIServer && c != LinkLocal && c != Multicast })
	} else if t.OwnKnown {
		found = append(found, Elsewhere)
	}
	if slices.ContainsFunc(t.Ports, func(s Socket) bool {
		at := s.At.Addr().Unmap()
		return s.Protocol == f.Protocol && s.At.Port() == f.Address.Port() &&
			(at == a || at.IsUnspecified() && (at.Is6() || a.Is4()))
	}) {
		found = append(found, Listener)
	}
	return found
}

// isAPI tells whether an address is where the API server answers; exact: at that port.
func (t *teller) isAPI(a netip.Addr, port uint16, exact bool) bool {
	return !t.IsAPI && slices.ContainsFunc(t.APIServer, func(at netip.AddrPort) bool {
		return at.Addr() == a && (!exact || at.Port() == port)
	})
}

// endpoint returns the classes of an endpoint's address.
func (t *teller) endpoint(f *Frontend, e netip.AddrPort) []Class {
	var out []Class
	for _, a := range meant(e.Addr()) {
		out = append(out, ofItself(a)...)
		api := t.IsAPI && slices.Contains(t.APIServer, netip.AddrPortFrom(a, e.Port()))
		if t.sets[Broadcast][a] {
			out = append(out, Broadcast)
		}
		if t.isAPI(a, e.Port(), true) {
			out = append(out, APIServer)
		}
		if t.vips[a] {
			out = append(out, OfService)
		}
		switch {
		case api:
		case !t.ofNode(a):
			if !t.pods[a] {
				out = append(out, NoPod)
			}
		// A Pod in the network of a node has the node's address. What listens on this node can be seen.
		case !t.host[a], t.own[a] && t.ByPod != nil && !t.ByPod(netip.AddrPortFrom(a, e.Port()), f.Protocol):
			out = append(out, OfNode)
		}
	}
	return out
}
