// SPDX-License-Identifier: Apache-2.0

package syntax

import "slices"

// Ruleset is what nf_tables holds, or a part of it.
type Ruleset struct {
	// Tables are those of the families that are read (see [IsRead]), in the order in which they were found.
	Tables []*Table
	// Complete tells that the rules have every condition: nft leaves out some of those that it makes itself.
	Complete bool
	// NewRuleReader returns a reader of rules for one goroutine.
	NewRuleReader func() RuleReader

	byName map[TableName]*Table
}

// Source is a rule as it was found: a part of what was read, and valid as long as that is.
type Source []byte

// RuleReader reads a rule of a table. The rule is valid until the next call. The error says what cannot be read; an
// unknown statement or expression is not an error, but an [Opaque].
type RuleReader func(t *Table, s Source) (Rule, error)

// TableName names a table.
type TableName struct {
	Family string `json:"family"` // ip, ip6, inet, arp, bridge, netdev
	Name   string `json:"name"`
}

// IsRead tells whether the tables of a family are met by IP packets, or by those that find link-layer addresses for
// them: all that there are.
func IsRead(family string) bool {
	switch family {
	case "ip", "ip6", "inet", "arp", "bridge", "netdev":
		return true
	}
	return false
}

// Table is a table.
type Table struct {
	TableName

	// Declared tells that the table itself was found, and not only something that says that it is in it.
	Declared bool
	// Flags are "dormant", "owner" and "persist". nft 1.0.6 prints the table's name in place of them.
	Flags  []string
	Chains []*Chain
	// Sets are the sets and maps that have a name.
	Sets []*Set
	// Flowtables are those that the listing has: the kernel's messages are not asked for them.
	Flowtables []*Flowtable
	// Alien says what the listing has of the table that no reader knows: nothing is claimed of its chains. "" for nothing.
	Alien string
	// RulesNotRead tells that the rules and the elements of sets were left out on purpose.
	RulesNotRead bool

	rules map[string]*RuleList // by chain
}

// What is said of a table of which something is not known.
const alienBegins, alienEnds = "it has ", ", which is not known"

// Note notes what is not known of the table; "" is nothing.
func (t *Table) Note(what string) {
	if what != "" && t.Alien == "" {
		t.Alien = alienBegins + what + alienEnds
	}
}

// Flowtable is a flowtable; its Devices are nil where they were not said.
type Flowtable struct {
	Name    string
	Devices []string
}

// Flowtable returns the flowtable of a name; nil for none.
func (t *Table) Flowtable(name string) *Flowtable {
	if i := slices.IndexFunc(t.Flowtables, func(f *Flowtable) bool { return f.Name == name }); i >= 0 {
		return t.Flowtables[i]
	}
	return nil
}

// RuleList are the rules of a chain.
type RuleList struct{ Sources []Source }

// Table returns a table, which it adds where there is none of that name.
func (r *Ruleset) Table(name TableName) *Table {
	t := r.byName[name]
	if t == nil {
		t = &Table{TableName: name, rules: map[string]*RuleList{}}
		if r.byName == nil {
			r.byName = map[TableName]*Table{}
		}
		r.byName[name] = t
		r.Tables = append(r.Tables, t)
	}
	return t
}

// RuleList returns the list that the rules of a chain are added to, whether the chain was found or not.
func (t *Table) RuleList(chain string) *RuleList {
	l := t.rules[chain]
	if l == nil {
		l = &RuleList{}
		t.rules[chain] = l
	}
	return l
}

// Rules returns the rules of a chain.
func (t *Table) Rules(chain string) []Source {
	if l := t.rules[chain]; l != nil {
		return l.Sources
	}
	return nil
}

// Dormant tells whether the table's chains are not attached to their hooks; known is false where the flags do not say
// it clearly.
func (t *Table) Dormant() (yes, known bool) {
	known = true
	for _, flag := range t.Flags {
		yes = yes || flag == "dormant"
		known = known && slices.Contains([]string{"dormant", "owner", "persist"}, flag)
	}
	return yes, yes || known
}

// Chain is a chain. One without a hook is no base chain.
type Chain struct {
	Name     string
	Type     string // filter, nat, route
	Hook     string // prerouting, input, forward, output, postrouting, ingress, egress
	Priority *int   // nil: it was not said
	Policy   string // accept, drop; "" is accept
	// Devices are those that the hook is of, where it is ingress or egress: names, or prefixes with '*' behind them. nil:
	// they were not said (nft 1.0.6 does not print them).
	Devices []string
}

// Set is a set or a map that has a name.
type Set struct {
	Name string
	Keys Type
	// Data is the type of a map's values; nil for a set.
	Data *Type
	// Statements are those of the elements that rules add. The others have them, too, each its own.
	Statements []Statement
	Timeout    int64    // of elements, in seconds; 0 for none
	Flags      []string // constant, interval, timeout
	Size       int      // how many elements it may have; 0 where that was not said
	Count      int      // how many elements it has, where Elements do not tell; 0: they do
	Elements   []Element
}

// Timed tells whether elements may have timeouts.
func (s *Set) Timed() bool { return slices.Contains(s.Flags, "timeout") }

// Type is the type of a set's keys or of a map's values: names of types, one for each field of a concatenation, or the
// expression that has the type ("typeof").
type Type struct {
	Names []string
	Of    Expr
}

// Rule is a rule.
type Rule struct {
	Statements []Statement
	Comment    string
	Handle     uint64 // the kernel's number of it; 0 where that was not read
}
