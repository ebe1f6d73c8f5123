// SPDX-License-Identifier: Apache-2.0

package syntax

// Statement is a statement of a rule (libnftables-json(5), STATEMENTS). It is one of the types of this file, or
// *[Opaque].
type Statement interface{ statement() }

// The statements that match, or decide.
type (
	// Match compares an expression with a constant, or with the elements of a set.
	Match struct {
		Op          string // == != < > <= >= in !; "" is ==
		Left, Right Expr
	}
	// Verdict ends the rule, or jumps to another chain. It is also what a verdict map has for a key.
	Verdict struct {
		Kind   string // accept, drop, return, continue, jump, goto
		Target string // the chain of jump and goto
	}
	// VMap takes the verdict that a map has for a key. Data is a String "@NAME", or an AnonymousSet.
	VMap struct{ Key, Data Expr }
	// Reject answers that the packet is refused.
	Reject struct {
		Type string // icmp, icmpv6, icmpx, tcp reset, or "" for the default
		Code string // of ICMP
	}
	// Queue leaves the packet to a process on the node.
	Queue struct {
		Num   Expr // nil: 0
		Flags []string
	}
)

// The statements that change something.
type (
	// NAT translates an address or a port.
	NAT struct {
		Kind       string   // dnat, snat, redirect, masquerade
		Family     string   // ip, ip6, or ""
		Addr, Port Expr     // nil: it stays
		Flags      []string // random, fully-random, persistent, netmap
		TypeFlags  []string // concat, interval, prefix
	}
	// Dup sends a copy to another host, or, in the family netdev, out by an interface, which is the address there.
	Dup struct{ Addr, Dev Expr }
	// Reset takes a TCP option out.
	Reset struct{ Option Expr }
	// TProxy gives the packet to a local socket.
	TProxy struct {
		Family     string // ip, ip6, or ""
		Addr, Port Expr   // nil: those of the packet
	}
	// Mangle sets a field of the packet, of meta or of ct.
	Mangle struct{ Key, Value Expr }
	// Update adds an element to a set or a map, updates it or deletes it.
	Update struct {
		Kind       string // set, map
		Op         string // add, update, delete
		Set        string // "@NAME"
		Elem       Expr
		Data       Expr        // of a map; nil for a set
		Statements []Statement // of the element
	}
)

// The statements that count, limit and log.
type (
	// Limit ends the rule for packets above a rate, or below it.
	Limit struct {
		Inverted            bool // "over"
		Rate, Burst         float64
		RateUnit, BurstUnit string // packets, bytes, kbytes, mbytes, or ""
		Per                 string
	}
	// Quota ends the rule behind a number of bytes, or before.
	Quota struct {
		Inverted bool // "over"
		Val      float64
		Unit     string
	}
	// CTCount ends the rule above a number of connections, or below.
	CTCount struct {
		Inverted bool // "over"
		Val      float64
	}
	// Log writes to the log of the kernel, or sends the packet to a process that logs.
	Log struct {
		Prefix  string
		Grouped bool // a group was given
		Group   float64
		Level   string
	}
	// Flow adds the connection to a flowtable.
	Flow struct{ Op, Flowtable string }
	// ObjectRef uses an object that has a name: counter, quota, limit, ct helper and so on.
	ObjectRef struct {
		Kind, Name string
		Map        *Map // that has the object for the packet; nil where Name names it
	}
	// Counter counts packets. It is for printing: of a listing it is read as Plain.
	Counter struct{ Packets, Bytes uint64 }
	// Plain is a statement that has no arguments, or none that matter: counter, notrack, last.
	Plain string
)

func (*Match) statement()     {}
func (*Verdict) statement()   {}
func (*VMap) statement()      {}
func (*Reject) statement()    {}
func (*Queue) statement()     {}
func (*NAT) statement()       {}
func (*TProxy) statement()    {}
func (*Dup) statement()       {}
func (*Reset) statement()     {}
func (*Mangle) statement()    {}
func (*Update) statement()    {}
func (*Limit) statement()     {}
func (*Quota) statement()     {}
func (*CTCount) statement()   {}
func (*Log) statement()       {}
func (*Flow) statement()      {}
func (*ObjectRef) statement() {}
func (*Counter) statement()   {}
func (Plain) statement()      {}
func (*Opaque) statement()    {}
