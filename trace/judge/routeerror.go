// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
)

// The errors by which connections without a usable route fail, as strerror(3) has them.
const (
	errInvalid    = "Invalid argument"       // EINVAL
	errHost       = "No route to host"       // EHOSTUNREACH
	errNet        = "Network is unreachable" // ENETUNREACH
	errPermission = "Permission denied"      // EACCES
)

// routeErrors has by the type of a route what a process of the node is told that asks for one (fib_props in
// net/ipv4/fib_semantics.c, ip6_rt_type_to_error in net/ipv6/route.c), and what the ICMP message says that a client
// elsewhere gets (ip_error in net/ipv4/route.c, ip6_pkt_drop in net/ipv6/route.c); "" for none. A rule of the action
// unreachable is another error than such a route (fib4_rule_action in net/ipv4/fib_rules.c).
var routeErrors = map[host.RouteType]struct {
	own, ownByRule     string
	icmp4, icmp4ByRule string
	icmp6              string
}{
	host.RouteBlackhole:   {own: errInvalid, ownByRule: errInvalid},
	host.RouteUnreachable: {errHost, errNet, errHost, errNet, errNet},
	host.RouteProhibit:    {errPermission, errPermission, errHost, errHost, errPermission},
	host.RouteNone:        {errNet, errNet, errNet, errNet, errNet},
}

// failure says how connections of an outcome without a usable route fail, and whether they hang. A process of the node
// is told where the route to the frontend is asked for. That to the endpoint is asked for in OUTPUT: a datagram's
// sender is told, too, and TCP and SCTP send again and again (tcp_connect in net/ipv4/tcp_output.c). Of a bridge whose
// packets br_netfilter hands to ip6tables there is no message about a translated one
// (br_nf_pre_routing_finish_ipv6 in net/bridge/br_netfilter_ipv6.c).
func (n *node) failure(want *expect.Path, o *outcome) (text string, hangs bool) {
	typ, byRule := o.decided.Refusal()
	e, v4 := routeErrors[typ], want.Frontend.Address.Is4()
	is := e.icmp6
	switch {
	case want.Origin.Kind == expect.FromNode && o.to.IsValid() && want.Frontend.Protocol != corev1.ProtocolUDP:
		is = ""
	case want.Origin.Kind == expect.FromNode && byRule:
		is = e.ownByRule
	case want.Origin.Kind == expect.FromNode:
		is = e.own
	case v4 && byRule:
		is = e.icmp4ByRule
	case v4:
		is = e.icmp4
	default:
		if calls, known := n.net.BridgeCalls(want.Origin.Iface, false); o.to.IsValid() && calls && known &&
			n.net.Bridge(want.Origin.Iface) {
			is = ""
		}
	}
	if is == "" {
		return "connections hang", true
	}
	text = fmt.Sprintf("connections fail with %q", is)
	if want.Origin.Kind != expect.FromNode {
		text += ", or hang, as the rate of ICMP messages is limited"
	}
	return text, false
}
