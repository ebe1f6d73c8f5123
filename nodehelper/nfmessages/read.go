// SPDX-License-Identifier: Apache-2.0

package nfmessages

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/internal/parallel"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// The attributes of tables, chains, hooks and rules (enum nft_table_attributes and so on).
const (
	tableName   = 1
	tableFlags  = 2
	tableHandle = 4
	tableOwner  = 7

	chainTable  = 1
	chainName   = 3
	chainHook   = 4
	chainPolicy = 5
	chainType   = 7
	chainUser   = 12

	hookNumber   = 1
	hookPriority = 2
	hookDevice   = 3
	hookDevices  = 4

	deviceName   = 1
	devicePrefix = 2

	ruleTable    = 1
	ruleChain    = 2
	ruleHandle   = 3
	ruleExprs    = 4
	ruleUserData = 7
	ruleChainID  = 11

	listElement = 1 // NFTA_LIST_ELEM

	listTable    = 1
	listSet      = 2
	listElements = 3
)

// mostElements is how many elements the sets of a dump may have: each takes ten times the memory of the smallest one in
// the dump.
const mostElements = 1_000_000

// dump is a dump that is being read.
type dump struct {
	*Node

	little bool // whether Order is little-endian, which binary.NativeEndian may be, too
	sets   map[syntax.TableName]map[string]*dumpSet
	// here is the set that the last elements were of, filled are all that have elements.
	here     *dumpSet
	filled   []*dumpSet
	elements int // of all of them

	machine machine // of the rule that is being read
	// jumps are jumps and gotos by chain: many rules have the same one.
	jumps map[int32]map[string]*syntax.Verdict
}

// Node is what of a node's answers is not in them.
type Node struct {
	// Order is the byte order of the machine: of the headers of messages and attributes, and of some values in registers.
	Order binary.ByteOrder
	// Interfaces are the names of interfaces by number, for rules that have the number.
	Interfaces map[int]string
	// Left are the tables of which neither rules nor elements were requested: iptables-save shows them.
	Left []syntax.TableName
}

// Read reads the kernel's answers to requests for all tables, chains and sets, and for the rules and the elements of
// each table that [Outline] does not leave out. The rules are read only on demand, from answers, which must not change
// until then.
func Read(answers []byte, n *Node) (*syntax.Ruleset, error) {
	d := newDump(n)
	rs := &syntax.Ruleset{Complete: true, NewRuleReader: func() syntax.RuleReader {
		own := newDump(n)
		own.sets = d.sets // which do not change any more
		return own.fullRule
	}}
	if err := d.read(answers, rs); err != nil {
		return nil, err
	}
	for _, t := range rs.Tables {
		t.RulesNotRead = slices.Contains(n.Left, t.TableName)
	}
	return rs, nil
}

// fullRule reads a rule of which the message was found.
func (d *dump) fullRule(t *syntax.Table, s syntax.Source) (syntax.Rule, error) {
	var a attrs
	if err := parseAttrs(s, d.Order, &a); err != nil {
		return syntax.Rule{}, err
	}
	return d.rule(t.Family, d.sets[t.TableName], &a)
}

func newDump(n *Node) *dump {
	return &dump{
		Node: n, little: n.Order.Uint16([]byte{1, 0}) == 1,
		sets: map[syntax.TableName]map[string]*dumpSet{}, jumps: map[int32]map[string]*syntax.Verdict{},
	}
}

// read finds every table, chain and rule, and every set and map that has a name.
func (d *dump) read(data []byte, rs *syntax.Ruleset) error {
	var here struct { // rules of a chain come together, and share its list
		table *syntax.Table
		chain string
		rules *syntax.RuleList
	}
	err := messages(data, d.Order, func(m message) error {
		family := familyNumbers[m.family]
		if !syntax.IsRead(family) {
			return nil
		}
		switch m.kind {
		case msgNewTable:
			name, flags, alien, err := readTable(family, m.attrs, d.Order)
			if err != nil {
				return err
			}
			t := rs.Table(name)
			t.Declared, t.Flags = true, flags
			t.Note(alien)
		case msgNewChain:
			table, c, alien, err := readChain(family, m.attrs, d.Order)
			if err != nil {
				return err
			}
			t := rs.Table(table)
			t.Chains = append(t.Chains, c)
			t.Note(alien)
		case msgNewSet:
			return d.newSet(family, m.attrs, rs)
		case msgNewElement:
			return d.newElements(family, m.attrs)
		case msgNewRule:
			var a attrs
			if err := parseAttrs(m.attrs, d.Order, &a); err != nil {
				return err
			}
			if t := here.table; t == nil || t.Family != family ||
				!isText(a[ruleTable], t.Name) || !isText(a[ruleChain], here.chain) {
				here.table = rs.Table(syntax.TableName{Family: family, Name: a.text(ruleTable)})
				here.chain = a.text(ruleChain)
				here.rules = here.table.RuleList(here.chain)
			}
			here.rules.Sources = append(here.rules.Sources, m.attrs)
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = parallel.Each(d.filled, func() func(*dumpSet) error {
		own := newDump(d.Node)
		return func(s *dumpSet) error {
			if err := own.fill(s); err != nil {
				return fmt.Errorf("the set %s %s %s: %w", s.table.Family, s.table.Name, s.name, err)
			}
			return nil
		}
	})
	for _, s := range d.filled {
		rs.Table(s.table).Note(s.alien)
	}
	return err
}

// fill reads the elements of a set. Those of one without a name are made into expressions where the rule is.
func (d *dump) fill(s *dumpSet) error {
	s.elements = make([]dumpElement, 0, s.count)
	for _, l := range s.lists {
		if err := d.readElements(s, l); err != nil {
			return err
		}
	}
	s.lists = nil
	if s.declared == nil {
		return nil
	}
	var err error
	if s.declared.Elements, err = s.list(d, s.keys); len(s.elements) != len(s.declared.Elements) {
		s.declared.Count = len(s.elements)
	}
	s.elements = nil
	return err
}

// isText tells whether an attribute is a string, without making one.
func isText(attr []byte, s string) bool {
	return len(attr) == len(s)+1 && attr[len(s)] == 0 && string(attr[:len(s)]) == s
}

func (d *dump) newSet(family string, data []byte, rs *syntax.Ruleset) error {
	s, o, err := d.readSet(family, data)
	if err != nil {
		return err
	}
	d.here = nil
	if d.sets[s.table] == nil {
		d.sets[s.table] = map[string]*dumpSet{}
	}
	d.sets[s.table][s.name] = s
	t := rs.Table(s.table)
	t.Note(s.alien)
	if s.flags&setAnonymous != 0 {
		return nil
	}
	s.declared = o
	t.Sets = append(t.Sets, o)
	return nil
}

func (d *dump) newElements(family string, data []byte) error {
	var a attrs
	if err := parseAttrs(data, d.Order, &a); err != nil {
		return err
	}
	// The messages of a set come together.
	s := d.here
	if s == nil || s.table.Family != family || !isText(a[listTable], s.table.Name) || !isText(a[listSet], s.name) {
		if s = d.sets[syntax.TableName{Family: family, Name: a.text(listTable)}][a.text(listSet)]; s == nil {
			return fmt.Errorf("it has elements of a set %s that is not there", a.text(listSet))
		}
		d.here = s
	}
	if s.lists == nil {
		d.filled = append(d.filled, s)
	}
	for range eachAttr(a[listElements], d.Order) {
		s.count++
		d.elements++
		if d.elements > mostElements {
			return fmt.Errorf("there are more than %d elements of sets", mostElements)
		}
	}
	s.lists = append(s.lists, a[listElements])
	return nil
}

// readTable reads a table; alien is what of it is not known.
func readTable(
	family string, data []byte, order binary.ByteOrder,
) (name syntax.TableName, flags []string, alien string, err error) {
	var a attrs
	if err := parseAttrs(data, order, &a); err != nil {
		return name, nil, "", err
	}
	known := []string{"dormant", "owner", "persist"}
	for i, flag := range known {
		if a.num(tableFlags)>>i&1 == 1 {
			flags = append(flags, flag)
		}
	}
	if a.num(tableFlags)>>len(known) != 0 {
		alien = fmt.Sprintf("a table with the flags %#x", a.num(tableFlags))
	}
	if n, more := a.beyond(upTo(tableOwner)); more {
		alien = "a table " + attributeName(n, more)
	}
	return syntax.TableName{Family: family, Name: a.text(tableName)}, flags, alien, nil
}

// The names of hooks by number: those of IP and of bridges (include/uapi/linux/netfilter.h, netfilter_bridge.h), with
// inet's ingress behind them, those of devices, and those of ARP.
var (
	hookNumbers       = []string{"prerouting", "input", "forward", "output", "postrouting", "ingress"}
	deviceHookNumbers = []string{"ingress", "egress"}
	arpHookNumbers    = []string{"input", "output", "forward"} // include/uapi/linux/netfilter_arp.h
)

// hookOf names a hook.
func hookOf(family string, number uint64) (name string, ok bool) {
	names := hookNumbers
	switch family {
	case "netdev":
		names = deviceHookNumbers
	case "arp":
		names = arpHookNumbers
	case "ip", "ip6", "bridge":
		names = names[:5]
	}
	if number >= uint64(len(names)) {
		return "", false
	}
	return names[number], true
}

// devicesOf reads the devices of a hook: one, or a list of names and, since Linux 6.16, of prefixes.
func devicesOf(hook *attrs, order binary.ByteOrder) (out []string, err error) {
	if hook[hookDevices] == nil && hook[hookDevice] != nil {
		return []string{literal(hook.text(hookDevice))}, nil
	}
	out = []string{}
	for kind, value := range eachAttr(hook[hookDevices], order) {
		switch {
		case value == nil:
			return nil, errAttrs
		case kind == deviceName:
			out = append(out, literal(cString(value)))
		case kind == devicePrefix:
			out = append(out, cString(value)+"*")
		}
	}
	return out, nil
}

// literal writes the name of an interface as nft does, which takes an asterisk at its end for a pattern.
func literal(name string) string {
	if rest, ok := strings.CutSuffix(name, "*"); ok {
		return rest + `\*`
	}
	return name
}

// readChain reads a chain; alien is what of it is not known.
func readChain(
	family string, data []byte, order binary.ByteOrder,
) (table syntax.TableName, c *syntax.Chain, alien string, err error) {
	var a, hook attrs
	if err := parseAttrs(data, order, &a); err != nil {
		return table, nil, "", err
	}
	if n, more := a.beyond(upTo(chainUser)); more {
		alien = "a chain " + attributeName(n, more)
	}
	table = syntax.TableName{Family: family, Name: a.text(chainTable)}
	c = &syntax.Chain{Name: a.text(chainName)}
	if a[chainHook] == nil {
		return table, c, alien, nil
	}
	if err := parseAttrs(a[chainHook], order, &hook); err != nil {
		return table, nil, "", err
	}
	if n, more := hook.beyond(upTo(hookDevices)); more {
		alien = "a chain's hook " + attributeName(n, more)
	}
	n, hasNumber := hook.number(hookNumber)
	priority, hasPriority := hook.number(hookPriority)
	name, known := hookOf(family, n)
	if !hasNumber || !known || !hasPriority {
		return table, nil, "", fmt.Errorf("the hook of the chain %s is not known", c.Name)
	}
	if ofDevice := name == "ingress" || name == "egress"; ofDevice {
		if c.Devices, err = devicesOf(&hook, order); err != nil {
			return table, nil, "", err
		}
	}
	p := int(int32(uint32(priority))) //nolint:gosec // it is signed in the kernel
	c.Hook, c.Priority, c.Type = name, &p, a.text(chainType)
	if policy, ok := a.number(chainPolicy); ok {
		c.Policy = map[uint64]string{0: "drop", 1: "accept"}[policy]
		if c.Policy == "" {
			c.Policy = fmt.Sprint(policy)
		}
	}
	return table, c, alien, nil
}
