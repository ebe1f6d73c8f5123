// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"math/bits"
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// field is a property of the packet that an expression reads.
type field struct {
	typ  *datatype
	need op.Cond // where this does not hold, the kernel breaks the rule off (NFT_BREAK); nil holds always
	get  func(c *netfilter.Context) value
	// depends says on what the value depends, where it is never known.
	depends string
	index   indexBy
	// bounds says between which numbers the value is, where get cannot.
	bounds func(c *netfilter.Context) op.Bounds
}

// indexBy is what a comparison with a constant tells the index of a chain.
type indexBy uint8

const (
	noIndex indexBy = iota
	bySource
	byDestination
	byPort
	byIncoming // no index has it: for Bounds
)

// sourcePort is the field that is not known of the packets of a client that chooses its port itself.
func sourcePort(need op.Cond) field {
	return field{typ: typePort, need: need, get: sport, depends: "the packet's source port"}
}

// unknown is a field that the walk's packet does not have.
func unknown(depends string) field { return field{typ: typeOther, get: blank, depends: depends} }

// always is a field that the first packet of every connection has the same value of: it is unicast, no fragment,
// without IP options or extension headers.
func always(t *datatype, n uint64) field {
	return field{typ: t, get: func(*netfilter.Context) value { return knownNumber(n) }}
}

// between is a number of at most some bits of which only bounds are known.
func between(size int, depends string, bounds func(c *netfilter.Context) op.Bounds) field {
	return field{
		typ: typeInteger, depends: depends, bounds: bounds,
		get: func(*netfilter.Context) value { return value{blur: lowBits(size)} },
	}
}

// payloadLength is the length of what comes behind the header of IPv6.
func payloadLength(c *netfilter.Context) op.Bounds {
	const header = 40
	b := op.Length(c)
	return op.Bounds{Low: b.Low - min(b.Low, header), High: b.High - min(b.High, header)}
}

// skbLength is that of what the kernel has at a hook: at those of devices and bridges a link-layer header, or what
// fills a short frame, may be a part of it.
func skbLength(c *netfilter.Context) op.Bounds {
	const linkHeader, shortFrame = 22, 60
	b := op.Length(c)
	if c.Hook.OfLink() {
		b.High = max(b.High, shortFrame) + linkHeader
	}
	return b
}

// dscp is the upper part of the TOS byte, or of the traffic class.
func dscp(c *netfilter.Context) value {
	const ecnBits = 2
	set, unknown := op.TOS(c)
	return value{number(uint64(set >> ecnBits)), number(uint64(unknown >> ecnBits))}
}

func isGroup(name func(p *netfilter.Packet) string) field {
	return field{typ: typeGroup, depends: "interface groups", get: func(c *netfilter.Context) value {
		group, known := op.Group(c, name(c.Packet))
		if !known {
			return value{blur: lowBits(typeGroup.bits)}
		}
		return knownNumber(uint64(group))
	}}
}

func blank(*netfilter.Context) value { return value{blur: ones} }

func addrValue(c *netfilter.Context, a netip.Addr) value {
	switch {
	case a.IsValid():
		return known(addrWord(a))
	case c.Packet.Family != netfilter.IPv6:
		return value{blur: lowBits(typeIPv4.bits)}
	}
	return value{blur: ones}
}

func src(c *netfilter.Context) value { return addrValue(c, c.Packet.Src) }
func dst(c *netfilter.Context) value { return addrValue(c, c.Packet.Dst) }

func sport(c *netfilter.Context) value {
	if of, known := op.SourcePorts(c); known && c.Packet.SrcPort == 0 {
		return someOf(of)
	}
	return portValue(c.Packet.SrcPort)
}

func dport(c *netfilter.Context) value {
	if of, known := op.DestinationPorts(c); known && c.Packet.DstPort == 0 {
		return someOf(of)
	}
	const half = 1 << 15
	if c.Packet.DstPort == 0 && op.LowestPort(c) >= half {
		return value{word: number(half), blur: lowBits(15)}
	}
	return portValue(c.Packet.DstPort)
}

// someOf is a port that is one of some: of its bits those are known that all have.
func someOf(of netfilter.PortRange) value {
	n := bits.Len16(of.First ^ of.Last)
	return value{word: number(uint64(of.First >> n << n)), blur: lowBits(n)}
}

// portValue: port 0 is an ephemeral one that is not known.
func portValue(p uint16) value {
	if p == 0 {
		return value{blur: lowBits(16)}
	}
	return knownNumber(uint64(p))
}

func proto(c *netfilter.Context) value { return knownNumber(uint64(c.Packet.Proto)) }

func iface(name func(p *netfilter.Packet) string) func(c *netfilter.Context) value {
	return func(c *netfilter.Context) value {
		n := name(c.Packet)
		if netfilter.IsUnknown(n) {
			return value{blur: ones}
		}
		return known(nameWord(n, 0))
	}
}

func inName(p *netfilter.Packet) string  { return p.In }
func outName(p *netfilter.Packet) string { return p.Out }

func isFamily(f netfilter.Family) op.Cond {
	return func(c *netfilter.Context) op.Truth { return op.Is(c.Packet.Family == f) }
}

func isProto(p uint8) op.Cond {
	return func(c *netfilter.Context) op.Truth { return op.Is(c.Packet.Proto == p) }
}

// The bits of ct state and ct status (include/uapi/linux/netfilter/nf_conntrack_common.h).
const (
	ctInvalid     = 1
	ctEstablished = 2
	ctRelated     = 4
	ctNew         = 8
	ctUntracked   = 64

	ctSeenReply = 2
	ctAssured   = 4
	ctConfirmed = 8
	ctSNAT      = 16
	ctDNAT      = 32
)

// headerField names a field of a header.
type headerField struct{ protocol, name string }

// payloads are the fields of headers that are known.
var payloads = map[headerField]field{
	{"ip", "saddr"}:     {typ: typeIPv4, need: isFamily(netfilter.IPv4), get: src, index: bySource},
	{"ip", "daddr"}:     {typ: typeIPv4, need: isFamily(netfilter.IPv4), get: dst, index: byDestination},
	{"ip", "protocol"}:  {typ: typeProto, need: isFamily(netfilter.IPv4), get: proto},
	{"ip", "version"}:   needs(isFamily(netfilter.IPv4), always(typeInteger, 4)),
	{"ip", "hdrlength"}: needs(isFamily(netfilter.IPv4), always(typeInteger, 5)),
	{"ip6", "saddr"}:    {typ: typeIPv6, need: isFamily(netfilter.IPv6), get: src, index: bySource},
	{"ip6", "daddr"}:    {typ: typeIPv6, need: isFamily(netfilter.IPv6), get: dst, index: byDestination},
	{"ip6", "nexthdr"}:  {typ: typeProto, need: isFamily(netfilter.IPv6), get: proto},
	{"ip6", "version"}:  needs(isFamily(netfilter.IPv6), always(typeInteger, 6)),
	{"ether", "type"}:   {typ: typeEthType, need: op.HasLinkHeader, get: etherType},
	{"ether", "saddr"}:  {typ: typeEther, need: op.HasLinkHeader, get: etherSource, depends: "the source MAC address"},
	{"ip6", "hoplimit"}: needs(isFamily(netfilter.IPv6), between(8, "hop limits", op.Hops)),
	{"ip", "ttl"}:       needs(isFamily(netfilter.IPv4), between(8, "the packet's ip ttl", op.Hops)),
	{"ip", "length"}:    needs(isFamily(netfilter.IPv4), between(16, "the packet's length", op.Length)),
	{"ip6", "length"}:   needs(isFamily(netfilter.IPv6), between(16, "the packet's length", payloadLength)),
	{"ip", "dscp"}:      needs(isFamily(netfilter.IPv4), field{typ: typeDSCP, get: dscp, depends: "the packet's DSCP"}),
	{"ip6", "dscp"}:     needs(isFamily(netfilter.IPv6), field{typ: typeDSCP, get: dscp, depends: "the packet's DSCP"}),
	{"tcp", "doff"}:     needs(isProto(netfilter.TCP), between(4, "the TCP options", op.DataOffset)),
	// No fragment; whether it may be cut into some is the sender's choice.
	{"ip", "frag-off"}: needs(isFamily(netfilter.IPv4), field{
		typ: typeInteger, depends: "whether packets may be fragmented",
		get: func(*netfilter.Context) value { return value{blur: number(dontFragment)} },
	}),
	{"icmp", "type"}:     needs(isProto(netfilter.ICMP), field{typ: typeICMP, get: kindOf}),
	{"icmp", "code"}:     needs(isProto(netfilter.ICMP), field{typ: typeICMPCode, get: codeOf}),
	{"icmpv6", "type"}:   needs(isProto(netfilter.ICMPv6), field{typ: typeICMPv6, get: kindOf}),
	{"arp", "htype"}:     needs(isFamily(netfilter.ARP), always(typeInteger, 1)),
	{"arp", "ptype"}:     needs(isFamily(netfilter.ARP), always(typeEthType, 0x0800)),
	{"arp", "hlen"}:      needs(isFamily(netfilter.ARP), always(typeInteger, 6)),
	{"arp", "plen"}:      needs(isFamily(netfilter.ARP), always(typeInteger, 4)),
	{"arp", "operation"}: needs(isFamily(netfilter.ARP), field{typ: typeARP, get: kindOf}),
	{"arp", "saddr ip"}:  needs(isFamily(netfilter.ARP), field{typ: typeIPv4, get: src}),
	{"arp", "daddr ip"}:  needs(isFamily(netfilter.ARP), field{typ: typeIPv4, get: dst}),
	{"th", "sport"}:      sourcePort(hasTransport),
	{"th", "dport"}:      {typ: typePort, need: hasTransport, get: dport},
	{"tcp", "sport"}:     sourcePort(isProto(netfilter.TCP)),
	{"tcp", "dport"}:     {typ: typePort, need: isProto(netfilter.TCP), get: dport, index: byPort},
	{"udp", "sport"}:     sourcePort(isProto(netfilter.UDP)),
	{"udp", "dport"}:     {typ: typePort, need: isProto(netfilter.UDP), get: dport, index: byPort},
	{"sctp", "sport"}:    sourcePort(isProto(netfilter.SCTP)),
	{"sctp", "dport"}:    {typ: typePort, need: isProto(netfilter.SCTP), get: dport, index: byPort},
	{"dccp", "sport"}:    sourcePort(isProto(netfilter.DCCP)),
	{"dccp", "dport"}:    {typ: typePort, need: isProto(netfilter.DCCP), get: dport},
	{"udplite", "sport"}: sourcePort(isProto(netfilter.UDPLite)),
	{"udplite", "dport"}: {typ: typePort, need: isProto(netfilter.UDPLite), get: dport},
	// The ECN bits depend on settings of the hosts.
	{"tcp", "flags"}: {typ: typeTCPFlags, need: isProto(netfilter.TCP), get: func(c *netfilter.Context) value {
		set, unknown := op.TCPFlags(c)
		return value{number(uint64(set)), number(64 | 128 | uint64(unknown))}
	}},
}

// dontFragment is the bit of the IPv4 header's field of fragments that says so.
const dontFragment = 1 << 14

func needs(need op.Cond, f field) field {
	f.need = need
	return f
}

// headers are the protocols of which a field may be asked for that is not among payloads: the condition that the packet
// has such a header at all.
var headers = map[string]op.Cond{
	"ip": isFamily(netfilter.IPv4), "ip6": isFamily(netfilter.IPv6),
	"tcp": isProto(netfilter.TCP), "udp": isProto(netfilter.UDP), "sctp": isProto(netfilter.SCTP),
	"dccp":    isProto(netfilter.DCCP),
	"udplite": isProto(netfilter.UDPLite), "icmp": isProto(netfilter.ICMP), "icmpv6": isProto(netfilter.ICMPv6),
	"igmp": isProto(2),
	"esp":  isProto(netfilter.ESP), "ah": isProto(netfilter.AH), "comp": isProto(108), "gre": isProto(47),
	"ether": op.HasLinkHeader, "vlan": op.Unsure, "arp": isFamily(netfilter.ARP),
}

// metas are the fields of meta (nft_meta_get_eval in net/netfilter/nft_meta.c).
var metas = map[string]field{
	"mark":      {typ: typeMark, get: func(c *netfilter.Context) value { return knownNumber(uint64(c.Packet.Mark)) }},
	"l4proto":   {typ: typeProto, need: hasTransport, get: proto},
	"nfproto":   {typ: typeNFProto, get: nfProto},
	"protocol":  {typ: typeEthType, get: etherType},
	"iifname":   {typ: typeIfname, get: iface(inName), index: byIncoming},
	"oifname":   {typ: typeIfname, get: iface(outName)},
	"iif":       {typ: typeIface, get: iface(inName), index: byIncoming},
	"oif":       {typ: typeIface, get: iface(outName)},
	"pkttype":   {typ: typePktType, get: packetType},
	"skuid":     needs(op.FromNode, unknown("the process that sends it")),
	"skgid":     needs(op.FromNode, unknown("the process that sends it")),
	"cgroup":    unknown("the process that sends it"),
	"length":    between(32, "the packet's length", skbLength),
	"iiftype":   unknown("the type of the interface"),
	"oiftype":   unknown("the type of the interface"),
	"iifkind":   linkKind(inName),
	"oifkind":   linkKind(outName),
	"iifgroup":  isGroup(inName),
	"oifgroup":  isGroup(outName),
	"ibrname":   unknown("bridge ports"),
	"obrname":   unknown("bridge ports"),
	"sdif":      unknown("VRFs"),
	"sdifname":  unknown("VRFs"),
	"rtclassid": unknown("routing realms"),
	"secpath":   transformed,
	"ipsec":     transformed,
	"priority":  unknown("the packet's priority"),
	"secmark":   unknown("security labels"),
	"cpu":       unknown("the CPU"),
	"random":    unknown("chance"),
	"nftrace":   unknown("whether the packet is traced"),
	"time":      unknown("the time"),
	"day":       unknown("the time"),
	"hour":      unknown("the time"),
}

// linkKind is the kind of an interface, as ip -d link names it. The kernel breaks the rule off for one without a kind,
// as hardware and lo are, and where there is no interface (nft_meta_get_eval_kind).
func linkKind(name func(p *netfilter.Packet) string) field {
	return field{
		typ: typeIfname, depends: "the kind of the interface (ip-link.json)",
		need: func(c *netfilter.Context) op.Truth {
			dev := name(c.Packet)
			if dev == "" {
				return op.No
			}
			kind, known := kindOfLink(c, dev)
			return op.Known(kind != "", known)
		},
		get: func(c *netfilter.Context) value {
			kind, ok := kindOfLink(c, name(c.Packet))
			if !ok {
				return value{blur: ones}
			}
			return known(nameWord(kind, 0))
		},
	}
}

func kindOfLink(c *netfilter.Context, dev string) (kind string, known bool) {
	if netfilter.IsUnknown(dev) {
		return "", false
	}
	return c.Host.Kind(dev)
}

// transformed tells whether IPsec has to do with the packet.
var transformed = field{typ: typeBool, depends: "IPsec policies", get: func(c *netfilter.Context) value {
	if op.Transformed(c) == op.No {
		return knownNumber(0)
	}
	return value{blur: number(1)}
}}

// etherSource is the link-layer address that the packet came in from.
func etherSource(c *netfilter.Context) value {
	if mac, known := op.LinkSource(c); known {
		return knownNumber(mac)
	}
	return value{blur: lowBits(typeEther.bits)}
}

// etherType is the protocol of the packet (ETH_P_*).
func etherType(c *netfilter.Context) value {
	return byFamily(c, 0x0800, 0x86dd, 0x0806)
}

// nfProto is the family of the packet (NFPROTO_*).
func nfProto(c *netfilter.Context) value {
	return byFamily(c, 2, 10, 3)
}

func byFamily(c *netfilter.Context, four, six, arp uint64) value {
	switch c.Packet.Family {
	case netfilter.IPv4:
		return knownNumber(four)
	case netfilter.ARP:
		return knownNumber(arp)
	default:
		return knownNumber(six)
	}
}

// hasTransport: ARP has no header behind its own (nft_set_pktinfo_unspec in include/net/netfilter/nf_tables.h).
func hasTransport(c *netfilter.Context) op.Truth { return op.Is(c.Packet.Family != netfilter.ARP) }

// kindOf is the type of ICMP and ICMPv6, and the operation of ARP.
func kindOf(c *netfilter.Context) value {
	if c.Packet.Type == 0 {
		return value{blur: lowBits(8)}
	}
	return knownNumber(uint64(c.Packet.Type))
}

// codeOf is the code of ICMP.
func codeOf(c *netfilter.Context) value {
	if !c.Packet.TooBig() {
		return value{blur: lowBits(8)}
	}
	return knownNumber(uint64(netfilter.FragmentationNeededCode))
}

// toGroup is the type of a frame to a group's link-layer address (PACKET_MULTICAST of uapi/linux/if_packet.h).
const toGroup = 2

// packetType: a Service's packet is for one host.
func packetType(c *netfilter.Context) value {
	if c.Packet.Resolves() && c.Packet.Dst.IsMulticast() && !c.Packet.Local {
		return knownNumber(toGroup)
	}
	if c.Packet.Dst.IsMulticast() || c.Packet.Family == netfilter.ARP {
		return value{blur: lowBits(8)}
	}
	if c.Hook.OfLink() && mayPassOn(c) {
		return value{blur: lowBits(8)}
	}
	return knownNumber(0)
}

// mayPassOn tells whether the frame may be for another host than the device that it is at: at a port of a bridge it is
// for the bridge, which may have another address, or for a host at another port, and between the two it stays so
// (eth_type_trans in net/ethernet/eth.c, br_handle_frame in net/bridge/br_input.c). br_netfilter takes it for one of
// the node's own while the chains of IP run (setup_pre_routing and br_nf_forward_ip in
// net/bridge/br_netfilter_hooks.c).
func mayPassOn(c *netfilter.Context) bool {
	dev := c.Packet.In
	switch c.Hook {
	case netfilter.Ingress:
	case netfilter.Egress:
		dev = c.Packet.Out
	default:
		return true
	}
	return netfilter.IsUnknown(dev) || c.Host.Master(dev) != "" || !c.Host.HasLinks()
}

// connectionKey names a key of ct, with a direction or without one.
type connectionKey struct{ key, dir string }

// cts are the keys of ct whose values are known.
var cts = map[connectionKey]field{
	{key: "state"}:     {typ: typeCTState, get: ctState},
	{key: "status"}:    {typ: typeCTStatus, need: hasConnection, get: ctStatus},
	{key: "mark"}:      {typ: typeMark, need: hasConnection, get: ctMark},
	{key: "direction"}: {typ: typeCTDir, need: hasConnection, get: ctDirection},
	{key: "l3proto"}:   {typ: typeNFProto, need: hasConnection, get: nfProto},
	{key: "protocol"}:  {typ: typeProto, need: hasConnection, get: proto},
	{key: "zone"}:      {typ: typeInteger, need: hasConnection, get: zone(netfilter.ZoneBoth), depends: zoneUnknown},
	{"zone", "original"}: {
		typ: typeInteger, need: hasConnection, get: zone(netfilter.ZoneOriginal), depends: zoneUnknown,
	},
	{"zone", "reply"}: {typ: typeInteger, need: hasConnection, get: zone(netfilter.ZoneReply), depends: zoneUnknown},
	// of the connection that expected this one
	{key: "helper"}: needs(op.NoPacket, unknown("the connection's helper")),

	{"l3proto", "original"}:   {typ: typeNFProto, need: hasConnection, get: nfProto},
	{"protocol", "original"}:  {typ: typeProto, need: hasConnection, get: proto},
	{"ip saddr", "original"}:  {typ: typeIPv4, need: connectionOf(netfilter.IPv4), get: addrOf(origSource)},
	{"ip daddr", "original"}:  {typ: typeIPv4, need: connectionOf(netfilter.IPv4), get: addrOf(origDestination)},
	{"ip6 saddr", "original"}: {typ: typeIPv6, need: connectionOf(netfilter.IPv6), get: addrOf(origSource)},
	{"ip6 daddr", "original"}: {typ: typeIPv6, need: connectionOf(netfilter.IPv6), get: addrOf(origDestination)},
	{"proto-src", "original"}: {typ: typePort, need: hasConnection, get: portOf(origSource)},
	{"proto-dst", "original"}: {typ: typePort, need: hasConnection, get: portOf(origDestination)},

	// What answers is what the packet goes to, as far as that is settled.
	{"l3proto", "reply"}:   {typ: typeNFProto, need: hasConnection, get: nfProto},
	{"protocol", "reply"}:  {typ: typeProto, need: hasConnection, get: proto},
	{"ip saddr", "reply"}:  {typ: typeIPv4, need: connectionOf(netfilter.IPv4), get: addrOf(answerSource)},
	{"ip daddr", "reply"}:  {typ: typeIPv4, need: connectionOf(netfilter.IPv4), get: addrOf(answerDestination)},
	{"ip6 saddr", "reply"}: {typ: typeIPv6, need: connectionOf(netfilter.IPv6), get: addrOf(answerSource)},
	{"ip6 daddr", "reply"}: {typ: typeIPv6, need: connectionOf(netfilter.IPv6), get: addrOf(answerDestination)},
	{"proto-src", "reply"}: {typ: typePort, need: hasConnection, get: portOf(answerSource)},
	{"proto-dst", "reply"}: {typ: typePort, need: hasConnection, get: portOf(answerDestination)},
}

// ctKeys are the other keys of ct, with or without a direction; their values the snapshot does not hold.
var ctKeys = map[string]string{
	"expiration": "the connection's age", "label": "the connection's label",
	"bytes": "what the connection has seen", "packets": "what the connection has seen",
	"avgpkt": "what the connection has seen",
	"id":     "the connection's number", "event": "the connection's events", "secmark": "security labels",
	"count": "how many connections there are",
}

func ctMark(c *netfilter.Context) value { return knownNumber(uint64(c.Packet.CTMark)) }

const zoneUnknown = "the connection's zone"

// zone is the number of the connection's zone: of both directions it is the number itself, even if that counts in one
// direction alone (NFT_CT_ZONE in nft_ct_get_eval, net/netfilter/nft_ct.c).
func zone(dirs uint8) func(c *netfilter.Context) value {
	return func(c *netfilter.Context) value {
		z := c.Packet.Zone
		if x := c.Packet.Tracked(); x != nil {
			z = x.Zone
		}
		switch {
		case z.Vague || z.ByMark:
			return value{blur: lowBits(16)}
		case dirs != netfilter.ZoneBoth && z.Dirs&dirs == 0:
			return knownNumber(0)
		}
		return knownNumber(uint64(z.ID))
	}
}

func connectionOf(f netfilter.Family) op.Cond {
	return func(c *netfilter.Context) op.Truth { return both(op.Is(c.Packet.Family == f), hasConnection(c)) }
}
