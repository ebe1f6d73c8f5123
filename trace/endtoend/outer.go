// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"fmt"
	"net/netip"

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
	return e.packet(h, end, inside), e.name + " to " + e.to(end), true
}

// carrier is what the tunnel that a packet leaves by puts it into, and where that goes.
func carrier(h *host.Network, inside *netfilter.Packet) (e *envelope, end netip.Addr) {
	if v, ok := h.VXLAN(inside.Out); ok && !v.External {
		n, _ := h.Neighbour(inside.Out, inside.Hop())
		end = v.Remote
		if ends, known := h.TunnelEnds(inside.Out, n.MAC); known {
			if len(ends) != 1 || ofItsOwn(h, inside.Out, ends[0]) {
				return nil, end
			}
			end = ends[0]
		}
		return &envelope{
			name: fmt.Sprintf("VXLAN %d", v.ID), proto: netfilter.UDP, port: v.Port, src: v.Local, mark: inside.Mark,
			tos: v.TOS, ports: outerPorts(h, &v),
		}, end
	}
	t, ok := h.Tunnel(inside.Out)
	if !ok || t.External || forms[t.Kind] == nil {
		return nil, end
	}
	f := forms[t.Kind]
	if end = t.Remote; !end.IsValid() && f.toHop != nil {
		end = f.toHop(h, inside.Out, inside.Hop())
	}
	return f.envelope(&t, inside.Mark), end
}

// ofItsOwn tells whether an entry of a tunnel's forwarding table has a port, network or interface of its own.
func ofItsOwn(h *host.Network, dev string, end netip.Addr) bool {
	list, _ := h.Forwardings(dev)
	for i := range list {
		if f := &list[i]; f.Dst == end && (f.Port != 0 || f.ID != 0 || f.Via != "") {
			return true
		}
	}
	return false
}
