// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"net/netip"
)

// Backend is the kernel's subsystem that a table belongs to.
type Backend string

// The backends. Two of them may be live at once on one node.
const (
	BackendNFT    Backend = "nft"    // iptables-nft: iptables' tables inside nf_tables
	BackendLegacy Backend = "legacy" // iptables-legacy: x_tables
	BackendNative Backend = "native" // nftables tables that iptables does not manage
	BackendIPVS   Backend = "ipvs"   // the virtual servers of IPVS, as rules
	// BackendProgram is what is not a rule: filters of tc, programs of BPF, policies of IPsec. Nobody can follow those.
	BackendProgram Backend = "program"
)

// Ruleset is every table that was read from one node.
type Ruleset struct {
	Tables []*Table
	// Rank tells the place of a base chain among all functions of its hook, for packets of a family; nil where the order
	// of chains of the same priority is not known.
	Rank func(f Family, c *Chain) (at int, known bool)

	count int32 // of chains; made by Link
}

// Table is one table of one backend.
type Table struct {
	// Family is 0 for a table of nftables' families netdev and bridge, which has chains at hooks of devices and bridges
	// alone; its Name begins with the family ("netdev filter").
	Family  Family
	Backend Backend
	Name    string   // "nat", "filter", …
	Chains  []*Chain // in the order of the dump
	Sets    []Set    // of a native table, in the order of the dump, or of rules that nft has written into another one
	// Holes says why a part of the table is not in Chains, or not known; "" where all of it was read. The walk meets
	// rules that are opaque there; who looks for what is not in a table must ask.
	Holes string
	// Instead are rules of a table that iptables-nft keeps as nftables has them, where its listing cannot show them. The
	// table has no chains for them.
	Instead []Instead
	byName  map[string]*Chain // made by Link
}

// Instead is a rule that stands in place of one that a listing shows otherwise.
type Instead struct {
	Chain string
	Rules int // how many the chain has
	At    int // the rule's index
	Rule  *Rule
}

// ChainType is a base chain's type (nft: type filter|nat|route).
type ChainType uint8

// The chain types. A nat chain sees only the first packet of a connection, and only while the translation that its hook
// makes is not settled (net/netfilter/nf_nat_core.c, nf_nat_inet_fn). A route chain re-routes local output when it
// changed the packet's mark or addresses.
const (
	TypeFilter ChainType = iota
	TypeNAT
	TypeRoute
)

// Base says where a base chain is hooked in.
type Base struct {
	Hook     Hook
	Priority int
	Type     ChainType
	Policy   Kind // Accept or Drop
	// Devices are the interfaces that a chain at Ingress or Egress is attached to; a name with '*' at its end stands for
	// all that begin so. nil: they are not known.
	Devices []string
}

// Chain is a list of rules.
type Chain struct {
	Table *Table
	Name  string
	Base  *Base // nil for a chain that is only jumped to
	Rules []*Rule
	// Unread says why the rules of a base chain could not be read: the walk takes it for opaque. Empty: they were read.
	Unread string

	index   *index   // made by Link
	targets []*Chain // made by Link
	number  int32    // among all chains of the ruleset; made by Link
	// calls makes it stand for what br_netfilter runs; nil for chains of rules.
	calls func(*branch) []branch
}

// Rule is one rule: its ops run in order, until one breaks off or decides.
type Rule struct {
	Num  int    // 1 for the chain's first rule, as iptables -L --line-numbers counts
	Text string // the rule as the dump has it, from "-A" on, without counters
	Ops  []Op
	Key  Key
	// Comment is the rule's (first) comment, as a person wrote it; "" for none.
	Comment string
	// Target is what an iptables rule names behind -j or -g, a target or a chain; of IPVS the virtual server, without its
	// real servers ("TCP 10.96.0.1:443 rr"). "" for none, and for rules of nftables.
	Target string
	// NAT is the literal destination of a DNAT rule ("10.0.0.1:80"), for the walk backwards; zero where the rule has
	// none.
	NAT netip.AddrPort
	// Masked: a condition of the rule could not be read, so that nobody can conclude whom it serves.
	Masked bool
}

// Key is what an index may sort a rule by: conditions that every packet matching the rule satisfies. Zero fields say
// nothing.
type Key struct {
	Src, Dst netip.Addr // -s and -d of a single address, not negated
	Proto    uint8      // with DstPort
	DstPort  uint16     // a single --dport, not negated; needs Proto
}

// Op is one step of a rule: a match, or a target. An iptables rule is its matches followed by its target.
type Op interface {
	// Run evaluates the op for c.Packet. Only ops that act change the packet, and they change it in place.
	Run(c *Context) Effect
}

// Jumper is an Op that jumps to another chain of its table; Link resolves it.
type Jumper interface {
	Op
	// JumpsTo returns the name of the chain.
	JumpsTo() string
	// Resolve gives the op the chain of that name; nil when the table has none.
	Resolve(*Chain)
}

// Brancher is an Op that jumps to one of several chains of its table, as a verdict map does; Link resolves them.
type Brancher interface {
	Op
	// BranchesTo calls f with the name of each of the chains.
	BranchesTo(f func(name string))
	// ResolveAll gives the op a function that finds its chains by name; what the table does not have is nil.
	ResolveAll(chain func(name string) *Chain)
}

// Kind is what an op decided.
type Kind uint8

// The kinds of effect.
const (
	Next    Kind = iota // go on with the rule's next op: the match matched, or the target is not terminal
	Break               // the rule does not apply: go on with the next rule
	Chance              // Next with probability Effect.P, else Break
	Unknown             // Next or Break, the snapshot does not tell which; Effect.Why says why
	Opaque              // the target is not known: anything may happen to the packet; Effect.Why says what it is
	Split               // one of Effect.Alts, each with its probability
	Accept              // ends this base chain
	Drop                // ends everything
	Reject              // Drop with an answer to the client (RST or ICMP)
	Queue               // queued to user space, which decides
	Stolen              // the packet leaves the walk for a local socket or elsewhere (SYNPROXY); Effect.Why says where
	Return              // back to the calling chain, or the policy
	Jump                // call Effect.Chain
	Goto                // continue in Effect.Chain, never come back to this one
)

// Effect is an op's result.
type Effect struct {
	Kind  Kind
	P     float64 // for Chance
	Why   string  // for Unknown, Opaque, Queue, Stolen, and for Drop where it is not the rule that says so
	Chain *Chain  // for Jump and Goto; nil is a chain that does not exist
	Alts  []Alt   // for Split
	// Offloads says that the rule may hand the packet's connection to a flowtable.
	Offloads bool
	// Lookup is the element of a set or map that decided; nil where none did, or where Context.Steps does not request it.
	Lookup *Lookup
}

// Alt is one of the branches of a Split. The probabilities of all of them add up to 1.
type Alt struct {
	P      float64
	Packet Packet
	Effect Effect
}

// Rememberer is an Op that matches clients in a list whose entries expire.
type Rememberer interface {
	Op
	// Remembers returns the list that is asked, as Packet.Recent names it, and for how many seconds a client is found
	// in it, 0 for any time; "" for none.
	Remembers() (list string, seconds uint32)
}

// asks returns the list in which the rule looks up the client.
func (r *Rule) asks() (l ClientList) {
	for _, o := range r.Ops {
		if x, ok := o.(Rememberer); ok {
			if name, seconds := x.Remembers(); name != "" {
				l = ClientList{name, seconds}
			}
		}
	}
	return l
}

// Translator is an Op that translates the destination to one of those that are written in the rule.
type Translator interface {
	Op
	// Destinations returns the addresses and ports, in the order of the rule.
	Destinations() []netip.AddrPort
}
