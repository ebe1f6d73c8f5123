// SPDX-License-Identifier: Apache-2.0

package nfmessages

import (
	"bytes"
	"fmt"
	"math"

	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// simple is a statement that needs no more than its name.
func simple(name string) reads {
	return func(m *machine, _ *attrs) error {
		m.add(syntax.Plain(name))
		return nil
	}
}

// plainVerdicts are those that need no chain, by the kernel's number (include/uapi/linux/netfilter.h, enum
// nft_verdicts).
var plainVerdicts = map[int32]*syntax.Verdict{
	0: {Kind: "drop"}, 1: {Kind: "accept"}, -1: {Kind: "continue"}, -5: {Kind: "return"},
}

// verdictQueue is NF_QUEUE.
const verdictQueue = 3

// jumpVerdicts are those that go to a chain.
var jumpVerdicts = map[int32]string{-3: "jump", -4: "goto"}

// verdict reads a verdict (enum nft_verdict_attributes): its number, and what it is, nil for one that is not known.
func (d *dump) verdict(data []byte) (v *syntax.Verdict, number int32, err error) {
	const code, chain, chainID = 1, 2, 3
	var a attrs
	if err := parseAttrs(data, d.Order, &a); err != nil {
		return nil, 0, err
	}
	if _, more := a.beyond(upTo(chainID)); more {
		return nil, math.MinInt32, nil
	}
	n := int32(uint32(a.num(code))) //nolint:gosec // it is an int in the kernel
	target := bytes.TrimSuffix(a[chain], []byte{0})
	kind := jumpVerdicts[n]
	if kind == "" || len(target) == 0 {
		return plainVerdicts[n], n, nil
	}
	known := d.jumps[n]
	if known == nil {
		known = map[string]*syntax.Verdict{}
		d.jumps[n] = known
	}
	v = known[string(target)]
	if v == nil {
		v = &syntax.Verdict{Kind: kind, Target: string(target)}
		known[v.Target] = v
	}
	return v, n, nil
}

// elementVerdict is the verdict that a map has for a key.
func (d *dump) elementVerdict(data []byte) (syntax.Expr, error) {
	v, n, err := d.verdict(data)
	switch {
	case err != nil:
		return nil, err
	case v != nil:
		return v, nil
	}
	return notUnderstood(fmt.Sprintf("verdict %d", n)), nil
}

// ends adds the verdict that ends a rule.
func (m *machine) ends(data []byte) error {
	v, n, err := m.verdict(data)
	switch {
	case err != nil:
		return err
	case v != nil:
		m.add(v)
	case n == verdictQueue:
		m.add(&syntax.Queue{})
	default:
		m.addUnknown(fmt.Sprintf("verdict %d", n))
	}
	return nil
}

func wireCounter(m *machine, a *attrs) error {
	const size, packets = 1, 2
	m.add(&syntax.Counter{Packets: a.num(packets), Bytes: a.num(size)})
	return nil
}

// lookUp asks whether a value is in a set, or what a map has for it (nft_lookup.c).
func lookUp(m *machine, a *attrs) error {
	const sreg, dreg, flags = 2, 3, 5
	s := m.sets[a.text(lookupSet)]
	if s == nil || len(s.lengths) == 0 || a.num(flags) > 1 {
		m.unknown("lookup in the set " + a.text(lookupSet))
		return nil
	}
	by, err := m.lookUpIn(s, a.num(sreg))
	if err != nil {
		return err
	}
	into, hasRegister := a.number(dreg)
	switch {
	case !hasRegister && a.num(flags)&1 != 0:
		m.match("!=", by.Key, keysOf(by.Data))
	case !hasRegister:
		m.match("==", by.Key, keysOf(by.Data))
	case into == 0:
		m.add((*syntax.VMap)(by))
	default:
		m.regs.set(into, &loaded{expr: by, types: s.data}, s.dataLength)
	}
	return nil
}

// keysOf are the elements of a set that stands in a rule, without what they are mapped to.
func keysOf(data syntax.Expr) syntax.Expr {
	elements, ok := data.(syntax.AnonymousSet)
	if !ok {
		return data
	}
	out := make(syntax.AnonymousSet, len(elements))
	for i := range elements {
		out[i].Key = elements[i].Key
	}
	return out
}

// lookUpIn is the key that a register holds, and the set that it is looked up in: its name, or its elements where it
// has none of its own.
func (m *machine) lookUpIn(s *dumpSet, sreg uint64) (*syntax.Map, error) {
	key, types := m.key(sreg, s.keys, s.lengths)
	// A set with a name has its bits at their place, too, but what stands in it does not tell: numbers of them are not
	// understood.
	if f, shift := m.bitsAt(sreg); f != nil && shift > 0 && len(types) == 1 &&
		(s.flags&setAnonymous != 0 || f.typ != wireInteger) {
		key, types = f.expr, f.typ.moved(shift).alone()
	}
	var data syntax.Expr = syntax.String("@" + s.name)
	if s.flags&setAnonymous != 0 {
		elements, err := s.list(m.dump, types)
		if err != nil {
			return nil, err
		}
		data = syntax.AnonymousSet(elements)
	}
	return &syntax.Map{Key: key, Data: data}, nil
}

// The attributes with the name of a set: of a look-up (enum nft_lookup_attributes), of a reference to an object that a
// map has (enum nft_objref_attributes), and of a rule that adds elements (enum nft_dynset_attributes).
const (
	lookupSet  = 1
	objectSet  = 4
	updatedSet = 1
)

// natFlagNames are the flags of nat (include/uapi/linux/netfilter/nf_nat.h) that nft prints, by bit.
var natFlagNames = []string{2: "random", 3: "persistent", 4: "fully-random", 6: "netmap"}

// natNetmap is the flag of a translation that keeps the rest of an address.
const natNetmap = 1 << 6

func natFlags(n uint64) (out []string) {
	for i, name := range natFlagNames {
		if name != "" && n>>i&1 == 1 {
			out = append(out, name)
		}
	}
	return out
}

// fromTo is a value that a statement takes from one register, or from two, which have its first and its last value.
func (m *machine) fromTo(first, last uint64, t *wireType) syntax.Expr {
	from := m.stored(first, t)
	a, b := m.regs.get(first), m.regs.get(last)
	if last == 0 || a.loaded == nil || b.loaded == nil || a.loaded == b.loaded ||
		bytes.Equal(a.bytes, b.bytes) && a.bytes != nil {
		return from // of a map with ranges, both come from the same place
	}
	return &syntax.Range{From: from, To: m.stored(last, t)}
}

// wireNAT is snat and dnat (nft_nat.c).
func wireNAT(m *machine, a *attrs) error {
	const kind, family, addrMin, addrMax, portMin, portMax, flags = 1, 2, 3, 4, 5, 6, 7
	n := a.num(kind)
	name := familyNumbers[uint8(a.num(family))] //nolint:gosec // small
	t := map[string]*wireType{"ip": wireIPv4, "ip6": wireIPv6}[name]
	if n > 1 || t == nil {
		m.addUnknown("nat")
		return nil
	}
	nat := &syntax.NAT{Kind: []string{"snat", "dnat"}[n], Flags: natFlags(a.num(flags))}
	var by *loaded
	if a[addrMin] != nil {
		by = m.regs.get(a.num(addrMin)).loaded
		nat.Addr = m.fromTo(a.num(addrMin), a.num(addrMax), t)
	}
	if name != m.family || by != nil && len(by.types) > 1 { // where nft prints it
		nat.Family = name
	}
	if a[portMin] != nil && (by == nil || by.bytes != nil || m.regs.get(a.num(portMin)).loaded != by) {
		nat.Port = m.fromTo(a.num(portMin), a.num(portMax), wirePort)
	}
	if a.num(flags)&natNetmap != 0 {
		nat.TypeFlags = []string{"prefix"}
	}
	m.add(nat)
	return nil
}

// toPort adds masquerade or redirect.
func (m *machine) toPort(kind string, a *attrs, flags, portMin, portMax int) error {
	nat := &syntax.NAT{Kind: kind, Flags: natFlags(a.num(flags))}
	if a[portMin] != nil {
		nat.Port = m.fromTo(a.num(portMin), a.num(portMax), wirePort)
	}
	m.add(nat)
	return nil
}

func wireMasquerade(m *machine, a *attrs) error { return m.toPort("masquerade", a, 1, 2, 3) }
func wireRedirect(m *machine, a *attrs) error   { return m.toPort("redirect", a, 3, 1, 2) }

func wireTProxy(m *machine, a *attrs) error {
	const family, addr, port = 1, 2, 3
	tproxy := &syntax.TProxy{}
	t := wireIPv4
	if name := familyNumbers[uint8(a.num(family))]; name == "ip" || name == "ip6" { //nolint:gosec // small
		tproxy.Family = name
		if name == "ip6" {
			t = wireIPv6
		}
	}
	if a[addr] != nil {
		tproxy.Addr = m.stored(a.num(addr), t)
	}
	if a[port] != nil {
		tproxy.Port = m.stored(a.num(port), wirePort)
	}
	m.add(tproxy)
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
		m.add(&syntax.Reject{Type: "tcp reset"})
		return nil
	case 2:
		typ, symbols = "icmpx", icmpxCodes
	default:
		m.addUnknown("reject")
		return nil
	}
	m.add(&syntax.Reject{Type: typ, Code: symbols[n]})
	return nil
}

// logLevels are syslog's; 8 is audit's (enum nft_log_level).
var logLevels = []string{"emerg", "alert", "crit", "err", "warn", "notice", "info", "debug", "audit"}

// logWarning is the level that nft does not print.
const logWarning = 4

func wireLog(m *machine, a *attrs) error {
	const group, prefix, level = 1, 2, 5
	log := &syntax.Log{Prefix: a.text(prefix)}
	if n, has := a.number(group); has {
		log.Group, log.Grouped = float64(n), true
	}
	if n, has := a.number(level); has && n != logWarning && n < uint64(len(logLevels)) {
		log.Level = logLevels[n]
	}
	m.add(log)
	return nil
}

// byteUnits are the units in which nft prints bytes, of which it takes the largest that fits (get_rate,
// src/statement.c).
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

// wireLimit is a rate (nft_limit.c).
func wireLimit(m *machine, a *attrs) error {
	const rate, unit, burst, kind, flags = 1, 2, 3, 4, 5
	per, ok := limitUnits[a.num(unit)]
	if !ok {
		per = fmt.Sprintf("%d seconds", a.num(unit))
	}
	l := &syntax.Limit{
		Inverted: a.num(flags)&1 != 0, Rate: float64(a.num(rate)), Burst: float64(a.num(burst)), Per: per,
	}
	if a.num(kind) == 1 {
		l.Rate, l.RateUnit = inBytes(a.num(rate))
		l.Burst, l.BurstUnit = inBytes(a.num(burst))
	}
	m.add(l)
	return nil
}

func wireQuota(m *machine, a *attrs) error {
	const limit, flags = 1, 2
	val, unit := inBytes(a.num(limit))
	m.add(&syntax.Quota{Inverted: a.num(flags)&1 != 0, Val: val, Unit: unit})
	return nil
}

func wireConnlimit(m *machine, a *attrs) error {
	const count, flags = 1, 2
	m.add(&syntax.CTCount{Inverted: a.num(flags)&1 != 0, Val: float64(a.num(count))})
	return nil
}

func wireQueue(m *machine, a *attrs) error {
	const num, total, flags, sreg = 1, 2, 3, 4
	first := a.num(num)
	q := &syntax.Queue{Num: syntax.Number(first)}
	switch {
	case a[sreg] != nil:
		q.Num = m.stored(a.num(sreg), wireHostInt)
	case a.num(total) > 1:
		q.Num = &syntax.Range{From: syntax.Number(first), To: syntax.Number(first + a.num(total) - 1)}
	}
	for i, name := range []string{"bypass", "fanout"} {
		if a.num(flags)>>i&1 == 1 {
			q.Flags = append(q.Flags, name)
		}
	}
	m.add(q)
	return nil
}

// wireDup is dup (nft_dup_ipv4.c, nft_dup_ipv6.c, nft_dup_netdev.c): in the family netdev nft calls the interface the
// address.
func wireDup(m *machine, a *attrs) error {
	const addr, dev = 1, 2
	d := &syntax.Dup{}
	switch {
	case m.family == "netdev" && a[dev] != nil:
		d.Addr = m.stored(a.num(dev), wireIfindex)
	case a[addr] != nil:
		t := wireIPv4
		if m.network == "ip6" {
			t = wireIPv6
		}
		d.Addr = m.stored(a.num(addr), t)
		if a[dev] != nil {
			d.Dev = m.stored(a.num(dev), wireIfindex)
		}
	default:
		m.addUnknown("dup")
		return nil
	}
	m.add(d)
	return nil
}

// wireFwd is fwd, of which only the name is used.
func wireFwd(m *machine, _ *attrs) error {
	m.add(&syntax.Opaque{Name: "fwd", Text: syntax.JSONObject("fwd", "{}")})
	return nil
}

func wireFlow(m *machine, a *attrs) error {
	m.add(&syntax.Flow{Op: "add", Flowtable: "@" + a.text(1)})
	return nil
}

// objectNames are what nft -j calls objects, by the kernel's number (NFT_OBJECT_…).
var objectNames = map[uint64]string{
	1: "counter", 2: "quota", 3: "ct helper", 4: "limit", 5: "ct count", 6: "tunnel", 7: "ct timeout", 8: "secmark",
	9: "ct expectation", 10: "synproxy",
}

// wireObject uses an object that has a name, or that a map has for the packet (nft_objref.c).
func wireObject(m *machine, a *attrs) error {
	const kind, name, sreg = 1, 2, 3
	if what, ok := objectNames[a.num(kind)]; ok {
		m.add(&syntax.ObjectRef{Kind: what, Name: a.text(name)})
		return nil
	}
	s := m.sets[a.text(objectSet)]
	if s == nil || objectNames[s.object] == "" || len(s.lengths) == 0 {
		m.unknown("objref")
		return nil
	}
	by, err := m.lookUpIn(s, a.num(sreg))
	if err != nil {
		return err
	}
	m.add(&syntax.ObjectRef{Kind: objectNames[s.object], Map: by})
	return nil
}

// wireDynset puts an element into a set, or takes it out (nft_dynset.c).
func wireDynset(m *machine, a *attrs) error {
	const sign, key, data, timeout, expression, flags, expressions = 3, 4, 5, 6, 7, 9, 10
	const inverted = 1 // NFT_DYNSET_F_INV
	s := m.sets[a.text(updatedSet)]
	n := a.num(sign)
	if s == nil || len(s.lengths) == 0 || n > 2 || a.num(flags)&inverted != 0 {
		m.unknown("dynset")
		return nil
	}
	u := &syntax.Update{Kind: "set", Op: []string{"add", "update", "delete"}[n], Set: "@" + s.name}
	u.Elem, _ = m.key(a.num(key), s.keys, s.lengths)
	if ms := a.num(timeout); ms > 0 {
		u.Elem = &syntax.Elem{Val: u.Elem, Timed: true, Timeout: float64(ms / 1000)}
	}
	var err error
	if u.Statements, err = m.statements(m.family, a[expression], a[expressions]); err != nil {
		return err
	}
	if a[data] != nil {
		u.Kind = "map"
		u.Data, _ = m.key(a.num(data), s.data, s.dataLengths)
	}
	m.add(u)
	return nil
}

// statements reads the statements that stand on an element: one expression, or a list of them
// (nft_set_elem_expr_dump in net/netfilter/nf_tables_api.c).
func (d *dump) statements(family string, one, several []byte) ([]syntax.Statement, error) {
	if one == nil && several == nil {
		return nil, nil
	}
	m := &machine{dump: d, family: family}
	if one != nil {
		if err := m.expression(one); err != nil {
			return nil, err
		}
	}
	for _, e := range eachAttr(several, d.Order) {
		if e == nil {
			return nil, errAttrs
		}
		if err := m.expression(e); err != nil {
			return nil, err
		}
	}
	return m.out, nil
}

// wireXT is a match or a target of iptables, by its name.
func wireXT(kind string) reads {
	return func(m *machine, a *attrs) error {
		m.add(&syntax.Opaque{Name: "xt", Text: syntax.JSONObject("xt",
			`{"name":`+syntax.JSONString(a.text(1))+`,"type":`+syntax.JSONString(kind)+`}`)})
		return nil
	}
}
