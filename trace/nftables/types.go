// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"math"
	"net/netip"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// datatype is a type of nftables (src/datatype.c of nft).
type datatype struct {
	name string
	bits int
	// symbols are the names of its values.
	symbols map[string]uint64
	// read makes words of a text that is no symbol and no number: the first and the last value that it stands for.
	read func(s string) (lo, hi word, ok bool)
}

var (
	typeIPv4     = &datatype{name: "ipv4_addr", bits: 32, read: readAddr(true)}
	typeIPv6     = &datatype{name: "ipv6_addr", bits: 128, read: readAddr(false)}
	typeProto    = &datatype{name: "inet_proto", bits: 8, read: readProto}
	typePort     = &datatype{name: "inet_service", bits: 16}
	typeMark     = &datatype{name: "mark", bits: 32}
	typeIfname   = &datatype{name: "ifname", bits: 128, read: readName}
	typeIface    = &datatype{name: "iface_index", bits: 128, read: readName} // nft prints the name that the index has
	typeEther    = &datatype{name: "ether_addr", bits: 48, read: readEther}
	typeInteger  = &datatype{name: "integer", bits: 64}
	typeBool     = &datatype{name: "boolean", bits: 1, symbols: map[string]uint64{"exists": 1, "missing": 0}}
	typeNFProto  = &datatype{name: "nf_proto", bits: 8, symbols: syntax.NFProtos}
	typeEthType  = &datatype{name: "ether_type", bits: 16, symbols: syntax.EtherTypes}
	typeCTState  = &datatype{name: "ct_state", bits: 32, symbols: syntax.CTStates}
	typeCTStatus = &datatype{name: "ct_status", bits: 32, symbols: syntax.CTStatuses}
	typeCTDir    = &datatype{name: "ct_dir", bits: 8, symbols: syntax.CTDirs}
	typePktType  = &datatype{name: "pkt_type", bits: 8, symbols: map[string]uint64{
		"host": 0, "unicast": 0, "broadcast": 1, "multicast": 2, "other": 3,
	}}
	// An interface, or whether there is one.
	typeFibIface = &datatype{name: "fib_iface", bits: 128, read: readFibIface}
	// A bit for each type of address, so that a value can be any but one; nft prints no numbers here.
	typeFibType = &datatype{name: "fib_addrtype", bits: 32, symbols: map[string]uint64{
		"unspec": 1, "unicast": fibUnicast, "local": fibLocal, "broadcast": fibBroadcast, "anycast": 16,
		"multicast": fibMulticast, "blackhole": fibBlackhole, "unreachable": fibUnreachable, "prohibit": fibProhibit,
	}}
	typeTCPFlags = &datatype{name: "tcp_flag", bits: 8, symbols: syntax.TCPFlags}
	typeICMP     = &datatype{name: "icmp_type", bits: 8, symbols: syntax.ICMPTypes}
	typeICMPCode = &datatype{name: "icmp_code", bits: 8, symbols: syntax.ICMPCodes}
	typeICMPv6   = &datatype{name: "icmpv6_type", bits: 8, symbols: syntax.ICMPv6Types}
	typeGroup    = &datatype{name: "devgroup", bits: 32, symbols: map[string]uint64{"default": 0}}
	typeDSCP     = &datatype{name: "dscp", bits: 6, symbols: syntax.DSCPs}
	typeARP      = &datatype{name: "arp_op", bits: 16, symbols: syntax.ARPOperations}
	// typeOther is that of a value of which nothing is known, whatever its constants are.
	typeOther = &datatype{name: "other", bits: 128}
	// typeVerdict is that of a verdict map's data.
	typeVerdict = &datatype{name: "verdict"}
)

// types are those that a set may be declared with.
var types = func() map[string]*datatype {
	all := map[string]*datatype{}
	for _, t := range []*datatype{
		typeIPv4, typeIPv6, typeProto, typePort, typeMark, typeIfname, typeIface, typeEther, typeInteger, typeNFProto,
		typeEthType,
		typeCTState, typeCTStatus, typeCTDir, typePktType, typeFibType, typeTCPFlags, typeICMP, typeICMPCode, typeICMPv6,
		typeARP, typeGroup, typeDSCP, typeVerdict,
	} {
		all[t.name] = t
	}
	return all
}()

func readAddr(v4 bool) func(s string) (lo, hi word, ok bool) {
	return func(s string) (lo, hi word, ok bool) {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Is4() != v4 || a.Zone() != "" {
			return lo, hi, false
		}
		w := addrWord(a)
		return w, w, true
	}
}

func readProto(s string) (lo, hi word, ok bool) {
	p, ok := op.Protocol(s)
	w := number(uint64(p))
	return w, w, ok
}

// readName reads an interface's name; "*" at its end stands for anything, unless it is escaped.
func readName(s string) (lo, hi word, ok bool) {
	if len(s) > nameLength+1 {
		return lo, hi, false
	}
	prefix, wild := strings.CutSuffix(s, "*")
	name, escaped := strings.CutSuffix(prefix, `\`)
	switch {
	case wild && escaped:
		s = name + "*"
	case wild:
		return nameWord(prefix, 0), nameWord(prefix, 0xff), true
	}
	w := nameWord(s, 0)
	return w, w, true
}

// readFibIface reads the interface of a route, or whether there is one: no name is zero, any name more.
func readFibIface(s string) (lo, hi word, ok bool) {
	switch s {
	case "missing":
		return word{}, word{}, true
	case "exists":
		return number(1), ones, true
	}
	return readName(s)
}

func readEther(s string) (lo, hi word, ok bool) {
	n, ok := op.MAC(s)
	w := number(n)
	return w, w, ok
}

// constant reads a constant of the type: the first and the last value that it stands for.
func (t *datatype) constant(e syntax.Expr) (lo, hi word, ok bool) {
	switch e := e.(type) {
	case syntax.String:
		return t.text(string(e))
	case syntax.Number:
		if t == typeFibIface && e != 0 {
			return lo, hi, false // of an interface that is gone
		}
		w := number(uint64(e))
		return w, w, e >= 0 && e <= math.MaxUint32 && float64(e) == math.Trunc(float64(e))
	case syntax.Addr:
		w := addrWord(e.Addr)
		return w, w, t == typeIPv4 && e.Is4() || t == typeIPv6 && e.Is6()
	case syntax.Bool:
		if e && t == typeFibIface {
			return number(1), ones, true
		}
		if e {
			return number(1), number(1), true
		}
		return word{}, word{}, true
	case syntax.List: // flags
		return t.flags(e)
	case *syntax.Prefix:
		return t.prefix(e)
	case *syntax.Range:
		lo, _, ok1 := t.constant(e.From)
		_, hi, ok2 := t.constant(e.To)
		return lo, hi, ok1 && ok2 && lo.compare(hi) <= 0
	case *syntax.Binary:
		if e.Op == "|" {
			return t.flags(e.Operands)
		}
	}
	return lo, hi, false
}

// text reads a word: a symbol, a number, or what the type itself reads.
func (t *datatype) text(s string) (lo, hi word, ok bool) {
	if n, ok := t.symbols[s]; ok {
		return number(n), number(n), true
	}
	if t.read != nil {
		return t.read(s)
	}
	n, err := strconv.ParseUint(s, 0, 64)
	return number(n), number(n), err == nil
}

// flags reads a list of constants that are or-ed.
func (t *datatype) flags(list []syntax.Expr) (lo, hi word, ok bool) {
	var all word
	for _, x := range list {
		one, last, ok := t.constant(x)
		if !ok || one != last {
			return lo, hi, false
		}
		all = all.or(one)
	}
	return all, all, len(list) > 0
}

func (t *datatype) prefix(p *syntax.Prefix) (lo, hi word, ok bool) {
	lo, last, ok := t.constant(p.Addr)
	if !ok || lo != last || p.Len < 0 || int(p.Len) > t.bits {
		return lo, hi, false
	}
	host := lowBits(t.bits - int(p.Len))
	lo = lo.and(host.not())
	return lo, lo.or(host), true
}

// beyond tells whether a constant is a prefix with bits behind its length. That is how nft prints a comparison of a
// masked field with a value that has bits outside of the mask ("ip saddr & 255.0.0.0 == 10.0.0.5" as 10.0.0.5/8), which
// no packet equals.
func (t *datatype) beyond(e syntax.Expr) bool {
	p, ok := e.(*syntax.Prefix)
	if !ok {
		return false
	}
	lo, _, ok := t.prefix(p)
	addr, _, ok2 := t.constant(p.Addr)
	return ok && ok2 && addr != lo
}
