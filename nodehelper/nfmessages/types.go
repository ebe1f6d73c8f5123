// SPDX-License-Identifier: Apache-2.0

package nfmessages

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// wireType is a type of nft as the kernel keeps it for nft: by number, in the types of sets (NFTA_SET_KEY_TYPE; enum
// datatypes in include/datatype.h of nft, the types themselves in its src/datatype.c, src/meta.c, src/ct.c, src/fib.c,
// src/proto.c).
type wireType struct {
	name string
	size int  // bytes, 0 for a type whose values have different sizes
	host bool // values stand in registers in the machine's byte order
	// symbols are the names of values. Of a bitmask they are those of its bits.
	symbols map[uint64]string
	bitmask bool
	prefix  bool // nft writes ranges that are networks as such
	words   bool // a value without a symbol is not shown as a number
	// write makes a constant of a value, as nft -j prints it; nil: a number, or its symbol. The value is in network byte
	// order.
	write func(d *dump, v []byte) syntax.Expr
}

// alone is the list that has the type only.
func (t *wireType) alone() []*wireType { return []*wireType{t} }

// The types that expressions are of.
var (
	wireVerdict  = &wireType{name: "verdict"}
	wireInteger  = &wireType{name: "integer"}
	wireHostInt  = &wireType{name: "integer", host: true}
	wireString   = &wireType{name: "string", write: writeString}
	wireIPv4     = &wireType{name: "ipv4_addr", size: 4, prefix: true, write: writeAddr}
	wireIPv6     = &wireType{name: "ipv6_addr", size: 16, prefix: true, write: writeAddr}
	wireEther    = &wireType{name: "ether_addr", size: 6, write: writeEther}
	wireEthType  = &wireType{name: "ether_type", size: 2, symbols: reversed(syntax.EtherTypes)}
	wireProto    = &wireType{name: "inet_proto", size: 1, write: writeProto}
	wirePort     = &wireType{name: "inet_service", size: 2}
	wireMark     = &wireType{name: "mark", size: 4, host: true, prefix: true}
	wireIfindex  = &wireType{name: "iface_index", size: 4, host: true, write: writeIfindex}
	wireIfname   = &wireType{name: "ifname", size: 16, write: writeIfname}
	wireNFProto  = &wireType{name: "nf_proto", size: 1, symbols: reversed(syntax.NFProtos)}
	wireCTState  = &wireType{name: "ct_state", size: 4, host: true, bitmask: true, symbols: reversed(syntax.CTStates)}
	wireCTStatus = &wireType{name: "ct_status", size: 4, host: true, bitmask: true, symbols: reversed(syntax.CTStatuses)}
	wireCTDir    = &wireType{name: "ct_dir", size: 1, symbols: reversed(syntax.CTDirs)}
	wirePktType  = &wireType{
		name: "pkt_type", size: 1, symbols: map[uint64]string{0: "host", 1: "broadcast", 2: "multicast", 3: "other"},
	}
	wireTCPFlags = &wireType{name: "tcp_flag", size: 1, bitmask: true, symbols: reversed(syntax.TCPFlags)}
	wireBool     = &wireType{name: "boolean", size: 1, write: writeBool}
	wireFibType  = &wireType{name: "fib_addrtype", size: 4, host: true, words: true, symbols: symbolsFrom(
		"unspec", "unicast", "local", "broadcast", "anycast", "multicast", "blackhole", "unreachable", "prohibit")}

	wireHardware = &wireType{name: "arphrd", size: 2, host: true, symbols: map[uint64]string{
		1: "ether", 512: "ppp", 768: "ipip", 769: "ipip6", 772: "loopback", 776: "sit", 778: "ipgre",
	}}
	wireClass  = &wireType{name: "classid", size: 4, host: true, write: writeClass}
	wireEvents = &wireType{name: "ct_event", size: 4, host: true, bitmask: true, symbols: map[uint64]string{
		1: "new", 2: "related", 4: "destroy", 8: "reply", 16: "assured", 32: "protoinfo", 64: "helper", 128: "mark",
		256: "seqadj", 512: "secmark", 1024: "label",
	}}
	wireRealm  = &wireType{name: "realm", size: 4, host: true}
	wireUID    = &wireType{name: "uid", size: 4, host: true}
	wireGID    = &wireType{name: "gid", size: 4, host: true}
	wireGroup  = &wireType{name: "devgroup", size: 4, host: true, symbols: map[uint64]string{0: "default"}}
	wireCgroup = &wireType{name: "cgroupsv2", size: 8, host: true}
	wireSpan   = &wireType{name: "time", size: 4, host: true, write: writeSpan}
	wireDate   = &wireType{name: "time", size: 8, host: true, write: func(_ *dump, v []byte) syntax.Expr {
		return syntax.String(time.Unix(0, int64(bigNumber(v))).UTC().Format(time.DateTime))
	}}
	wireHour = &wireType{name: "hour", size: 4, host: true, write: writeHour}
	wireDay  = &wireType{
		name: "day", size: 1,
		symbols: symbolsFrom("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"),
	}

	wireDSCP = &wireType{name: "dscp", size: 1, symbols: reversed(syntax.DSCPs)}
	//nolint:misspell // what nft calls it
	wireECN        = &wireType{name: "ecn", size: 1, symbols: symbolsFrom("not-ect", "ect1", "ect0", "ce")}
	wireICMP       = &wireType{name: "icmp_type", size: 1, symbols: reversed(syntax.ICMPTypes)}
	wireICMPv6     = &wireType{name: "icmpv6_type", size: 1, symbols: reversed(syntax.ICMPv6Types)}
	wireICMPCode   = &wireType{name: "icmp_code", size: 1, symbols: reversed(syntax.ICMPCodes)}
	wireICMPv6Code = &wireType{name: "icmpv6_code", size: 1, symbols: reversed(icmpv6Codes)}
)

// The codes of refusals.
var (
	icmpv6Codes = map[string]uint64{
		"no-route": 0, "admin-prohibited": 1, "addr-unreachable": 3, "port-unreachable": 4, "policy-fail": 5,
		"reject-route": 6,
	}
	icmpxCodes = symbolsFrom("no-route", "port-unreachable", "host-unreachable", "admin-prohibited")
)

// wireTypes are the types of sets by number. A concatenation has one number of its types' numbers, typeBits each.
var wireTypes = map[uint64]*wireType{
	2: wireNFProto, 4: wireInteger, 5: wireString, 7: wireIPv4, 8: wireIPv6, 9: wireEther, 10: wireEthType, 12: wireProto,
	13: wirePort, 14: wireICMP,
	15: wireTCPFlags, 18: wireSpan, 19: wireMark, 20: wireIfindex, 21: wireHardware, 22: wireRealm, 23: wireClass,
	24: wireUID, 25: wireGID, 26: wireCTState,
	27: wireCTDir, 28: wireCTStatus, 29: wireICMPv6, 31: wirePktType, 32: wireICMPCode, 33: wireICMPv6Code, 35: wireGroup,
	36: wireDSCP, 37: wireECN,
	38: wireFibType, 39: wireBool, 41: wireIfname, 43: wireDate, 44: wireHour, 45: wireDay, 46: wireCgroup,
}

const (
	typeBits = 6 // TYPE_BITS of nft
	// dataVerdict is the type of verdicts (NFT_DATA_VERDICT).
	dataVerdict = 0xffffff00
)

// typesOfNumber returns the types that a set is declared with; false for a number that is not known.
func typesOfNumber(n uint64) ([]*wireType, bool) {
	if n == dataVerdict {
		return []*wireType{wireVerdict}, true
	}
	var out []*wireType
	for ; n > 0; n >>= typeBits {
		t := wireTypes[n&(1<<typeBits-1)]
		if t == nil {
			return nil, false
		}
		out = append(out, t)
	}
	slices.Reverse(out)
	return out, len(out) > 0
}

func reversed(symbols map[string]uint64) map[uint64]string {
	out := make(map[uint64]string, len(symbols))
	for s, n := range symbols {
		out[n] = s
	}
	return out
}

func symbolsFrom(names ...string) map[uint64]string {
	out := make(map[uint64]string, len(names))
	for i, s := range names {
		out[uint64(i)] = s
	}
	return out
}

// inOrder returns a value of the type in network byte order. swapped tells that it has been brought from its own order
// into the other.
func (t *wireType) inOrder(d *dump, v []byte, swapped bool) []byte {
	if t.size > 0 && len(v) > t.size {
		v = v[:t.size] // registers are filled up to 4 bytes
	}
	if t.host == swapped || !d.little || len(v) < 2 {
		return v
	}
	out := slices.Clone(v)
	slices.Reverse(out)
	return out
}

// constant makes of a value what nft -j prints for it. The value is in network byte order.
func (t *wireType) constant(d *dump, v []byte) syntax.Expr {
	if t.write != nil {
		return t.write(d, v)
	}
	if len(v) > 8 {
		return syntax.String(hexText(v))
	}
	n := bigNumber(v)
	if t.bitmask {
		return t.flags(n, "|")
	}
	if s, ok := t.symbols[n]; ok {
		return syntax.String(s)
	}
	if t.words {
		return syntax.String("type " + strconv.FormatUint(n, 10))
	}
	return syntax.Number(n)
}

// flags makes the bits of a bitmask: one as its name, several as a list, or or-ed where op is "|".
func (t *wireType) flags(n uint64, op string) syntax.Expr {
	var names []syntax.Expr
	rest := n
	for bit := uint64(1); bit != 0 && bit <= n; bit <<= 1 {
		if s, ok := t.symbols[bit]; ok && n&bit != 0 {
			names = append(names, syntax.String(s))
			rest &^= bit
		}
	}
	switch {
	case rest != 0 || len(names) == 0:
		return syntax.Number(n)
	case len(names) == 1:
		return names[0]
	case op != "":
		return &syntax.Binary{Op: op, Operands: names}
	}
	return syntax.List(names)
}

// bigNumber reads a number of at most 8 bytes, in network byte order.
func bigNumber(v []byte) uint64 {
	var n uint64
	for _, b := range v {
		n = n<<8 | uint64(b)
	}
	return n
}

// writeClass writes a class of tc: major:minor.
func writeClass(_ *dump, v []byte) syntax.Expr {
	n := bigNumber(v)
	return syntax.String(strconv.FormatUint(n>>16, 16) + ":" + strconv.FormatUint(n&0xffff, 16))
}

const hexDigits = "0123456789abcdef"

func hexText(v []byte) string {
	out := []byte("0x")
	for _, b := range v {
		out = append(out, hexDigits[b>>4], hexDigits[b&15])
	}
	return string(out)
}

func writeAddr(_ *dump, v []byte) syntax.Expr {
	a, ok := netip.AddrFromSlice(v)
	if !ok {
		return syntax.String(hexText(v))
	}
	return syntax.Addr{Addr: a}
}

func writeEther(_ *dump, v []byte) syntax.Expr {
	var out []byte
	for i, b := range v {
		if i > 0 {
			out = append(out, ':')
		}
		out = append(out, hexDigits[b>>4], hexDigits[b&15])
	}
	return syntax.String(out)
}

// protoNames are the protocols that nft has names for, from the system's list of them.
var protoNames = map[uint8]string{
	1: "icmp", 2: "igmp", 4: "ipencap", 6: "tcp", 17: "udp", 33: "dccp", 41: "ipv6", 47: "gre", 50: "esp", 51: "ah",
	58: "ipv6-icmp", 89: "ospf", 103: "pim", 108: "ipcomp", 112: "vrrp", 115: "l2tp", 132: "sctp", 136: "udplite",
}

// protoExprs are all protocols, by number.
var protoExprs = func() (out [256]syntax.Expr) {
	for n := range out {
		out[n] = syntax.Number(n)
		if s, ok := protoNames[uint8(n)]; ok {
			out[n] = syntax.String(s)
		}
	}
	return out
}()

func writeProto(_ *dump, v []byte) syntax.Expr {
	return protoExprs[uint8(bigNumber(v))] //nolint:gosec // has one byte
}

func writeBool(_ *dump, v []byte) syntax.Expr { return syntax.Bool(bigNumber(v) != 0) }

// writeSpan writes a time in seconds, which is kept in milliseconds.
func writeSpan(_ *dump, v []byte) syntax.Expr { return syntax.Number(bigNumber(v) / 1000) }

func writeString(_ *dump, v []byte) syntax.Expr { return syntax.String(cString(v)) }

// writeIfname writes a name; a * at its end is one of its characters, and escaped.
func writeIfname(_ *dump, v []byte) syntax.Expr {
	name := cString(v)
	if prefix, ok := strings.CutSuffix(name, "*"); ok {
		return syntax.String(prefix + `\*`)
	}
	return syntax.String(name)
}

func writeIfindex(d *dump, v []byte) syntax.Expr {
	n := bigNumber(v)
	if name, ok := d.Interfaces[int(n)]; ok { //nolint:gosec // 32 bits
		return syntax.String(name)
	}
	return syntax.String(strconv.FormatUint(n, 10))
}

// writeHour writes an hour of the day, which is kept in seconds, in UTC.
func writeHour(_ *dump, v []byte) syntax.Expr {
	t := time.Unix(int64(bigNumber(v)%86400), 0).UTC()
	if t.Second() == 0 {
		return syntax.String(t.Format("15:04"))
	}
	return syntax.String(t.Format("15:04:05"))
}
