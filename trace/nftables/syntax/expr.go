// SPDX-License-Identifier: Apache-2.0

package syntax

import "net/netip"

// Expr is an expression of a rule, or a constant (libnftables-json(5), EXPRESSIONS). It is one of the types of this
// file, *[Verdict], *[Elem] or *[Opaque].
type Expr interface{ expr() }

// The constants.
type (
	// String is a constant in words: a symbol, an interface's name, an address, "@" and a set's name; "*" is the
	// element of a set that stands for all other keys.
	String string
	// Number is a constant that is a number. nft's JSON has no others than whole ones.
	Number float64
	// Addr is an address.
	Addr struct{ netip.Addr }
	// Bool tells whether there is a header, an option or a route.
	Bool bool
	// List are flags.
	List []Expr
	// Range is all values from one to another.
	Range struct{ From, To Expr }
	// Prefix is a network: an address, or another number, and how many bits of it count.
	Prefix struct {
		Addr Expr
		Len  float64
	}
)

// The expressions that read a property of the packet.
type (
	// Payload is a field of a header, such as ip saddr.
	Payload struct{ Protocol, Field string }
	// RawPayload is a number of bits of a header, from an offset on.
	RawPayload struct {
		Base        string // ll, nh, th, ih
		Offset, Len float64
	}
	// Meta is what is known of the packet beside its bytes, such as mark or iifname.
	Meta struct{ Key string }
	// CT is a key of the packet's connection, such as state or mark.
	CT struct {
		Key string
		Dir string // original, reply, or ""
	}
	// Header is an IPv6 extension header or an option, or a field of it.
	Header struct {
		Kind  string // exthdr, tcp option, ip option
		Name  string
		Field string // "" asks whether it is there
	}
	// Fib is an answer of the routing tables.
	Fib struct {
		Result string   // type, oif, oifname, check
		Flags  []string // saddr or daddr; mark, iif, oif
	}
	// Socket is a property of the local socket that takes the packet.
	Socket struct{ Key string }
	// Route is a property of the packet's route (rt).
	Route struct {
		Family string // ip, ip6, or ""
		Key    string
	}
)

// The expressions that are calculated.
type (
	// Numgen is a number that is drawn or counted, from Offset on, Mod of them.
	Numgen struct {
		Mode        string // random, inc
		Mod, Offset float64
	}
	// Hash is a hash of the packet, from Offset on, with Mod values.
	Hash struct {
		Name        string // jhash, symhash
		Expr        Expr   // what jhash is of
		Mod, Offset float64
		Seed        float64
		Seeded      bool // the seed was given
	}
	// Binary is a bitwise operation on two operands or more, from the left.
	Binary struct {
		Op       string // & | ^ << >>
		Operands []Expr
	}
	// Concat are several expressions one after the other, as the key of a set.
	Concat []Expr
	// Map is what a map has for a key. Data is a String "@NAME", or an AnonymousSet.
	Map struct{ Key, Data Expr }
	// AnonymousSet is a set or a map that stands in a rule.
	AnonymousSet []Element
)

// Element is an element of a set, or of a map.
type Element struct {
	Key   Expr
	Value Expr // nil for an element of a set
}

// Elem is a key or a value with what else was said of it.
type Elem struct {
	Val        Expr
	Statements []Statement // that stand on the element
	Timed      bool        // it has a timeout
	Timeout    float64     // seconds
	Comment    string
}

// Opaque is an expression or a statement of which only the name and a text are kept: there is no type for it, or it has
// not the members that the type requires.
type Opaque struct {
	Name string // what JSON calls it; "" where it has no name
	Text string
}

func (String) expr()       {}
func (Number) expr()       {}
func (Addr) expr()         {}
func (Bool) expr()         {}
func (List) expr()         {}
func (*Range) expr()       {}
func (*Prefix) expr()      {}
func (*Payload) expr()     {}
func (*RawPayload) expr()  {}
func (*Meta) expr()        {}
func (*CT) expr()          {}
func (*Header) expr()      {}
func (*Fib) expr()         {}
func (*Socket) expr()      {}
func (*Route) expr()       {}
func (*Numgen) expr()      {}
func (*Hash) expr()        {}
func (*Binary) expr()      {}
func (Concat) expr()       {}
func (*Map) expr()         {}
func (AnonymousSet) expr() {}
func (*Elem) expr()        {}
func (*Verdict) expr()     {}
func (*Opaque) expr()      {}
