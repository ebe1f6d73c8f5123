// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// Outer is the packet in which a tunnel of a node carries one that leaves by its interface, as the node generates it;
// to names the tunnel and where it goes. ok is false where the interface is not a tunnel, and where it is not known to
// lead to one other end alone.
func Outer(h *host.Network, inside *netfilter.Packet) (p netfilter.Packet, to string, ok bool) {
	e, end := carrier(h, inside)
	if e == nil || !end.IsValid() || end.IsMulticast() {
		return p, "", false
	}
	p = e.packet(h, end, inside)
	p.Bound = e.via // the route is looked up by that interface
	return p, e.name + " to " + e.to(end), true
}

// Carries tells whether an interface of a node is a tunnel that is followed.
func Carries(h *host.Network, dev string) bool {
	if v, ok := h.VXLAN(dev); ok {
		return !v.External
	}
	t, ok := h.Tunnel(dev)
	return ok && !t.External && forms[t.Kind] != nil
}

// carrier is what the tunnel that a packet leaves by puts it into, and where that goes.
func carrier(h *host.Network, inside *netfilter.Packet) (e *envelope, end netip.Addr) {
	if !Carries(h, inside.Out) {
		return nil, end
	}
	if v, ok := h.VXLAN(inside.Out); ok {
		n, _ := h.Neighbour(inside.Out, inside.Hop())
		var via string
		end, via = v.Remote, v.Lower // an entry without an interface leaves by any (vxlan_fdb_parse)
		if ends, known := h.TunnelEnds(inside.Out, n.MAC); known {
			if len(ends) != 1 || hasUnusual(h, inside.Out) {
				return nil, end
			}
			end, via = ends[0], ""
		}
		return vxlanEnvelope(h, &v, end, via, inside.Mark), end
	}
	t, _ := h.Tunnel(inside.Out)
	f := forms[t.Kind]
	if end = t.Remote; !end.IsValid() && f.toHop != nil {
		end = f.toHop(h, inside.Out, inside.Hop())
	}
	return f.envelope(&t, inside.Mark), end
}

// hasUnusual tells whether an entry of a tunnel's forwarding table leads to a group of next hops, or has a port, a
// network or an interface of its own.
func hasUnusual(h *host.Network, dev string) bool {
	list, _ := h.Forwardings(dev)
	return slices.ContainsFunc(list, func(f host.Forwarding) bool {
		return f.Group || f.Port != 0 || f.ID != 0 || f.Via != ""
	})
}
