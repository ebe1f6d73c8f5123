// SPDX-License-Identifier: Apache-2.0

package nfmessages

import "github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"

// wireField is a field of a header, or a key of meta and the like: what an expression of the kernel loads.
type wireField struct {
	offset, bits int // in the header
	typ          *wireType
	expr         syntax.Expr // shared, and never changed
}

// headerField is a field of a header, to be put into wireHeaders.
type headerField struct {
	name         string
	offset, bits int
	typ          *wireType
}

// wireHeaders are the fields of headers (src/proto.c of nft).
var wireHeaders = func() map[string][]wireField {
	out := map[string][]wireField{}
	for protocol, fields := range map[string][]headerField{
		"ether": {{"daddr", 0, 48, wireEther}, {"saddr", 48, 48, wireEther}, {"type", 96, 16, wireEthType}},
		"vlan": {
			{"pcp", 0, 3, wireInteger}, {"dei", 3, 1, wireInteger}, {"id", 4, 12, wireInteger}, {"type", 16, 16, wireEthType},
		},
		"arp": {
			{"htype", 0, 16, wireInteger},
			{"ptype", 16, 16, wireEthType},
			{"hlen", 32, 8, wireInteger},
			{"plen", 40, 8, wireInteger},
			{"operation", 48, 16, wireInteger},
			{"saddr ether", 64, 48, wireEther},
			{"saddr ip", 112, 32, wireIPv4},
			{"daddr ether", 144, 48, wireEther},
			{"daddr ip", 192, 32, wireIPv4},
		},
		"ip": {
			{"version", 0, 4, wireInteger},
			{"hdrlength", 4, 4, wireInteger},
			{"dscp", 8, 6, wireDSCP},
			{"ecn", 14, 2, wireECN},
			{"length", 16, 16, wireInteger},
			{"id", 32, 16, wireInteger},
			{"frag-off", 48, 16, wireInteger},
			{"ttl", 64, 8, wireInteger},
			{"protocol", 72, 8, wireProto},
			{"checksum", 80, 16, wireInteger},
			{"saddr", 96, 32, wireIPv4},
			{"daddr", 128, 32, wireIPv4},
		},
		"ip6": {
			{"version", 0, 4, wireInteger},
			{"dscp", 4, 6, wireDSCP},
			{"ecn", 10, 2, wireECN},
			{"flowlabel", 12, 20, wireInteger},
			{"length", 32, 16, wireInteger},
			{"nexthdr", 48, 8, wireProto},
			{"hoplimit", 56, 8, wireInteger},
			{"saddr", 64, 128, wireIPv6},
			{"daddr", 192, 128, wireIPv6},
		},
		"th": {{"sport", 0, 16, wirePort}, {"dport", 16, 16, wirePort}},
		"tcp": {
			{"sport", 0, 16, wirePort},
			{"dport", 16, 16, wirePort},
			{"sequence", 32, 32, wireInteger},
			{"ackseq", 64, 32, wireInteger},
			{"doff", 96, 4, wireInteger},
			{"reserved", 100, 4, wireInteger},
			{"flags", 104, 8, wireTCPFlags},
			{"window", 112, 16, wireInteger},
			{"checksum", 128, 16, wireInteger},
			{"urgptr", 144, 16, wireInteger},
		},
		"udp": {
			{"sport", 0, 16, wirePort},
			{"dport", 16, 16, wirePort},
			{"length", 32, 16, wireInteger},
			{"checksum", 48, 16, wireInteger},
		},
		"udplite": {
			{"sport", 0, 16, wirePort},
			{"dport", 16, 16, wirePort},
			{"csumcov", 32, 16, wireInteger},
			{"checksum", 48, 16, wireInteger},
		},
		"sctp": {
			{"sport", 0, 16, wirePort},
			{"dport", 16, 16, wirePort},
			{"vtag", 32, 32, wireInteger},
			{"checksum", 64, 32, wireInteger},
		},
		"dccp": {{"sport", 0, 16, wirePort}, {"dport", 16, 16, wirePort}, {"type", 67, 4, wireInteger}},
		"icmp": {
			{"type", 0, 8, wireICMP},
			{"code", 8, 8, wireICMPCode},
			{"checksum", 16, 16, wireInteger},
			{"id", 32, 16, wireInteger},
			{"sequence", 48, 16, wireInteger},
			{"gateway", 32, 32, wireIPv4},
		},
		"icmpv6": {
			{"type", 0, 8, wireICMPv6},
			{"code", 8, 8, wireICMPv6Code},
			{"checksum", 16, 16, wireInteger},
			{"id", 32, 16, wireInteger},
			{"sequence", 48, 16, wireInteger},
		},
		"igmp": {
			{"type", 0, 8, wireInteger},
			{"mrt", 8, 8, wireInteger},
			{"checksum", 16, 16, wireInteger},
			{"group", 32, 32, wireIPv4},
		},
		"esp": {{"spi", 0, 32, wireInteger}, {"sequence", 32, 32, wireInteger}},
		"ah": {
			{"nexthdr", 0, 8, wireProto},
			{"hdrlength", 8, 8, wireInteger},
			{"reserved", 16, 16, wireInteger},
			{"spi", 32, 32, wireInteger},
			{"sequence", 64, 32, wireInteger},
		},
		"comp": {{"nexthdr", 0, 8, wireProto}, {"flags", 8, 8, wireInteger}, {"cpi", 16, 16, wireInteger}},
	} {
		for _, f := range fields {
			e := &syntax.Payload{Protocol: protocol, Field: f.name}
			out[protocol] = append(out[protocol], wireField{f.offset, f.bits, f.typ, e})
		}
	}
	return out
}()

// transports are the headers that follow by protocol number.
var transports = map[uint8]string{
	1: "icmp", 2: "igmp", 6: "tcp", 17: "udp", 33: "dccp", 50: "esp", 51: "ah", 58: "icmpv6", 108: "comp", 132: "sctp",
	136: "udplite",
}

// keyed are the keys of an expression by the kernel's number.
func keyed(expr func(key string) syntax.Expr, keys []headerField) map[uint64]wireField {
	out := make(map[uint64]wireField, len(keys))
	for _, k := range keys {
		out[uint64(k.offset)] = wireField{typ: k.typ, expr: expr(k.name)} //nolint:gosec // small numbers
	}
	return out
}

func metaOf(key string) syntax.Expr   { return &syntax.Meta{Key: key} }
func ctOf(key string) syntax.Expr     { return &syntax.CT{Key: key} }
func socketOf(key string) syntax.Expr { return &syntax.Socket{Key: key} }

// wireMetas are the keys of meta, by number (enum nft_meta_keys).
var wireMetas = keyed(metaOf, []headerField{
	{name: "length", offset: 0, typ: wireHostInt},
	{name: "protocol", offset: 1, typ: wireEthType},
	{name: "priority", offset: 2, typ: wireClass},
	{name: "mark", offset: 3, typ: wireMark},
	{name: "iif", offset: 4, typ: wireIfindex},
	{name: "oif", offset: 5, typ: wireIfindex},
	{name: "iifname", offset: 6, typ: wireIfname},
	{name: "oifname", offset: 7, typ: wireIfname},
	{name: "iiftype", offset: 8, typ: wireHardware},
	{name: "oiftype", offset: 9, typ: wireHardware},
	{name: "skuid", offset: 10, typ: wireUID},
	{name: "skgid", offset: 11, typ: wireGID},
	{name: "nftrace", offset: 12, typ: wireInteger},
	{name: "rtclassid", offset: 13, typ: wireRealm},
	{name: "secmark", offset: 14, typ: wireHostInt},
	{name: "nfproto", offset: 15, typ: wireNFProto},
	{name: "l4proto", offset: 16, typ: wireProto},
	{name: "ibrname", offset: 17, typ: wireIfname},
	{name: "obrname", offset: 18, typ: wireIfname},
	{name: "pkttype", offset: 19, typ: wirePktType},
	{name: "cpu", offset: 20, typ: wireHostInt},
	{name: "iifgroup", offset: 21, typ: wireGroup},
	{name: "oifgroup", offset: 22, typ: wireGroup},
	{name: "cgroup", offset: 23, typ: wireHostInt},
	{name: "random", offset: 24, typ: wireInteger},
	{name: "ipsec", offset: 25, typ: wireBool},
	{name: "iifkind", offset: 26, typ: wireIfname},
	{name: "oifkind", offset: 27, typ: wireIfname},
	{name: "ibrpvid", offset: 28, typ: wireHostInt},
	{name: "ibrvproto", offset: 29, typ: wireEthType},
	{name: "time", offset: 30, typ: wireDate},
	{name: "day", offset: 31, typ: wireDay},
	{name: "hour", offset: 32, typ: wireHour},
	{name: "sdif", offset: 33, typ: wireIfindex},
	{name: "sdifname", offset: 34, typ: wireIfname},
})

// The keys of meta that say which headers a packet has.
const (
	metaProtocol = 1
	metaIIFType  = 8
	metaNFProto  = 15
	metaL4Proto  = 16
)

// wireCTs are the keys of ct, by number (enum nft_ct_keys). 8 and 9 are addresses of either family.
var wireCTs = keyed(ctOf, []headerField{
	{name: "state", offset: 0, typ: wireCTState},
	{name: "direction", offset: 1, typ: wireCTDir},
	{name: "status", offset: 2, typ: wireCTStatus},
	{name: "mark", offset: 3, typ: wireMark},
	{name: "secmark", offset: 4, typ: wireHostInt},
	{name: "expiration", offset: 5, typ: wireSpan},
	{name: "helper", offset: 6, typ: wireString},
	{name: "l3proto", offset: 7, typ: wireNFProto},
	{name: "saddr", offset: 8, typ: wireInteger},
	{name: "daddr", offset: 9, typ: wireInteger},
	{name: "protocol", offset: 10, typ: wireProto},
	{name: "proto-src", offset: 11, typ: wirePort},
	{name: "proto-dst", offset: 12, typ: wirePort},
	{name: "label", offset: 13, typ: wireHostInt},
	{name: "packets", offset: 14, typ: wireHostInt},
	{name: "bytes", offset: 15, typ: wireHostInt},
	{name: "avgpkt", offset: 16, typ: wireHostInt},
	{name: "zone", offset: 17, typ: wireHostInt},
	{name: "event", offset: 18, typ: wireEvents},
	{name: "ip saddr", offset: 19, typ: wireIPv4},
	{name: "ip daddr", offset: 20, typ: wireIPv4},
	{name: "ip6 saddr", offset: 21, typ: wireIPv6},
	{name: "ip6 daddr", offset: 22, typ: wireIPv6},
	{name: "id", offset: 23, typ: wireInteger},
})

// wireSockets are the keys of socket (enum nft_socket_keys), wireRoutes those of rt (enum nft_rt_keys).
var (
	wireSockets = keyed(socketOf, []headerField{
		{name: "transparent", offset: 0, typ: wireInteger},
		{name: "mark", offset: 1, typ: wireMark},
		{name: "wildcard", offset: 2, typ: wireInteger},
		{name: "cgroupv2", offset: 3, typ: wireCgroup},
	})
	wireRoutes = map[uint64]wireField{
		0: {typ: wireRealm, expr: &syntax.Route{Key: "classid"}},
		1: {typ: wireIPv4, expr: &syntax.Route{Key: "nexthop", Family: "ip"}},
		2: {typ: wireIPv6, expr: &syntax.Route{Key: "nexthop", Family: "ip6"}},
		3: {typ: wireHostInt, expr: &syntax.Route{Key: "mtu"}},
		4: {typ: wireBool, expr: &syntax.Route{Key: "ipsec"}},
	}
)
