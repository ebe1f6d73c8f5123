// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// rule is one routing policy rule.
type rule struct {
	priority int
	from, to netip.Prefix // invalid: any
	iif      string       // "": any
	marked   bool         // it has a condition on the packet's mark
	mark     uint32
	mask     uint32
	oif      bool   // it has a condition on the interface that a socket is bound to, or on a VRF
	maybe    bool   // it has conditions that are not modelled
	not      bool   // inverted: it applies where its conditions do not hold
	table    string // "" for a rule with another action than a table lookup
	nop      bool
	text     string
	unread   string // not a rule but all of this file, which could not be read
}

// unconditional tells whether a rule has no condition.
func (r *rule) unconditional() bool {
	return !r.from.IsValid() && !r.to.IsValid() && r.iif == "" && !r.marked && !r.oif && !r.maybe && !r.not
}

// applies tells whether a rule applies to a packet (fib_rule_match in net/core/fib_rules.c, fib4_rule_match in
// net/ipv4/fib_rules.c). known is false where one of its conditions cannot be evaluated and no other one fails.
func (r *rule) applies(q *Query) (yes, known bool) {
	yes, known = true, !r.maybe
	for _, c := range [...]struct{ asked, known, holds bool }{
		{r.to.IsValid(), true, r.to.Contains(q.Dst)},
		{r.from.IsValid(), q.Src.IsValid(), r.from.Contains(q.Src)},
		{r.iif != "", q.In != "", r.iif == q.In},
		{r.marked, q.marked, (r.mark^q.Mark)&r.mask == 0},
		{r.oif, q.incoming, false}, // an incoming packet belongs to no bound socket
	} {
		switch {
		case !c.asked:
		case !c.known:
			known = false
		case !c.holds:
			return r.not, true
		}
	}
	return yes != r.not, known
}

// readRules reads ip-rule.json, or the same for IPv6.
func (n *Network) readRules(data []byte, fam int) error {
	raw, err := decode[map[string]json.RawMessage](data)
	if err != nil {
		return err
	}
	rules := []rule{}
	for i, m := range raw {
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
	n.fam[fam].rules, n.fam[fam].rulesKnown = rules, true
	if isDefault(rules) {
		n.fam[fam].rules = nil
	}
	return nil
}

// isDefault tells whether the rules are equivalent to the kernel's default ones. The table default may be missing: IPv6
// has none.
func isDefault(rules []rule) bool {
	want := []string{tableLocal, tableMain, tableDefault}
	for i, r := range rules {
		if i >= len(want) || r.table != want[i] || !r.unconditional() {
			return false
		}
	}
	return len(rules) >= 2
}

// plain are the keys of a rule that parseRule reads, or that are not conditions.
var plain = []string{
	"priority", "not", "src", "srclen", "dst", "dstlen", "fwmark", "fwmask", "iif", "oif", "table", "protocol", "nop",
}

// elsewhere are the keys of a rule that does more than a table lookup.
var elsewhere = []string{"goto", "action", "nat", "l3mdev", "suppress_prefixlen", "suppress_ifgroup", "unresolved"}

func parseRule(m map[string]json.RawMessage, fam int) (rule, error) {
	var r rule
	var src, dst, table, mark, oif string
	mask := "0xffffffff"
	var srclen, dstlen *int
	for key, into := range map[string]any{
		"priority": &r.priority, "src": &src, "srclen": &srclen, "dst": &dst, "dstlen": &dstlen, "table": &table,
		"iif": &r.iif, "oif": &oif, "fwmark": &mark, "fwmask": &mask,
	} {
		if v, ok := m[key]; ok {
			if err := json.Unmarshal(v, into); err != nil {
				return rule{}, fmt.Errorf("its %q is %s", key, v)
			}
		}
	}
	if _, ok := m["priority"]; !ok {
		return rule{}, fmt.Errorf("it has no priority")
	}
	r.oif = oif != ""
	var err error
	if r.from, err = rulePrefix(src, srclen, fam); err != nil {
		return rule{}, fmt.Errorf("its source is %q", src)
	}
	if r.to, err = rulePrefix(dst, dstlen, fam); err != nil {
		return rule{}, fmt.Errorf("its destination is %q", dst)
	}
	if mark != "" {
		v, err := strconv.ParseUint(mark, 0, 32)
		w, err2 := strconv.ParseUint(mask, 0, 32)
		if err != nil || err2 != nil {
			return rule{}, fmt.Errorf("its mark is %q", mark+"/"+mask)
		}
		r.marked, r.mark, r.mask = true, uint32(v), uint32(w)
	}
	if table != "" {
		r.table = tableName(table)
	}
	_, r.nop = m["nop"]
	_, r.not = m["not"]
	for key := range m {
		if slices.Contains(elsewhere, key) {
			r.table = ""
		} else if !slices.Contains(plain, key) {
			r.maybe = true
		}
	}
	if r.table == "" && !r.nop && !slices.ContainsFunc(elsewhere, func(k string) bool { return m[k] != nil }) {
		return rule{}, fmt.Errorf("it names no table")
	}
	r.text = ruleText(m)
	return r, nil
}

// rulePrefix reads a source or destination of a rule; an invalid one stands for any.
func rulePrefix(s string, bits *int, fam int) (netip.Prefix, error) {
	if s == "" || s == "all" {
		return netip.Prefix{}, nil
	}
	p, err := parsePrefix(s)
	if err == nil && bits != nil {
		p, err = p.Addr().Prefix(*bits)
	}
	if err == nil && famOf(p.Addr()) != fam {
		err = errors.New("it is of the other IP family")
	}
	return p, err
}

// ruleText formats a rule similarly to ip rule.
func ruleText(m map[string]json.RawMessage) string {
	str := func(key string) string { return strings.Trim(string(m[key]), `"`) }
	b := strings.Builder{}
	b.WriteString(str("priority") + ":")
	if m["not"] != nil {
		b.WriteString(" not")
	}
	for _, k := range [][3]string{{"from", "src", "srclen"}, {"to", "dst", "dstlen"}, {"fwmark", "fwmark", "fwmask"}} {
		if m[k[1]] != nil {
			b.WriteString(" " + k[0] + " " + str(k[1]))
			if m[k[2]] != nil {
				b.WriteString("/" + str(k[2]))
			}
		}
	}
	rest := make([]string, 0, len(m))
	for key := range m {
		if !slices.Contains([]string{
			"priority", "not", "src", "srclen", "dst", "dstlen", "fwmark", "fwmask", "table",
			"protocol",
		}, key) {
			rest = append(rest, key)
		}
	}
	slices.Sort(rest)
	for _, key := range rest {
		b.WriteString(" " + key)
		if v := str(key); v != "null" {
			b.WriteString(" " + v)
		}
	}
	if m["table"] != nil {
		b.WriteString(" lookup " + str("table"))
	}
	return b.String()
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

var defaultRules = []rule{{table: tableLocal}, {table: tableMain}, {table: tableDefault}}

// byRules looks up the route in the tables in the order of the rules. Where it is not known whether a rule applies,
// both cases are followed, and the route is known if both give the same one.
func (n *Network) byRules(f *family, q *Query) (fullRoute, bool, string) {
	rules := f.rules
	if rules == nil {
		rules = defaultRules
	}
	var got fullRoute
	var by string // the rule that got is from, if it may not apply
	have := false
	agree := func(r fullRoute) bool { return !have || got == r }
	for i := range rules {
		ru := &rules[i]
		applies, certain := ru.applies(q)
		if ru.nop || certain && !applies {
			continue
		}
		r, found, why := n.lookupByRule(f, ru, q.Dst)
		if why != "" {
			return fullRoute{}, false, why
		}
		if !found {
			continue
		}
		if !agree(r) {
			return fullRoute{}, false, "the routing rule \"" + by + "\" may send it elsewhere"
		}
		if certain {
			return r, true, ""
		}
		got, by, have = r, ru.text, true
	}
	if r := (fullRoute{Route: Route{Type: RouteNone}}); agree(r) {
		return r, true, ""
	}
	return fullRoute{}, false, "the routing rule \"" + by + "\" may send it elsewhere"
}

// lookupByRule looks up dst in the table of one rule; why is the reason where that cannot be done.
func (n *Network) lookupByRule(f *family, ru *rule, dst netip.Addr) (r fullRoute, found bool, why string) {
	switch {
	case ru.unread != "":
		return fullRoute{}, false, "which routing table is looked up is not known (" + ru.unread + " could not be read)"
	case ru.table == "":
		return fullRoute{}, false, "the routing rule \"" + ru.text + "\" may apply to it"
	case ru.table == tableLocal:
		r, found, known := n.fromLocal(f, dst)
		if !known {
			return fullRoute{}, false, "whether it is the node's own address is not known (" + snapshot.AddrFile + ")"
		}
		return r, found, ""
	case !f.routesKnown:
		return fullRoute{}, false, errNoRoutes[famOf(dst)].Error()
	case f.tables[ru.table] == nil && !f.allTables && ru.table != tableMain && ru.table != tableDefault:
		return fullRoute{}, false, "the routing rule \"" + ru.text + "\" may apply to it, and its table was not collected"
	}
	ans, ok := f.tables[ru.table].lookup(dst)
	switch {
	case !ok || ans.throw:
		return fullRoute{}, false, ""
	case ans.unknown:
		return fullRoute{}, false, ans.why
	}
	return ans.route, true, ""
}
