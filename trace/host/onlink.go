// SPDX-License-Identifier: Apache-2.0

package host

import "net/netip"

// OnLink tells whether the main table has a unicast route to an address without a gateway: it is on the link, or behind
// the interface that is a pod's.
func (n *Network) OnLink(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if !a.IsValid() {
		return false
	}
	e := n.family(a).tables[tableMain].first(a)
	if e == nil || e.unknown != "" {
		return false
	}
	r := e.route()
	return r.Type == RouteUnicast && r.Dev != "" && !r.Gateway.IsValid()
}
