// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"slices"
)

// Network is what is known of one node's network namespace. It is immutable and safe for concurrent use. The zero value
// knows the loopback addresses only, and returns known=false for everything else.
type Network struct {
	addrs  []address          // of every interface, in the order of ip addr; nil where not collected
	devs   map[string][]int   // indices into addrs
	master map[string]string  // nil where links were not collected
	sysctl map[string]string  // by path below /proc/sys
	conf   map[confKey]string // of them net/ipv4/conf
	// ofInterfaces: settings of single interfaces are among them.
	ofInterfaces bool
	// localPorts is LocalPortRange of it.
	localPorts portRange
	// temporaries: some address is a temporary one of IPv6.
	temporaries bool
	labels      []label6 // nil: those that the kernel starts with
	clock       Clock

	bridges     map[string]*bridge // by name, those that have ports
	promiscuous map[string]bool
	vlans       bool // some bridge filters VLANs
	vrfs        map[string]bool
	groups      map[string]string          // of interfaces
	kindsKnown  bool                       // the kinds of interfaces were collected
	links       map[string]link            // by name; nil where not collected
	neighbours  map[neighbourKey]Neighbour // nil where not collected
	proxied     map[neighbourKey]bool      // for which the node answers; nil where not collected
	foundAt     map[netip.Addr][]string    // of them those that the kernel has found: their interfaces, by address
	foundAs     map[macKey][]netip.Addr    // … and their addresses, by link-layer address
	fdb         map[string][]Forwarding    // by interface; nil where not collected
	learned     map[string][]learned       // by bridge, likewise
	fixed       map[string][]learned       // of them those that are sticky, likewise
	set         map[string][]learned       // those that a person or a program has set, likewise
	bridgeOwn   map[string][]learned       // of them those that the bridge takes for its own, likewise
	vxlans      map[string]VXLAN           // by interface; nil where none was collected
	tunnels     map[string]Tunnel          // the same of other tunnels
	wireguards  map[string]*WireGuard      // by interface; nil where they were not collected

	limits bool     // some route has a largest packet or segment of its own
	nodes  *AddrMap // the Node object's own addresses; nil for none
	others *AddrMap // addresses of others, by the API; nil for none
	fam    [2]family
}

// family is what is known of one IP family.
type family struct {
	addrsKnown bool                      // the addresses were collected, by ip addr or as the local table
	local      map[netip.Addr]netip.Addr // the node's address -> the source of packets to it
	localNets  []localNet                // prefixes that are local as a whole
	broadcast  map[netip.Addr]string     // -> its interface, "" where not known

	routesKnown bool // the main table was collected
	// redirected are the gateways that others have told the kernel for single destinations, by interface.
	redirected map[netip.Addr]map[string]netip.Addr
	allTables  bool // and all other tables: one that is missing is empty
	tables     map[string]*table
	gateways   map[string]bool // the interfaces by which routes go to gateways
	rules      []rule          // nil: the default rules
	rulesKnown bool            // they were collected
}

// localNet is a prefix whose every address is the node's own.
type localNet struct {
	prefix netip.Prefix
	src    netip.Addr
}

// RouteType is the type of a route (rtnetlink RTN_*).
type RouteType string

// The route types that a lookup can end in.
const (
	RouteUnicast     RouteType = "unicast"
	RouteLocal       RouteType = "local"
	RouteBlackhole   RouteType = "blackhole"
	RouteUnreachable RouteType = "unreachable"
	RouteProhibit    RouteType = "prohibit"
	RouteBroadcast   RouteType = "broadcast"
	RouteMulticast   RouteType = "multicast"
	RouteNone        RouteType = "none" // no route matches
)

// Route is the result of a route lookup.
type Route struct {
	Type    RouteType
	Dev     string     // "" where several may be chosen (multipath, link-local without a zone)
	Gateway netip.Addr // zero where the destination is on the link, or several may be chosen
	PrefSrc netip.Addr // source address that the kernel would choose; zero where not known
}

// famOf indexes Network.fam; a must be unmapped.
func famOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

func (n *Network) family(a netip.Addr) *family { return &n.fam[famOf(a)] }

var (
	loopback4         = netip.MustParsePrefix("127.0.0.0/8")
	zeroNet4          = netip.MustParsePrefix("0.0.0.0/8")
	limitedBroadcast4 = netip.AddrFrom4([4]byte{255, 255, 255, 255})
	localhost4        = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	unspecified6      = netip.IPv6Unspecified()
)

// Local tells whether a is an address of the node itself (an RTN_LOCAL destination). known is false where addresses
// were not collected and [Network.WithAPI] does not decide. Loopback addresses are always local.
func (n *Network) Local(a netip.Addr) (local, known bool) {
	a = a.Unmap().WithZone("")
	if !a.IsValid() {
		return false, false
	}
	if a.IsLoopback() {
		return true, true
	}
	if a.IsMulticast() || a.IsUnspecified() || a == limitedBroadcast4 {
		return false, true
	}
	f := n.family(a)
	if _, ok := f.local[a]; ok {
		return true, true
	}
	for i := range f.localNets {
		// A subnet's broadcast address has a route of its own, longer than the subnet's.
		if f.localNets[i].prefix.Contains(a) {
			_, cast := f.broadcast[a]
			return !cast, true
		}
	}
	if own, _ := n.nodes.Get(a); own {
		return true, true
	}
	if f.addrsKnown {
		return false, true
	}
	other, _ := n.others.Get(a)
	return false, other
}

// Martian tells whether a packet that comes in by dev is refused for its destination, a loopback address. IPv4 accepts
// it where route_localnet is set, for the interface or for all (ip_route_input_slow in net/ipv4/route.c). IPv6 looks up
// only routes by the incoming interface (rt6_need_strict in net/ipv6/route.c): that to ::1 is by lo, and where the
// default route is by dev the packet is sent back by it. known is false there, and where settings or routes were not
// collected.
func (n *Network) Martian(dev string, dst netip.Addr) (martian, known bool) {
	dst = dst.Unmap()
	switch {
	case !dst.IsLoopback() || dev == "lo":
		return false, true
	case !dst.Is4():
		f := n.family(dst)
		up := n.Uplink(false)
		some := f.tables[tableMain].first(unspecified6) != nil
		return true, f.routesKnown && f.rules == nil && (!some || up != "" && up != dev)
	}
	takes, known := n.routesLoopback(dev)
	return !takes, takes || known
}

// routesLoopback tells whether route_localnet is set, for an interface or for all (IN_DEV_ROUTE_LOCALNET in
// include/linux/inetdevice.h).
func (n *Network) routesLoopback(dev string) (yes, known bool) {
	all, ok := n.Sysctl("net/ipv4/conf/all/route_localnet")
	own, ok2 := n.Conf(dev, "route_localnet")
	return ok && all != "0" || ok2 && own != "0", ok && ok2
}

// localSource returns the source of a packet to one of the node's own addresses: for IPv4 the primary address of its
// subnet (fib_magic in net/ipv4/fib_frontend.c puts it into the local route), for IPv6 the address itself (RFC 6724,
// rule 1).
func (f *family) localSource(a netip.Addr) netip.Addr {
	if !a.Is4() {
		return a
	}
	if src := f.local[a]; src.IsValid() {
		return src
	}
	for i := range f.localNets {
		if f.localNets[i].prefix.Contains(a) && f.localNets[i].src.IsValid() {
			return f.localNets[i].src
		}
	}
	if loopback4.Contains(a) {
		return localhost4
	}
	return a
}

// AddrType returns the kernel's type of an address, as -m addrtype uses it. For IPv4 that is the type in the local
// table (inet_addr_type in net/ipv4/fib_frontend.c): local, broadcast, multicast, and unicast for all else, whatever
// the main table has for it, blackhole included. For IPv6 a route is looked up (net/netfilter/xt_addrtype.c): every
// route that refuses, and no route, is RouteUnreachable; "::" is RouteNone. known is false where the snapshot does not
// suffice. xt_addrtype takes a local IPv6 address for UNICAST as well, because it decides that by the address and not
// by a route: a match of --dst-type UNICAST must treat every IPv6 address as unicast that is neither multicast nor
// "::". A match of LOCAL alone should use [Network.Local], which needs no routes.
func (n *Network) AddrType(a netip.Addr) (t RouteType, known bool) {
	a = a.Unmap().WithZone("")
	switch {
	case !a.IsValid():
		return "", false
	case a == unspecified6:
		return RouteNone, true
	case a == limitedBroadcast4, a.Is4() && zeroNet4.Contains(a):
		return RouteBroadcast, true
	case a.IsMulticast():
		return RouteMulticast, true
	}
	local, known := n.Local(a)
	switch {
	case local:
		return RouteLocal, true
	case !known:
		return "", false
	}
	if a.Is4() {
		if _, ok := n.fam[0].broadcast[a]; ok {
			return RouteBroadcast, true
		}
		return RouteUnicast, true
	}
	r := n.OwnRoute(a)
	if !r.Known {
		return "", false
	}
	if r.Unusable() {
		return RouteUnreachable, true
	}
	return RouteUnicast, true
}

// Addresses returns the node's own addresses of all interfaces in the order of ip addr, loopback included, and nil
// where they were not collected.
func (n *Network) Addresses() []netip.Addr {
	if n.addrs == nil {
		return nil
	}
	out := make([]netip.Addr, 0, len(n.addrs))
	for i := range n.addrs {
		out = append(out, n.addrs[i].ip)
	}
	return out
}

// AddressesOn returns the addresses of one interface, in the order of ip addr.
func (n *Network) AddressesOn(dev string) []netip.Addr {
	var out []netip.Addr
	for i := range n.addrs {
		if n.addrs[i].dev == dev {
			out = append(out, n.addrs[i].ip)
		}
	}
	return out
}

// BroadcastsOn returns the interface of which an IPv4 address is the broadcast address; "" for none.
func (n *Network) BroadcastsOn(a netip.Addr) string { return n.fam[0].broadcast[a.Unmap()] }

// Reaches tells whether an address is in a subnet of an interface, or is the interface's own.
func (n *Network) Reaches(dev string, a netip.Addr) bool {
	for _, i := range n.devs[dev] {
		if x := &n.addrs[i]; x.ip == a || x.prefix.Contains(a) {
			return true
		}
	}
	return false
}

// OnlyAddress returns the address of a family that an interface has beside those of the link; the zero Addr where it
// has none, or several.
func (n *Network) OnlyAddress(dev string, v4 bool) (only netip.Addr) {
	for _, i := range n.devs[dev] {
		switch a := n.addrs[i].ip; {
		case a.Is4() != v4 || a.IsLinkLocalUnicast():
		case only.IsValid():
			return netip.Addr{}
		default:
			only = a
		}
	}
	return only
}

// HasAddress returns an interface that has an address, with the address as ip addr takes it; "" where none has it.
func (n *Network) HasAddress(a netip.Addr) (dev string, prefix netip.Prefix) {
	for i := range n.addrs {
		if x := &n.addrs[i]; x.ip == a {
			return x.dev, netip.PrefixFrom(x.ip, x.prefix.Bits())
		}
	}
	return "", netip.Prefix{}
}

// SubnetOf returns the interface that has an address, and its subnet there; "" where none has it, where several have,
// and where its subnet is the address alone.
func (n *Network) SubnetOf(a netip.Addr) (dev string, subnet netip.Prefix) {
	for i := range n.addrs {
		if n.addrs[i].ip != a {
			continue
		}
		if dev != "" || n.addrs[i].prefix.IsSingleIP() {
			return "", netip.Prefix{}
		}
		dev, subnet = n.addrs[i].dev, n.addrs[i].prefix
	}
	return dev, subnet
}

// Within returns the only interface that has an address whose subnet contains another host's; "" where none or several
// have one.
func (n *Network) Within(a netip.Addr) (dev string) {
	for i := range n.addrs {
		switch x := &n.addrs[i]; {
		case !x.prefix.Contains(a) || x.prefix.IsSingleIP() || x.dev == dev:
		case dev != "":
			return ""
		default:
			dev = x.dev
		}
	}
	return dev
}

// Together tells whether an interface has an address in whose subnet two hosts both are.
func (n *Network) Together(dev string, a, b netip.Addr) bool {
	return slices.ContainsFunc(n.addrs, func(x address) bool {
		return x.dev == dev && !x.prefix.IsSingleIP() && x.prefix.Contains(a) && x.prefix.Contains(b)
	})
}

// HasLinks tells whether the interfaces were collected, so that one that is not listed does not exist.
func (n *Network) HasLinks() bool { return n.master != nil }

// HasLink tells whether the node has an interface of that name; known is false where interfaces were not collected.
func (n *Network) HasLink(dev string) (has, known bool) {
	_, has = n.master[dev]
	return has, n.master != nil
}

// Master returns the bridge, bond or VRF that an interface belongs to; "" for none, and where it is not known.
func (n *Network) Master(dev string) string { return n.master[dev] }

// Devs returns the names of the interfaces that were collected, sorted.
func (n *Network) Devs() []string {
	out := make([]string, 0, len(n.master))
	for dev := range n.master {
		out = append(out, dev)
	}
	slices.Sort(out)
	return out
}
