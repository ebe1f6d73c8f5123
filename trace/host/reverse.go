// SPDX-License-Identifier: Apache-2.0

package host

import (
	"strings"
)

// Reverse is why the reverse path filter drops a packet. The zero Reverse drops nothing.
type Reverse struct {
	Setting string // the sysctls that turn it on, with their values
	Route   string // why the route back fails the check
}

// ReversePath tells whether the kernel drops a packet that came in by q.In for its source by net.ipv4.conf.*.rp_filter:
// __fib_validate_source in net/ipv4/fib_frontend.c looks up the route to the source. In strict mode (1) that route must
// be by the incoming interface; in loose mode (2) there must be one. A route of a refusing type does not count. An
// interface without an address is strict in either mode. q is the packet as PREROUTING leaves it. IPv6 has no such
// filter (but ip6tables -m rpfilter and nftables' fib).
//
// known is false where the settings of the interface, the routes, the routing rules or its addresses were not
// collected, and where the result depends on more than a Query has; it is also false for sources that are refused under
// every setting: the node's own, and broadcasts. Packets decrypted by IPsec are never dropped, which no file shows.
func (n *Network) ReversePath(q Query) (drop Reverse, known bool) {
	q.Dst, q.Src = q.Dst.Unmap(), q.Src.Unmap()
	if !q.Src.Is4() || q.In == "lo" {
		return Reverse{}, true // packets by lo keep the route of their sending (skb_dst)
	}
	mode, setting, ok := n.rpFilter(q.In)
	if !ok || mode == 0 {
		return Reverse{}, ok
	}
	f := n.family(q.Src)
	if !f.rulesKnown || !f.routesKnown || n.addrs == nil || n.master == nil || n.master[q.In] != "" {
		return Reverse{}, false
	}
	back, ok := n.reverse(q)
	if !ok {
		return Reverse{}, false
	}
	r := n.Lookup(back)
	switch {
	case !r.Known:
		return Reverse{}, false
	case r.Unusable():
		why := "there is no route back to " + q.Src.String()
		if r.Type != RouteNone {
			why = "the route back to " + q.Src.String() + " is of the type " + string(r.Type)
		}
		return Reverse{setting, why + decided(r.By)}, true
	case r.Type != RouteUnicast:
		return Reverse{}, false
	}
	var by []string
	for _, h := range r.NextHops() {
		switch {
		case h.Dev == q.In:
			return Reverse{}, true
		case h.Dev == "" || n.master[h.Dev] != "": // the interface may belong to a VRF
			return Reverse{}, false
		}
		by = append(by, h.Dev)
	}
	why := "the route back to " + q.Src.String() + " is by " + strings.Join(by, ", ") + ", not by " + q.In + decided(r.By)
	switch {
	case mode == 1:
		return Reverse{setting, why}, true
	case !n.has4(q.In):
		return Reverse{setting, why + ", which has no address"}, true
	}
	return Reverse{}, true
}

// reverse returns the query of the route back: of a packet from the destination to the source that comes in by the
// interface by which this one leaves, or from the node itself. The mark is used only where src_valid_mark is set for
// the interface or for all.
func (n *Network) reverse(q Query) (Query, bool) {
	back := Query{
		Dst: q.Src, Src: q.Dst, TOS: q.TOS, AnyTOS: q.AnyTOS, Proto: q.Proto, SrcPort: q.DstPort, DstPort: q.SrcPort,
		Bare: q.Bare, AnyMark: true,
	}
	all, ok := n.Sysctl("net/ipv4/conf/all/src_valid_mark")
	own, ok2 := n.Sysctl("net/ipv4/conf/" + q.In + "/src_valid_mark")
	switch {
	case ok && all != "0" || ok2 && own != "0":
		back.Mark, back.AnyMark = q.Mark, q.AnyMark
	case ok && ok2, q.Mark == 0 && !q.AnyMark:
		back.AnyMark = false
	}
	local, known := n.Local(q.Dst)
	if !known {
		return Query{}, false
	}
	back.In = "lo"
	if !local {
		r := n.Lookup(q)
		back.In = ""
		if r.Known {
			back.In = r.Dev
		}
	}
	return back, true
}

// decided says in brackets which rule decided; "" for the default ones.
func decided(by Decision) string {
	if !by.HasRule() {
		return ""
	}
	return " (" + by.String() + ")"
}

// rpFilter returns the mode of an interface's filter, the larger one of its own setting and that of all
// (IN_DEV_RPFILTER in include/linux/inetdevice.h), and the settings as text; ok is false where one of them was not
// collected.
func (n *Network) rpFilter(dev string) (mode int, setting string, ok bool) {
	all, own, ok := n.settings(dev, "rp_filter")
	if !ok {
		return 0, "", false
	}
	return max(all.value, own.value), all.text + ", " + own.text, true
}

// has4 tells whether an interface has an IPv4 address.
func (n *Network) has4(dev string) bool {
	for _, a := range n.AddressesOn(dev) {
		if a.Is4() {
			return true
		}
	}
	return false
}
