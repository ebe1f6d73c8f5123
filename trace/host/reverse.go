// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"strconv"
	"strings"
)

// Reverse is why the reverse path filter drops a packet, or may drop it. The zero Reverse drops nothing.
type Reverse struct {
	Setting string // the sysctls that turn it on, with their values
	Route   string // why the route back fails the check
	// Refused says that the route back is none by which anything can be sent, so that no mode of the filter lets the
	// packet pass; By is what decided that.
	Refused bool
	By      Decision
	// Strict says that loose mode changes nothing, as the interface has no address.
	Strict bool
	// Unsure is what decides whether it drops the packet, and is not known; "" for nothing. The rest is empty then.
	Unsure string
}

// Drops tells whether the packet is certain to be dropped.
func (r *Reverse) Drops() bool { return r.Setting != "" }

// The modes of the filter.
const (
	filterOff = iota
	filterStrict
	filterLoose
)

// ReversePath tells whether the kernel drops a packet that came in by q.In for its source by net.ipv4.conf.*.rp_filter:
// __fib_validate_source in net/ipv4/fib_frontend.c looks up the route to the source. In strict mode (1) that route must
// be by the incoming interface; in loose mode (2) there must be one. A route of a refusing type does not count. An
// interface without an address is strict in either mode. q is the packet as PREROUTING leaves it. IPv6 has no such
// filter (but ip6tables -m rpfilter and nftables' fib).
//
// known is false where the settings of the interface, the routes, the routing rules or its addresses were not
// collected, and where the result depends on more than a Query has; Reverse.Unsure names it where the filter may drop
// the packet. It is also false for sources that are refused under every setting: the node's own, and broadcasts. Where
// no setting of an interface was collected at all nothing is said. Packets decrypted by IPsec are never dropped, which
// no file shows.
func (n *Network) ReversePath(q Query) (drop Reverse, known bool) {
	q.Dst, q.Src = q.Dst.Unmap(), q.Src.Unmap()
	if !q.Src.Is4() || q.In == "lo" {
		return Reverse{}, true // packets by lo keep the route of their sending (skb_dst)
	}
	modes, setting, missing := n.rpFilter(q.In)
	if modes == nil {
		return Reverse{}, false
	}
	passes, dropped := 0, 0
	for _, mode := range modes {
		d, known := n.reversePath(q, mode)
		switch {
		case !known && missing == "":
			if d.Unsure != "" {
				d.Unsure = setting + ", and " + d.Unsure
			}
			return d, false
		case !known:
		case d.Drops():
			dropped++
			drop = d
		default:
			passes++
		}
	}
	switch {
	case passes == len(modes):
		return Reverse{}, true
	case dropped == len(modes):
		drop.Setting = setting
		return drop, true
	case missing == "":
		return Reverse{}, false
	}
	return Reverse{Unsure: missing + " was not collected (sysctl.txt)"}, false
}

// reversePath is ReversePath in a mode.
func (n *Network) reversePath(q Query, mode int) (drop Reverse, known bool) {
	if mode == filterOff {
		return Reverse{}, true
	}
	f := n.family(q.Src)
	if !f.rulesKnown || !f.routesKnown || n.addrs == nil || n.master == nil {
		return Reverse{Unsure: "the routes, the routing rules, the addresses or the interfaces were not collected " +
			"(ip-route.json, ip-rule.json, ip-addr.json, ip-link.json)"}, false
	}
	if n.mayBeInVRF(q.In) {
		return Reverse{}, false
	}
	back, ok := n.reverse(q)
	if !ok {
		return Reverse{}, false
	}
	r := n.Lookup(back)
	loose := mode == filterLoose && n.has4(q.In)
	switch {
	case !r.Known && loose && !r.MayFail && !r.Missing:
		return Reverse{}, true // by whichever of them
	case !r.Known:
		return Reverse{Unsure: "the route back to " + q.Src.String() + " is not known: " + r.Why}, false
	case r.Unusable():
		why := "there is no route back to " + q.Src.String()
		if r.Type != RouteNone {
			why = "the route back to " + q.Src.String() + " is of the type " + string(r.Type)
		}
		return Reverse{Setting: "on", Route: why + decided(r.By), By: r.By, Refused: true}, true
	case r.Type != RouteUnicast:
		return Reverse{}, false
	}
	var by []string
	for _, h := range r.NextHops() {
		switch {
		case h.Dev == q.In:
			return Reverse{}, true
		case h.Dev == "" || n.mayBeInVRF(h.Dev):
			return Reverse{}, false
		}
		by = append(by, h.Dev)
	}
	if loose {
		return Reverse{}, true
	}
	why := "the route back to " + q.Src.String() + " is by " + strings.Join(by, ", ") + ", not by " + q.In + decided(r.By)
	if mode == filterLoose {
		why += ", which has no address"
	}
	return Reverse{Setting: "on", Route: why, Strict: !n.has4(q.In)}, true
}

// OwnSource tells whether the kernel drops a packet that came in by q.In because the route to its source is one of the
// type local, and accept_local is not set for the interface or for all: whatever rp_filter is (fib_validate_source in
// net/ipv4/fib_frontend.c, which asks the routes once somebody has added such a route or a routing rule). q is that of
// ReversePath. Nothing is claimed where the route back is not known.
func (n *Network) OwnSource(q Query) Reverse {
	q.Dst, q.Src = q.Dst.Unmap(), q.Src.Unmap()
	if !q.Src.Is4() || q.In == "lo" {
		return Reverse{}
	}
	back, ok := n.reverse(q)
	if !ok {
		return Reverse{}
	}
	r := n.Lookup(back)
	if !r.Known || r.Type != RouteLocal {
		return Reverse{}
	}
	all, own, ok := n.settings(q.In, "accept_local")
	switch {
	case !ok:
		return Reverse{Unsure: "the route back to " + q.Src.String() + " is of the type local, and net/ipv4/conf/" + q.In +
			"/accept_local was not collected"}
	case all.value != 0 || own.value != 0:
		return Reverse{}
	}
	return Reverse{
		Setting: all.text + ", " + own.text, Refused: true, By: r.By,
		Route: "the route back to " + q.Src.String() + " is of the type local" + decided(r.By),
	}
}

// reverse returns the query of the route back: of a packet from the destination to the source that comes in by the
// interface by which this one leaves, or from the node itself. The mark is used only where src_valid_mark is set for
// the interface or for all.
func (n *Network) reverse(q Query) (Query, bool) {
	back := Query{
		Dst: q.Src, Src: q.Dst, TOS: q.TOS, AnyTOS: q.AnyTOS, Proto: q.Proto, SrcPort: q.DstPort, DstPort: q.SrcPort,
		Bare: q.Bare, AnyMark: true,
	}
	all, ok := n.Conf("all", "src_valid_mark")
	own, ok2 := n.Conf(q.In, "src_valid_mark")
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

// modesOff are the modes of a filter that is off.
var modesOff = []int{filterOff}

// rpFilter returns the modes that an interface's filter may have, the larger one of its own setting and that of all
// (IN_DEV_RPFILTER in include/linux/inetdevice.h), the settings as text, and the first of those that were not
// collected. No mode is returned where the settings of single interfaces were not collected, and that of all does not
// turn it on.
func (n *Network) rpFilter(dev string) (modes []int, setting, missing string) {
	var value [2]int
	var text [2]string
	of, missed := [2]string{"all", dev}, ""
	for i := range of {
		v, ok := n.Conf(of[i], "rp_filter")
		number, err := -1, error(nil)
		if ok {
			number, err = strconv.Atoi(v)
		}
		if value[i], text[i] = number, v; !ok || err != nil {
			value[i], text[i] = -1, ""
			missed = cmp.Or(missed, of[i])
		}
	}
	known := max(value[0], value[1])
	switch {
	case missed == "" && known == filterOff:
		return modesOff, "", ""
	case missed != "" && known < filterStrict && !n.HasInterfaceSettings():
		return nil, "", ""
	}
	for i := range of {
		if text[i] != "" {
			setting += ", " + confPath + of[i] + "/rp_filter=" + text[i]
		}
	}
	if setting = strings.TrimPrefix(setting, ", "); missed == "" {
		return []int{known}, setting, ""
	}
	for mode := max(known, filterOff); mode <= filterLoose; mode++ {
		modes = append(modes, mode)
	}
	return modes, setting, confPath + missed + "/rp_filter"
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
