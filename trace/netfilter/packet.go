// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"math"
	"net/netip"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
)

// Family is a set of IP families, or ARP: a packet has exactly one, a table may serve both of IP (nftables' inet).
type Family uint8

// The families.
const (
	IPv4 Family = 1 << iota
	IPv6
	ARP  // of the packets by which IPv4's link-layer addresses are found
	Inet = IPv4 | IPv6
)

// FamilyOf returns the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() || a.Is4In6() {
		return IPv4
	}
	return IPv6
}

// String returns "IPv4", "IPv6" or "IPv4+IPv6".
func (f Family) String() string {
	switch f {
	case IPv4:
		return "IPv4"
	case IPv6:
		return "IPv6"
	case Inet:
		return "IPv4+IPv6"
	case ARP:
		return "ARP"
	}
	return "no family"
}

// Protocol numbers of the IANA registry that a rule set names.
const (
	ICMP    uint8 = 1
	TCP     uint8 = 6
	UDP     uint8 = 17
	DCCP    uint8 = 33
	ESP     uint8 = 50
	AH      uint8 = 51
	ICMPv6  uint8 = 58
	SCTP    uint8 = 132
	UDPLite uint8 = 136
)

// UnknownIface stands in Packet.In and Packet.Out for an interface that exists but whose name the snapshot does not
// tell, or at its beginning for one of several (Context.OneOf). The empty string means that the packet has no such
// interface at this hook.
const UnknownIface = "?"

// IsUnknown tells whether the name of an interface stands for one that is not known.
func IsUnknown(iface string) bool {
	return iface == UnknownIface || strings.HasPrefix(iface, UnknownIface+" ")
}

// metPrerouting stands in Packet.Bridge.
const metPrerouting = "*"

// Packet is the state of one packet at one point of its path: of the first of its connection, unless Turn says
// otherwise. It is comparable: two equal packets have the same future, which is what lets the walk merge branches.
type Packet struct {
	Family           Family
	Proto            uint8
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16 // 0: some ephemeral port, not known
	// Ports are those that the client's is one of, where it is not known; the zero PortRange where nothing is.
	Ports   PortRange
	In, Out string     // interface names; UnknownIface where not known
	NextHop netip.Addr // the gateway of the route by Out; zero where Dst is on the link, or it is not known
	Type    uint8      // of ICMP and ICMPv6 the type, of ARP the operation
	Mark    uint32     // skb mark
	CTMark  uint32     // conntrack mark

	// OrigSrc, OrigDst and OrigDstPort are the connection's addresses before any translation (conntrack's original
	// tuple).
	OrigSrc, OrigDst netip.Addr
	OrigDstPort      uint16

	Untracked bool // raw table: CT --notrack; no NAT will be done
	Template  bool // raw table: CT --zone and the like gave it a template that connection tracking goes by
	Zone      Zone // that of the template
	DNAT      bool // conntrack's destination NAT is settled by a rule (also by REDIRECT, NETMAP)
	SNAT      bool // conntrack's source NAT is settled by a rule (SNAT, MASQUERADE)
	DNATBy    Ref  // the rule that settled DNAT, the zero Ref when none did; the walk fills it in
	SNATBy    Ref  // the rule that settled SNAT, likewise
	// SNATPorts is how many source ports the rule that settled SNAT leaves the kernel to choose from; 0: it names none.
	SNATPorts uint16
	Local     bool   // the socket is local: the packet came through OUTPUT
	Bound     string // the interface that its socket is bound to, of what a local process sends; "" for none
	TOS       uint8  // TOS byte, or traffic class, without ECN: 0 unless a rule or a tunnel has set it
	AnyTOS    bool   // a rule has changed the TOS to a value that is not followed
	Clamped   bool   // a rule may have made the segments that the other end sends smaller (TCPMSS)
	MSS       uint16 // of one that is clamped: the size that a rule has set; 0 where they fit the node's links
	// Raised is what rules make of its TTL or hop limit in this network namespace, before it is forwarded and behind that.
	Raised struct{ Before, Behind Hops }

	route routed // the route that the packet has since it was looked up last

	// Bridge is the bridge that forwards the packet itself, as br_netfilter has it. A packet that has met PREROUTING in a
	// bridge, and is on its way to IP, has another word there. "" for all others.
	Bridge string

	// Turn says which packet of its connection it is. Of one that is not the first, Conn is what connection tracking knows
	// of the connection, and Tracking what it has made of the packet; Back is for the walk.
	Turn     Turn
	Ending   Ending
	Tracking Tracking
	Back     uint8
	Conn     *Connection

	// Virtual is the virtual server of IPVS that has scheduled the connection; the zero AddrPort for none. Scheduled is
	// by what it chooses among its real servers where that is no fixed share ("load", "client"); the branch's
	// probability then says nothing.
	Virtual   netip.AddrPort
	Scheduled string

	// Recent holds the names of xt_recent lists (and of sets of nftables, TABLE@SET) that a rule has put the source
	// into, each followed by ' '; a name behind '!' is one that it was taken out of, one behind "set:" a set that was
	// changed.
	Recent string
}

// Hops is a change of a TTL or hop limit: to one, where Set is more than 0, and then by so much.
type Hops struct{ Set, More uint8 }

// Of returns what becomes of a TTL or hop limit.
func (h Hops) Of(hops int) int {
	if h.Set > 0 {
		hops = int(h.Set)
	}
	return min(hops+int(h.More), math.MaxUint8)
}

// Hop returns whom the packet is sent to on the link: the gateway of its route, or its destination.
func (p *Packet) Hop() netip.Addr {
	if p.NextHop.IsValid() {
		return p.NextHop
	}
	return p.Dst
}

// PortRange are the ports from the first to the last.
type PortRange struct{ First, Last uint16 }

// Hook is a netfilter hook: one of the IP families, of a device, or of a bridge.
type Hook uint8

// The hooks: those of the IP families (NF_INET_* of uapi/linux/netfilter.h), of a device (NF_NETDEV_*, and inet's
// ingress, which is the same place), and of a bridge (NF_BR_* of uapi/linux/netfilter_bridge.h).
const (
	Prerouting Hook = iota
	Input
	Forward
	Output
	Postrouting
	Ingress
	Egress
	BridgePrerouting
	BridgeInput
	BridgeForward
	BridgeOutput
	BridgePostrouting
	hooks
)

// String returns the hook's name: of the IP families as iptables writes it.
func (h Hook) String() string {
	return [...]string{
		"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING", "INGRESS", "EGRESS", "BRIDGE PREROUTING", "BRIDGE INPUT",
		"BRIDGE FORWARD", "BRIDGE OUTPUT", "BRIDGE POSTROUTING", "?",
	}[min(h, hooks)]
}

// OfLink tells whether a hook is one of a device or of a bridge, and not of the IP families.
func (h Hook) OfLink() bool { return h >= Ingress }

// Context is what an Op may ask: the packet, and the node around it.
type Context struct {
	Packet *Packet
	Hook   Hook
	Base   *Base         // of the base chain that is being run; nil outside of a walk
	Host   *host.Network // addresses, routes, links; never nil, but may know nothing
	Sets   SetLookup     // ipsets; nil when they were not collected
	// Recent tells whether the packet's source is in a list of that name since before this packet: one of xt_recent, or
	// a set of nftables that rules fill, named TABLE@SET. known is false for lists that the walk's assumptions (first
	// packet of a new client, or a returning client) do not cover.
	Recent func(list string) (listed, known bool)
	// OneOf are the interfaces that a name beginning with UnknownIface stands for one of.
	OneOf map[string][]string
	// Listens tells whether a socket of the node receives packets of a protocol to a port, at any address; known is false
	// where its sockets were not collected. nil stands for that, too.
	Listens func(proto uint8, port uint16) (listens, known bool)
	// Untransformed: no packet is transformed by IPsec, as the kernel has no policy that asks for it.
	Untransformed bool
	// Steps says that the walk records its steps: an op then says in Effect.Lookup what it went by.
	Steps bool
	// ByTurn: an op has gone by what a packet of the direction has that another one behind the first has not: its flags,
	// its length, how far its connection is.
	ByTurn bool
	// Work is what the walk has cost so far, in rules run. An op that goes through many elements adds to it.
	Work int
}

// SetLookup answers membership questions about ipsets.
type SetLookup interface {
	// Match says whether the packet's elements, chosen by flags ("src", "dst" per dimension, in order), are in the
	// named set. known is false where the set, or the answer, is not to be had from the snapshot; why then says so.
	Match(c *Context, set string, flags []string) (in, known bool, why string)
}
