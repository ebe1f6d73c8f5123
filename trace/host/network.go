// SPDX-License-Identifier: Apache-2.0

package host

import "net/netip"

// Network is what is known of one node's network namespace. The zero value knows nothing, and says so to every question.
type Network struct{}

// RouteType is what a route makes of a packet (rtnetlink RTN_*).
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

// Route is the answer of a route lookup.
type Route struct {
	Type    RouteType
	Dev     string
	Gateway netip.Addr
	PrefSrc netip.Addr // source address that the kernel would choose; zero where not known
}

// Local says whether a is an address of the node itself (an RTN_LOCAL destination). known is false where addresses were not
// collected and nothing else tells.
func (n *Network) Local(a netip.Addr) (local, known bool) { return false, false }

// AddrType returns the kernel's type of an address, as -m addrtype asks for it (inet_addr_type).
func (n *Network) AddrType(a netip.Addr) (t RouteType, known bool) { return "", false }

// Route looks up the route to dst. known is false where the routes of the family were not collected, or rules beyond the
// default ones make the main table not the whole truth (why says which).
func (n *Network) Route(dst netip.Addr) (r Route, known bool, why string) { return Route{}, false, "" }

// Uplink returns the interface of the family's default route, "" where not known.
func (n *Network) Uplink(v4 bool) string { return "" }

// Addresses returns the node's own addresses of all interfaces, nil where they were not collected.
func (n *Network) Addresses() []netip.Addr { return nil }
