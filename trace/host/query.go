// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"slices"
	"strings"
)

// Query is the key of a route lookup (struct flowi_common in include/net/flow.h). What is not known of the packet makes
// the answer unknown only where it decides.
type Query struct {
	Dst netip.Addr // with a zone it is looked up on that interface
	// Src is the zero Addr where it is not known. The unspecified address is that of a local process's packet whose
	// source is still to be chosen by the route.
	Src netip.Addr
	// Local: a process of the node sends the packet, so that the incoming interface is lo (ip_route_output_key_hash in
	// net/ipv4/route.c, ip6_route_output_flags in net/ipv6/route.c). Else it came in by In.
	Local bool
	In    string // the incoming interface; "" where it is not known
	Out   string // the interface that a Local packet's socket is bound to; "" for none

	Mark    uint32 // the packet's mark at the lookup
	AnyMark bool   // the mark is not known
	TOS     uint8  // the packet's TOS byte, or traffic class
	AnyTOS  bool   // the TOS is not known

	Proto            uint8  // 0 where it is not known
	SrcPort, DstPort uint16 // 0 where it is not known
	NoSrcPort        bool   // the socket has no port yet, and 0 is looked up
	Bare             bool   // neither protocol nor ports are part of the lookup: 0 is looked up for each

	UID    uint32 // the user of a Local packet's process; packets that came in have 0
	AnyUID bool   // the user is not known
}

// Hop is a next hop of a route.
type Hop struct {
	Dev     string     // "" where it is not known (link-local without a zone)
	Gateway netip.Addr // zero where the destination is on the link
	Weight  int        // its share among the route's hops
	PrefSrc netip.Addr // the source that packets get which have none; zero where it is not known
}

// Lookup is the answer to a Query.
type Lookup struct {
	// Route is the route. Of several next hops it has what they have in common.
	Route
	// Hops are the next hops of a route that has several, without those that the kernel does not use (dead).
	Hops []Hop
	// By is what decided.
	By Decision
	// Known tells whether the answer is certain. Else the rest of the Lookup but Why, Missing and MayFail means nothing.
	Known bool
	Why   string // where it is not known: the reason, with the rule or the file
	// Missing: it is not known for a file or a table that was not collected, or could not be read.
	Missing bool
	// MayFail: it is not known, and among the possible answers is one by which the packet goes nowhere, or one that
	// cannot be followed.
	MayFail bool
	// Apart: it is not known, nothing is missing, and the possible answers have not the same next hops.
	Apart bool
}

// NextHops are the next hops that a packet may be sent to: those of a route that has several, or the one of the route.
func (l *Lookup) NextHops() []Hop {
	if len(l.Hops) > 0 {
		return l.Hops
	}
	return []Hop{{Dev: l.Dev, Gateway: l.Gateway, Weight: 1, PrefSrc: l.PrefSrc}}
}

// Unusable tells whether a packet cannot be sent by the route.
func (r *Route) Unusable() bool {
	switch r.Type {
	case RouteNone, RouteBlackhole, RouteUnreachable, RouteProhibit:
		return true
	case RouteUnicast, RouteLocal, RouteBroadcast, RouteMulticast:
	}
	return false
}

// Decision is what a lookup went by: a routing rule and a route of its table. The zero Decision is none. It is
// comparable.
type Decision struct {
	rule  *rule  // nil: the default rules
	entry *entry // nil: the rule itself, or no route at all
	v6    bool
	// redirected is the gateway that another host has told the kernel in place of the route's; the zero Addr for none.
	redirected netip.Addr
}

// Redirected returns the gateway that another host has told the kernel in place of the route's; the zero Addr for none.
func (d Decision) Redirected() netip.Addr { return d.redirected }

// MTU returns the largest packet that the route takes where that is forwarded; 0 where it has no limit of its own. IPv4
// always asks for it (ip_dst_mtu_maybe_forward in include/net/ip.h), and so does IPv6 on Linux 6.18, locked or not; its
// older versions may ask for a locked one alone, and ip does not print in JSON whether it is.
func (d Decision) MTU() int {
	if d.entry == nil {
		return 0
	}
	return d.entry.mtu
}

// AdvMSS returns the size of the segments that TCP announces by the route; 0 where that follows from the largest packet
// (dst_metric_advmss in include/net/dst.h).
func (d Decision) AdvMSS() int {
	if d.entry == nil {
		return 0
	}
	return d.entry.advMSS
}

// HopLimit returns the TTL or hop limit of packets that the network namespace itself sends by the route; 0 where it has
// none of its own, and the setting counts (ip4_dst_hoplimit in net/ipv4/route.c, ip6_dst_hoplimit in
// net/ipv6/output_core.c).
func (d Decision) HopLimit() int {
	if d.entry == nil {
		return 0
	}
	return d.entry.hopLimit
}

// Default tells whether it is a default route that decided.
func (d Decision) Default() bool { return d.entry != nil && d.entry.prefix.Bits() == 0 }

// ToOne tells whether it is a route to a single address that decided.
func (d Decision) ToOne() bool { return d.entry != nil && d.entry.prefix.IsSingleIP() }

// String returns the rule and the route as ip prints them: "ip rule 100: from 10.244.0.0/16 lookup 100; table 100:
// blackhole default". The kernel's default rules are not named. "" for the zero Decision.
func (d Decision) String() string {
	var parts []string
	if d.rule != nil {
		parts = append(parts, d.tool()+" rule "+d.rule.text())
	}
	if d.entry != nil {
		parts = append(parts, "table "+d.entry.table+": "+strings.Join(d.entry.words(), " "))
	}
	if d.redirected.IsValid() {
		parts = append(parts, d.tool()+" route show cache: redirected to "+d.redirected.String())
	}
	return strings.Join(parts, "; ")
}

// Rule returns the rule as ip rule prints it ("100: from 10.244.0.0/16 lookup 100"); "" for one of the default rules.
func (d Decision) Rule() string {
	if d.rule == nil {
		return ""
	}
	return d.rule.text()
}

// Entry returns the route with its table ("table 100: blackhole default"); "" for none.
func (d Decision) Entry() string {
	if d.entry == nil {
		return ""
	}
	return "table " + d.entry.table + ": " + strings.Join(d.entry.words(), " ")
}

func (d Decision) tool() string {
	if d.v6 {
		return "ip -6"
	}
	return "ip"
}

// RefusedByRule tells whether the rule itself refuses, so that there is no route.
func (d Decision) RefusedByRule() bool { return d.rule != nil && d.rule.refuses != "" }

// Refusal returns the type that refuses, RouteNone for no route, and whether it is the action of a rule.
func (d Decision) Refusal() (typ RouteType, byRule bool) {
	switch {
	case d.RefusedByRule():
		return d.rule.refuses, true
	case d.entry != nil:
		return d.entry.typ, false
	}
	return RouteNone, false
}

// HasRule tells whether a rule that is none of the default ones decided.
func (d Decision) HasRule() bool { return d.rule != nil }

// HasRoute tells whether a route was found.
func (d Decision) HasRoute() bool { return d.entry != nil }

// DeleteRule returns the command that removes the rule, as words; nil where it is a default one.
func (d Decision) DeleteRule() []string {
	if d.rule == nil {
		return nil
	}
	return slices.Concat(strings.Fields(d.tool()), []string{"rule", "del", "priority", d.rule.number()}, d.rule.words())
}

// DeleteRoute returns the command that removes the route, as words; nil where there is none.
func (d Decision) DeleteRoute() []string {
	if d.entry == nil {
		return nil
	}
	return slices.Concat(strings.Fields(d.tool()), []string{"route", "del"}, d.entry.named())
}

// named are the words by which ip finds the route.
func (e *entry) named() []string {
	words := e.words()
	if e.byObject {
		words = slices.DeleteFunc(words, func(w string) bool { return w == string(e.typ) })
	}
	return append(words, "table", e.table)
}

// Named is a route as a command names it.
type Named struct {
	Prefix  netip.Prefix
	Table   string
	Dev     string // of its first next hop; "" for none
	Local   bool   // it is of the table local, which the kernel fills
	Refuses bool   // it is a route that refuses packets, by its own type
	Agents  bool   // the kernel or a program that names itself has made it
}

// Named returns the route that words of [Decision.DeleteRoute] name, those after "del"; ok is false for none.
func (n *Network) Named(v6 bool, words []string) (out Named, ok bool) {
	for fam, f := range n.fam {
		if (fam == 1) != v6 || len(words) < 3 { //nolint:mnd // PREFIX table NAME
			continue
		}
		t := f.tables[words[len(words)-1]]
		if t == nil {
			return out, false
		}
		for _, w := range words[:2] { // a type may come first
			prefix, err := parsePrefix(w)
			if w == "default" {
				prefix, err = everyAddress[fam], nil
			}
			if err != nil {
				continue
			}
			for i := range t.at[prefix] {
				if e := &t.at[prefix][i]; slices.Equal(e.named(), words) {
					return Named{
						Prefix: prefix, Table: e.table, Dev: e.dev(), Local: e.table == tableLocal,
						Refuses: e.refuses() && !e.byObject, Agents: e.agents,
					}, true
				}
			}
		}
	}
	return out, false
}

// Get returns the command by which the kernel itself answers the query, as words.
func (q *Query) Get() []string {
	out := []string{"ip", "route", "get", q.Dst.Unmap().WithZone("").String()}
	if q.Src.IsValid() && !q.Src.IsUnspecified() {
		out = append(out, "from", q.Src.Unmap().String())
	}
	if !q.Local && q.In != "" {
		out = append(out, "iif", q.In)
	}
	return out
}
