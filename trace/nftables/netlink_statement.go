// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"bytes"
	"fmt"
)

// simple is a statement that needs no more than its name.
func simple(name string) reads {
	statement := object1(name, nil)
	return func(m *machine, _ *attrs) error {
		m.add(statement)
		return nil
	}
}

// verdicts that need no chain, by the kernel's number (include/uapi/linux/netfilter.h, enum nft_verdicts).
var plainVerdicts = map[int32]any{0: object1("drop", nil), 1: object1("accept", nil), 3: object1("queue", nil), -1: object1("continue", nil), -5: object1("return", nil)}

// leadingVerdicts are those that lead to a chain.
var leadingVerdicts = map[int32]string{-3: "jump", -4: "goto"}

// verdict reads a verdict (enum nft_verdict_attributes).
func (d *dump) verdict(data []byte) (any, error) {
	const code, chain = 1, 2
	var a attrs
	if err := parseAttrs(data, d.order, &a); err != nil {
		return nil, err
	}
	n := int32(uint32(a.num(code))) //nolint:gosec // it is an int in the kernel
	if v, ok := plainVerdicts[n]; ok {
		return v, nil
	}
	if word, ok := leadingVerdicts[n]; ok {
		known := d.leading[n]
		if known == nil {
			known = map[string]any{}
			d.leading[n] = known
		}
		target := bytes.TrimSuffix(a[chain], []byte{0})
		v, ok := known[string(target)]
		if !ok {
			to := string(target)
			v = object1(word, object1("target", to))
			known[to] = v
		}
		return v, nil
	}
	return object1("unknown", fmt.Sprintf("verdict %d", n)), nil
}

// lookUp asks whether a value is in a set, or what a map has for it (nft_lookup.c).
func lookUp(m *machine, a *attrs) error {
	const name, sreg, dreg, flags = 1, 2, 3, 5
	s := m.sets[a.text(name)]
	if s == nil || len(s.lengths) == 0 {
		m.unknown("lookup in the set " + a.text(name))
		return nil
	}
	key, types := m.key(a.num(sreg), s.keys, s.lengths)
	// A set with a name has its bits at their place, too, but what stands in it does not tell: numbers of them are not understood.
	if f, shift := m.bitsAt(a.num(sreg)); f != nil && shift > 0 && len(types) == 1 && (s.flags&setAnonymous != 0 || f.typ != wireInteger) {
		key, types = f.expr, f.typ.moved(shift).alone()
	}
	var data any = "@" + s.name
	if s.flags&setAnonymous != 0 {
		elements, err := s.list(m.dump, types)
		if err != nil {
			return err
		}
		data = object1("set", elements)
	}
	into, hasRegister := a.number(dreg)
	arg := members{{"key", key}, {"data", data}}
	switch {
	case !hasRegister && a.num(flags)&1 != 0:
		m.match("!=", key, data)
	case !hasRegister:
		m.match("==", key, data)
	case into == 0:
		m.add(object1("vmap", arg))
	default:
		m.regs.set(into, &loaded{expr: object1("map", arg), types: s.data}, s.dataLength)
	}
	return nil
}

// The flags of nat (include/uapi/linux/netfilter/nf_nat.h) that nft prints, by bit.
var natFlagNames = []string{2: "random", 3: "persistent", 4: "fully-random", 6: "netmap"}

// natNetmap is the flag of a translation that keeps the rest of an address.
const natNetmap = 1 << 6

func natFlags(n uint64) any {
	var out []any
	for i, name := range natFlagNames {
		if name != "" && n>>i&1 == 1 {
			out = append(out, name)
		}
	}
	switch len(out) {
	case 0:
		return nil
	case 1:
		return out[0]
	}
	return out
}

// ends is a value that a statement takes from one register, or from two, which have its first and its last value.
func (m *machine) ends(first, last uint64, t *wireType) any {
	from := m.stored(first, t)
	a, b := m.regs.get(first), m.regs.get(last)
	if last == 0 || a.loaded == nil || b.loaded == nil || a.loaded == b.loaded || bytes.Equal(a.bytes, b.bytes) && a.bytes != nil {
		return from // of a map with ranges, both come from the same place
	}
	return object1("range", []any{from, m.stored(last, t)})
}

// wireNAT is snat and dnat (nft_nat.c).
func wireNAT(m *machine, a *attrs) error {
	const kind, family, addrMin, addrMax, portMin, portMax, flags = 1, 2, 3, 4, 5, 6, 7
	n := a.num(kind)
	name := familyNumbers[uint8(a.num(family))] //nolint:gosec // small
	t := map[string]*wireType{"ip": wireIPv4, "ip6": wireIPv6}[name]
	if n > 1 || t == nil {
		m.add(object1("unknown", "nat"))
		return nil
	}
	arg := map[string]any{}
	var by *loaded
	if a[addrMin] != nil {
		by = m.regs.get(a.num(addrMin)).loaded
		arg["addr"] = m.ends(a.num(addrMin), a.num(addrMax), t)
	}
	if name != m.family || by != nil && len(by.types) > 1 { // where nft prints it
		arg["family"] = name
	}
	if a[portMin] != nil && (by == nil || by.bytes != nil || m.regs.get(a.num(portMin)).loaded != by) {
		arg["port"] = m.ends(a.num(portMin), a.num(portMax), wirePort)
	}
	if f := natFlags(a.num(flags)); f != nil {
		arg["flags"] = f
	}
	if a.num(flags)&natNetmap != 0 {
		arg["type_flags"] = "prefix"
	}
	m.add(object1([]string{"snat", "dnat"}[n], arg))
	return nil
}

// toPort is the argument of masquerade and redirect.
func (m *machine) toPort(a *attrs, flags, portMin, portMax int) any {
	arg := map[string]any{}
	if a[portMin] != nil {
		arg["port"] = m.ends(a.num(portMin), a.num(portMax), wirePort)
	}
	if f := natFlags(a.num(flags)); f != nil {
		arg["flags"] = f
	}
	if len(arg) == 0 {
		return nil
	}
	return arg
}

func wireMasquerade(m *machine, a *attrs) error {
	m.add(object1("masquerade", m.toPort(a, 1, 2, 3)))
	return nil
}

func wireRedirect(m *machine, a *attrs) error {
	m.add(object1("redirect", m.toPort(a, 3, 1, 2)))
	return nil
}

func wireTProxy(m *machine, a *attrs) error {
	const family, addr, port = 1, 2, 3
	arg := map[string]any{}
	t := wireIPv4
	if name := familyNumbers[uint8(a.num(family))]; name == "ip" || name == "ip6" { //nolint:gosec // small
		arg["family"] = name
		if name == "ip6" {
			t = wireIPv6
		}
	}
	if a[addr] != nil {
		arg["addr"] = m.stored(a.num(addr), t)
	}
	if a[port] != nil {
		arg["port"] = m.stored(a.num(port), wirePort)
	}
	m.add(object1("tproxy", arg))
	return nil
}

// wireReject refuses the packet (nft_reject.c).
func wireReject(m *machine, a *attrs) error {
	const kind, code = 1, 2
	n := a.num(code)
	var typ string
	var symbols map[uint64]string
	switch a.num(kind) {
	case 0:
		typ, symbols = "icmp", wireICMPCode.symbols
		if m.network == "ip6" {
			typ, symbols = "icmpv6", wireICMPv6Code.symbols
		}
		// nft does not print the condition that it makes for it.
		m.uses(&headerBytes{base: baseNetwork, protocol: typ})
	case 1:
		if m.family != "inet" {
			m.uses(&headerBytes{base: baseTransport, protocol: "tcp"})
		}
		m.add(object1("reject", object1("type", "tcp reset")))
		return nil
	case 2:
		typ, symbols = "icmpx", icmpxCodes
	default:
		m.add(object1("unknown", "reject"))
		return nil
	}
	var word any = float64(n)
	if s, ok := symbols[n]; ok {
		word = s
	}
	m.add(object1("reject", members{{"type", typ}, {"expr", word}}))
	return nil
}

// logLevels are syslog's; 8 is audit's (enum nft_log_level).
var logLevels = []string{"emerg", "alert", "crit", "err", "warn", "notice", "info", "debug", "audit"}

// logWarning is the level that nft does not print.
const logWarning = 4

func wireLog(m *machine, a *attrs) error {
	const group, prefix, level = 1, 2, 5
	arg := map[string]any{}
	if a[prefix] != nil {
		arg["prefix"] = a.text(prefix)
	}
	if n, has := a.number(group); has {
		arg["group"] = float64(n)
	}
	if n, has := a.number(level); has && n != logWarning && n < uint64(len(logLevels)) {
		arg["level"] = logLevels[n]
	}
	if len(arg) == 0 {
		m.add(object1("log", nil))
		return nil
	}
	m.add(object1("log", arg))
	return nil
}

// byteUnits are the units in which nft prints bytes, of which it takes the largest that fits (get_rate, src/statement.c).
var byteUnits = []string{"bytes", "kbytes", "mbytes"}

func inBytes(n uint64) (float64, string) {
	unit := 0
	for unit+1 < len(byteUnits) && n > 0 && n%1024 == 0 {
		n /= 1024
		unit++
	}
	return float64(n), byteUnits[unit]
}

// limitUnits are periods by their seconds.
var limitUnits = map[uint64]string{1: "second", 60: "minute", 3600: "hour", 86400: "day", 604800: "week"}

func wireLimit(m *machine, a *attrs) error {
	m.add(object1("limit", limitOf(a)))
	return nil
}

// limitOf reads a limit (nft_limit.c).
func limitOf(a *attrs) any {
	const rate, unit, burst, kind, flags = 1, 2, 3, 4, 5
	per, ok := limitUnits[a.num(unit)]
	if !ok {
		per = fmt.Sprintf("%d seconds", a.num(unit))
	}
	arg := map[string]any{"rate": float64(a.num(rate)), "burst": float64(a.num(burst)), "per": per}
	if a.num(kind) == 1 {
		arg["rate"], arg["rate_unit"] = inBytes(a.num(rate))
		arg["burst"], arg["burst_unit"] = inBytes(a.num(burst))
	}
	if a.num(flags)&1 != 0 {
		arg["inv"] = true
	}
	return arg
}

func wireQuota(m *machine, a *attrs) error {
	const limit, flags = 1, 2
	val, unit := inBytes(a.num(limit))
	arg := map[string]any{"val": val, "val_unit": unit}
	if a.num(flags)&1 != 0 {
		arg["inv"] = true
	}
	m.add(object1("quota", arg))
	return nil
}

func wireConnlimit(m *machine, a *attrs) error {
	const count, flags = 1, 2
	arg := map[string]any{"val": float64(a.num(count))}
	if a.num(flags)&1 != 0 {
		arg["inv"] = true
	}
	m.add(object1("ct count", arg))
	return nil
}

func wireQueue(m *machine, a *attrs) error {
	const num, total, flags, sreg = 1, 2, 3, 4
	arg := map[string]any{}
	switch {
	case a[sreg] != nil:
		arg["num"] = m.stored(a.num(sreg), wireHostInt)
	case a.num(total) > 1:
		arg["num"] = object1("range", []any{float64(a.num(num)), float64(a.num(num) + a.num(total) - 1)})
	default:
		arg["num"] = float64(a.num(num))
	}
	var names []any
	for i, name := range []string{"bypass", "fanout"} {
		if a.num(flags)>>i&1 == 1 {
			names = append(names, name)
		}
	}
	switch len(names) {
	case 0:
	case 1:
		arg["flags"] = names[0]
	default:
		arg["flags"] = names
	}
	m.add(object1("queue", arg))
	return nil
}

// wireDup is dup and fwd, of which nobody asks for more than the name.
func wireDup(name string) reads {
	return func(m *machine, _ *attrs) error {
		m.add(object1(name, map[string]any{}))
		return nil
	}
}

func wireFlow(m *machine, a *attrs) error {
	m.add(object1("flow", members{{"op", "add"}, {"flowtable", "@" + a.text(1)}}))
	return nil
}

// objectNames are what nft -j calls objects, by the kernel's number (NFT_OBJECT_…).
var objectNames = map[uint64]string{
	1: "counter", 2: "quota", 3: "ct helper", 4: "limit", 5: "ct count", 6: "tunnel", 7: "ct timeout", 8: "secmark", 9: "ct expectation", 10: "synproxy",
}

// wireObject uses an object that has a name, or that a map has for the packet (nft_objref.c).
func wireObject(m *machine, a *attrs) error {
	const kind, name, sreg, set = 1, 2, 3, 4
	if what, ok := objectNames[a.num(kind)]; ok {
		m.add(object1(what, a.text(name)))
		return nil
	}
	s := m.sets[a.text(set)]
	if s == nil || objectNames[s.object] == "" {
		m.unknown("objref")
		return nil
	}
	key, _ := m.key(a.num(sreg), s.keys, s.lengths)
	m.add(object1(objectNames[s.object], object1("map", members{{"key", key}, {"data", "@" + s.name}})))
	return nil
}

// wireDynset puts an element into a set, or takes it out (nft_dynset.c).
func wireDynset(m *machine, a *attrs) error {
	const name, sign, key, data, timeout, expression, expressions = 1, 3, 4, 5, 6, 7, 10
	s := m.sets[a.text(name)]
	n := a.num(sign)
	if s == nil || len(s.lengths) == 0 || n > 2 {
		m.unknown("dynset")
		return nil
	}
	elem, _ := m.key(a.num(key), s.keys, s.lengths)
	if ms := a.num(timeout); ms > 0 {
		elem = object1("elem", members{{"val", elem}, {"timeout", float64(ms / 1000)}})
	}
	inner := &machine{dump: m.dump, family: m.family, sets: m.sets, regs: m.regs, link: m.link, network: m.network, transport: m.transport}
	if a[expression] != nil {
		if err := inner.expression(a[expression]); err != nil {
			return err
		}
	}
	for _, e := range eachAttr(a[expressions], m.order) {
		if e == nil {
			return errAttrs
		}
		if err := inner.expression(e); err != nil {
			return err
		}
	}
	arg := map[string]any{"op": []string{"add", "update", "delete"}[n], "elem": elem}
	kind := "set"
	if a[data] != nil {
		kind = "map"
		arg["data"], _ = m.key(a.num(data), s.data, s.dataLengths)
	}
	arg[kind] = "@" + s.name
	if len(inner.out) > 0 {
		arg["stmt"] = inner.out
	}
	m.add(object1(kind, arg))
	return nil
}

// wireXT is a match or a target of iptables, by its name.
func wireXT(kind string) reads {
	return func(m *machine, a *attrs) error {
		m.add(object1("xt", members{{"type", kind}, {"name", a.text(1)}}))
		return nil
	}
}
