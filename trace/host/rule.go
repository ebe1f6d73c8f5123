// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
)

// rule is one routing policy rule.
type rule struct {
	priority int
	not      bool         // inverted: it applies where its conditions do not hold
	from, to netip.Prefix // invalid: any
	iif, oif string       // "": any
	mark     uint32
	mask     uint32 // 0: no condition on the mark
	tos      uint8
	tosMask  uint8 // 0: no condition on the TOS
	proto    uint8 // 0: any
	sport    span
	dport    span
	uid      span
	tunnel   bool   // it has a condition on the key of the tunnel that the packet came by
	l3mdev   bool   // it is for packets of VRFs, and looks up the table of theirs
	maybe    bool   // it has conditions that are not modelled
	table    string // "" for a rule with another action than a table lookup
	refuses  RouteType
	jump     bool // to the rule with index target; -1: there is none
	target   int
	nop      bool
	noPrefix int    // it takes no route of a prefix that is no longer; -1: any
	noGroup  string // it takes no route by an interface of this group; "": any
	keys     map[string]json.RawMessage
	unread   string // not a rule but all of this file, which could not be read
	// implied: the rule is not there, and the kernel may look up its table all the same.
	implied bool
}

// span is a range of numbers. The zero span is none.
type span struct {
	low, high uint32
	set       bool
}

func (s span) holds(v uint32) bool { return s.low <= v && v <= s.high }

// The ports that a kernel may choose for a client (inet_sk_ports_range in net/ipv4/af_inet.c): which of them, the
// settings of the client's network namespace say. It refuses a range that begins with privileged ports
// (ipv4_local_port_range in net/ipv4/sysctl_net_ipv4.c).
const (
	firstClientPort = 1024
	lastPort        = 65535
)

// ofClient tells whether a range has the port of a client: one that the kernel has chosen for it. The node's settings
// are those of its own connections; of a client elsewhere, be it a pod, the settings are not known.
func (s span) ofClient(n *Network, local bool) truth {
	low, high := uint32(firstClientPort), uint32(lastPort)
	if first, last, known := n.LocalPorts(); known && local {
		low, high = uint32(first), uint32(last)
	}
	covers, meets := s.low <= low && high <= s.high, s.low <= high && low <= s.high
	return truth{covers, covers || !meets}
}

// bare are the fields of a rule without conditions that looks up a table.
func bare(table string) rule { return rule{table: table, noPrefix: -1, target: -1} }

// unconditional tells whether a rule has no condition.
func (r *rule) unconditional() bool {
	return !r.not && !r.from.IsValid() && !r.to.IsValid() && r.iif == "" && r.oif == "" && r.mask == 0 && r.tosMask == 0 &&
		r.proto == 0 && !r.sport.set && !r.dport.set && !r.uid.set && !r.tunnel && !r.l3mdev &&
		!r.maybe
}

// standard tells whether a rule is as the kernel's default ones are.
func (r *rule) standard() bool {
	return r.unconditional() && r.noPrefix < 0 && r.noGroup == "" &&
		(r.table == tableLocal || r.table == tableMain || r.table == tableDefault)
}

// suppresses tells whether a rule does not take a route that it found, by its prefix's length or its interface
// (fib4_rule_suppress in net/ipv4/fib_rules.c, fib6_rule_suppress in net/ipv6/fib6_rules.c). Routes that refuse are not
// asked for it.
func (r *rule) suppresses(n *Network, bits int, dev string) bool {
	return bits <= r.noPrefix || r.noGroup != "" && dev != "" && n.groupOf(dev) == r.noGroup
}

// truth is whether a condition holds.
type truth struct{ holds, known bool }

func knownTruth(holds bool) truth { return truth{holds, true} }

// conditions are those that a rule may have (fib_rule_match in net/core/fib_rules.c, fib4_rule_match in
// net/ipv4/fib_rules.c, fib6_rule_match in net/ipv6/fib6_rules.c): whether a rule has it, and whether it holds.
var conditions = []struct {
	asked func(*rule) bool
	holds func(*rule, *Network, *Query) truth
}{
	{
		func(r *rule) bool { return r.to.IsValid() },
		func(r *rule, _ *Network, q *Query) truth { return knownTruth(r.to.Contains(q.Dst)) },
	},
	{
		// A source that is still to be chosen is in no prefix but that of all.
		func(r *rule) bool { return r.from.IsValid() && r.from.Bits() > 0 },
		func(r *rule, _ *Network, q *Query) truth { return truth{r.from.Contains(q.Src), q.Src.IsValid()} },
	},
	{
		func(r *rule) bool { return r.iif != "" },
		func(r *rule, _ *Network, q *Query) truth {
			if q.Local {
				return knownTruth(r.iif == "lo")
			}
			return truth{r.iif == q.In, q.In != ""}
		},
	},
	{
		func(r *rule) bool { return r.oif != "" },
		func(r *rule, _ *Network, q *Query) truth { return knownTruth(q.Local && r.oif == q.Out) },
	},
	{
		func(r *rule) bool { return r.mask != 0 },
		func(r *rule, _ *Network, q *Query) truth { return truth{(r.mark^q.Mark)&r.mask == 0, !q.AnyMark} },
	},
	{
		func(r *rule) bool { return r.tosMask != 0 },
		func(r *rule, _ *Network, q *Query) truth { return truth{(r.tos^q.TOS)&r.tosMask == 0, !q.AnyTOS} },
	},
	{
		func(r *rule) bool { return r.proto != 0 },
		func(r *rule, _ *Network, q *Query) truth {
			return truth{!q.Bare && r.proto == q.Proto, q.Bare || q.Proto != 0}
		},
	},
	{
		func(r *rule) bool { return r.sport.set },
		func(r *rule, n *Network, q *Query) truth {
			if q.DstPort != 0 && !q.Bare && !q.NoSrcPort && q.SrcPort == 0 {
				return r.sport.ofClient(n, q.Local)
			}
			return truth{q.SrcPort != 0 && r.sport.holds(uint32(q.SrcPort)), q.Bare || q.NoSrcPort || q.SrcPort != 0}
		},
	},
	{
		func(r *rule) bool { return r.dport.set },
		func(r *rule, n *Network, q *Query) truth {
			if q.SrcPort != 0 && !q.Bare && q.DstPort == 0 {
				return r.dport.ofClient(n, false)
			}
			return truth{q.DstPort != 0 && r.dport.holds(uint32(q.DstPort)), q.Bare || q.DstPort != 0}
		},
	},
	{
		func(r *rule) bool { return r.uid.set },
		func(r *rule, _ *Network, q *Query) truth {
			if !q.Local {
				return knownTruth(r.uid.holds(0))
			}
			all := r.uid.low == 0 && r.uid.high == math.MaxUint32
			return truth{all || r.uid.holds(q.UID), all || !q.AnyUID}
		},
	},
	{
		func(r *rule) bool { return r.tunnel },
		func(_ *rule, n *Network, q *Query) truth { return truth{false, q.Local || n.plain(q.In)} },
	},
	{
		func(r *rule) bool { return r.l3mdev },
		func(_ *rule, n *Network, q *Query) truth { return n.byVRF(q) },
	},
	{
		func(r *rule) bool { return r.maybe },
		func(*rule, *Network, *Query) truth { return truth{} },
	},
}

// applies tells whether a rule applies to a packet. known is false where one of its conditions cannot be evaluated and
// no other one fails.
func (r *rule) applies(n *Network, q *Query) (yes, known bool) {
	known = true
	if r.keys == nil {
		return true, true // one of the default rules
	}
	for i := range conditions {
		c := &conditions[i]
		if !c.asked(r) {
			continue
		}
		switch t := c.holds(r, n, q); {
		case !t.known:
			known = false
		case !t.holds:
			return r.not, true
		}
	}
	return !r.not, known
}

// readRules reads ip-rule.json, or the same for IPv6: the rules, and behind them, if there is any, what ip may not
// print of them.
func (n *Network) readRules(data []byte, fam int) error {
	const both = 2
	lists, err := decodeLists[map[string]json.RawMessage](data, both)
	if err != nil {
		return err
	}
	if len(lists) == both {
		if err := addUnprinted(lists[0], lists[1]); err != nil {
			return err
		}
	}
	rules := []rule{}
	for i, m := range lists[0] {
		if len(m) == 0 {
			continue
		}
		r, err := parseRule(m, fam)
		if err != nil {
			return fmt.Errorf("rule %d: %w", i+1, err)
		}
		rules = append(rules, r)
	}
	if len(rules) == 0 {
		return fmt.Errorf("it has no rule")
	}
	slices.SortStableFunc(rules, func(a, b rule) int { return a.priority - b.priority })
	if fam == 1 {
		rules = withImplied(rules)
	}
	for i := range rules {
		rules[i].resolve(rules, i)
	}
	n.fam[fam].rules, n.fam[fam].rulesKnown = rules, true
	if isDefault(rules) {
		n.fam[fam].rules = nil
	}
	return nil
}

// withImplied adds those of the tables local and main that no rule looks up to IPv6's rules, if all others are the
// kernel's own: until somebody's first rule was added, it looks up both without asking the rules (fib6_rule_lookup and
// fib6_has_custom_rules in net/ipv6/fib6_rules.c).
func withImplied(rules []rule) []rule {
	looksUp := func(table string) bool {
		return slices.ContainsFunc(rules, func(r rule) bool { return r.table == table })
	}
	if slices.ContainsFunc(rules, func(r rule) bool { return !r.standard() }) {
		return rules
	}
	implied := func(table string) rule {
		r := bare(table)
		r.implied, r.maybe, r.keys = true, true, map[string]json.RawMessage{}
		return r
	}
	out := slices.Clone(rules)
	if !looksUp(tableLocal) {
		out = slices.Insert(out, 0, implied(tableLocal))
	}
	if !looksUp(tableMain) {
		out = append(out, implied(tableMain))
	}
	return out
}

// resolve finds the rule that a rule jumps to: the first one of that priority, which is higher than its own
// (fib_nl_newrule in net/core/fib_rules.c).
func (r *rule) resolve(rules []rule, at int) {
	if !r.jump {
		return
	}
	want := r.target
	r.target = -1
	if r.keys["unresolved"] != nil {
		return
	}
	for i := at + 1; i < len(rules); i++ {
		if rules[i].priority == want && want > r.priority {
			r.target = i
			return
		}
	}
}

// isDefault tells whether the rules are equivalent to the kernel's default ones. The table default may be missing: IPv6
// has none.
func isDefault(rules []rule) bool {
	want := []string{tableLocal, tableMain, tableDefault}
	for i, r := range rules {
		if i >= len(want) || r.table != want[i] || !r.standard() {
			return false
		}
	}
	return len(rules) >= 2
}

// parseRule reads a rule as ip -j rule prints it.
func parseRule(m map[string]json.RawMessage, fam int) (rule, error) {
	k := keys{m: m}
	r := rule{
		priority: k.number("priority", 32), not: k.has("not"), iif: k.text("iif"), oif: k.text("oif"), nop: k.has("nop"),
		tunnel: k.has("tun_id"), l3mdev: k.has("l3mdev"), jump: k.has("goto"), target: -1, noPrefix: -1,
		keys: m,
	}
	if !k.has("priority") {
		return rule{}, errors.New("it has no priority")
	}
	r.from, r.to = k.prefix("src", "srclen", fam), k.prefix("dst", "dstlen", fam)
	if k.has("fwmark") {
		r.mark, r.mask = k.hex("fwmark"), math.MaxUint32
		if k.has("fwmask") {
			r.mask = k.hex("fwmask")
		}
	}
	r.readTOS(&k, fam)
	if k.has("ipproto") {
		if r.proto = protocolNumber(k.text("ipproto")); r.proto == 0 {
			r.maybe = true
		}
	}
	r.sport, r.dport = k.span("sport", "sport_start", "sport_end"), k.span("dport", "dport_start", "dport_end")
	r.uid = k.span("", "uid_start", "uid_end")
	if r.jump {
		r.target = k.number("goto", 32)
	}
	if k.has("suppress_prefixlen") {
		r.noPrefix = k.number("suppress_prefixlen", 8)
	}
	r.noGroup = groupName(k.text("suppress_ifgroup"))
	if table := k.text("table"); table != "" {
		r.table = tableName(table)
	}
	if action := k.text("action"); action != "" {
		switch RouteType(action) {
		case RouteBlackhole, RouteUnreachable, RouteProhibit:
			r.refuses = RouteType(action)
		case RouteUnicast, RouteLocal, RouteBroadcast, RouteMulticast, RouteNone:
			r.table = ""
		default:
			r.table = ""
		}
	}
	r.maybe = r.maybe || k.rest(ruleKeys)
	if k.err != nil {
		return rule{}, k.err
	}
	if r.table == "" && !r.nop && !r.jump && !r.l3mdev && !k.has("action") && !k.has("nat") {
		return rule{}, errors.New("it names no table")
	}
	return r, nil
}

// The parts of a TOS byte that a rule compares: "tos" leaves out the upper three bits of the IPv4 header's
// (fib_dscp_masked_match in include/net/ip_fib.h), "dscp" has all but the two of ECN.
const (
	legacyTOS = 0x1c
	fullDSCP  = 0xfc
)

func (r *rule) readTOS(k *keys, fam int) {
	switch {
	case k.has("dscp"):
		v, ok := dscpNumber(k.text("dscp"))
		r.tos, r.tosMask = v<<2, fullDSCP
		if k.has("dscp_mask") {
			r.tosMask = uint8(k.hex("dscp_mask")&(fullDSCP>>2)) << 2
		}
		r.maybe = r.maybe || !ok
	case k.has("tos"):
		v, err := strconv.ParseUint(k.text("tos"), 0, 8)
		r.tos, r.tosMask = uint8(v), legacyTOS
		if fam == 1 {
			r.tosMask = fullDSCP
		}
		if r.tos == 0 {
			r.tosMask = 0
		}
		r.maybe = r.maybe || err != nil // a name of /etc/iproute2/rt_dsfield
	}
}

// tableName returns the name that ip gives to a table.
func tableName(s string) string {
	switch s {
	case "", "254":
		return tableMain
	case "255":
		return tableLocal
	case "253":
		return tableDefault
	}
	return s
}

// The address scopes of rtnetlink (RT_SCOPE_*): a smaller value is a wider scope.
const (
	scopeGlobal uint8 = 0
	scopeSite   uint8 = 200
	scopeLink   uint8 = 253
	scopeHost   uint8 = 254
)

func scopeOf(s string) uint8 {
	switch s {
	case "", "global":
		return scopeGlobal
	case "site":
		return scopeSite
	case "link":
		return scopeLink
	case "host":
		return scopeHost
	}
	if n, err := strconv.ParseUint(s, 0, 8); err == nil {
		return uint8(n)
	}
	return scopeGlobal
}

// defaultRules are those that the kernel starts with (fib_default_rules_init in net/ipv4/fib_rules.c).
var defaultRules = []rule{bare(tableLocal), bare(tableMain), bare(tableDefault)}
