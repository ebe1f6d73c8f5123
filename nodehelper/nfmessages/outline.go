// SPDX-License-Identifier: Apache-2.0

package nfmessages

import (
	"encoding/binary"

	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// OutlineTable is a table whose rules and elements a dump has to have.
type OutlineTable struct {
	syntax.TableName

	Number uint8 // that of the family in messages
	// Handle is the kernel's number of the table, and no other one's ever; 0: it does not tell.
	Handle uint64
	Sets   []OutlineSet
	Chains []string
}

// OutlineSet is a set or a map, also one without a name of its own ("__map12").
type OutlineSet struct {
	Name string
	// Counted is how many elements it has if their keys are 0, 1, 2, …, each a number of 32 bits in the machine's byte
	// order: such is a map that a random or counted choice is looked up in. 0: they are others, or it cannot be told.
	// Whoever finds the elements of all of these keys has the whole set: it has room for no more, and does not change.
	Counted int
	// Handle is the kernel's number of a counted set in its table, and no other one's ever ([OutlineTable.Handle]); 0:
	// its elements may come to read differently, as they name chains, or the kernel does not tell.
	Handle uint64
}

// typeNumber is the type of numbers without one of their own, as those that are drawn (enum datatypes in
// include/datatype.h of nft).
const typeNumber = 4

// typeVerdict is the type of data that are verdicts (NFT_DATA_VERDICT).
const typeVerdict = 0xffffff00

// outlineSet reads what is to be requested of a set.
func outlineSet(a *attrs, order binary.ByteOrder) OutlineSet {
	const whole = setAnonymous | setConstant
	const numberBytes = 4
	s := OutlineSet{Name: a.text(setName)}
	if a.num(setFlags)&(whole|setInterval) != whole || a.num(setKeyType) != typeNumber ||
		a.num(setKeyLen) != numberBytes {
		return s
	}
	var desc attrs
	if parseAttrs(a[setDesc], order, &desc) == nil {
		s.Counted = int(desc.num(descSize)) //nolint:gosec // 32 bits
	}
	if a.num(setDataType) != typeVerdict {
		s.Handle = a.num(setHandle)
	}
	return s
}

// Outline reads the answers to requests for all tables, chains and sets. ask are the tables whose rules and elements
// belong into the dump, left those whose do not: managed tells of them that iptables-save shows them, and they have no
// base chain that it does not show (see [syntax.Chain.IsIPTables]), and no set, with which rules come that it prints as
// others. Without a set such rules come, too: see [Apart]. Tables of families that are not read are in neither.
func Outline(
	answers []byte, order binary.ByteOrder, managed func(family, table string) bool,
) (ask, left []OutlineTable, err error) {
	foreign := map[syntax.TableName]bool{}
	at := map[syntax.TableName]int{}
	var all []OutlineTable
	err = messages(answers, order, func(m message) error {
		family := familyNumbers[m.family]
		if !syntax.IsRead(family) {
			return nil
		}
		switch m.kind {
		case msgNewTable:
			name, _, _, err := readTable(family, m.attrs, order)
			if err != nil {
				return err
			}
			at[name] = len(all)
			var a attrs
			if err := parseAttrs(m.attrs, order, &a); err != nil {
				return err
			}
			all = append(all, OutlineTable{TableName: name, Number: m.family, Handle: a.num(tableHandle)})
		case msgNewChain:
			table, c, _, err := readChain(family, m.attrs, order)
			if err != nil {
				return err
			}
			if c.Hook != "" && !c.IsIPTables(table.Name) {
				foreign[table] = true
			}
			if i, ok := at[table]; ok {
				all[i].Chains = append(all[i].Chains, c.Name)
			}
		case msgNewSet:
			var a attrs
			if err := parseAttrs(m.attrs, order, &a); err != nil {
				return err
			}
			table := syntax.TableName{Family: family, Name: a.text(setTable)}
			i, ok := at[table]
			if !ok {
				return nil
			}
			foreign[table] = true
			all[i].Sets = append(all[i].Sets, outlineSet(&a, order))
		}
		return nil
	})
	for _, t := range all {
		if managed != nil && managed(t.Family, t.Name) && !foreign[t.TableName] {
			left = append(left, t)
			continue
		}
		ask = append(ask, t)
	}
	return ask, left, err
}

// Apart calls f with the table of each rule that compares something by its order, or with a range, that is no field of
// a transport header: iptables compares ports so, and nothing else, and prints one end of another range as all of it
// (iptables 1.8.9 prints ip saddr 10.0.0.1-10.0.0.5 as -s 10.0.0.5/32). The rules are the kernel's answers to requests
// for them.
func Apart(rules []byte, order binary.ByteOrder, f func(family, table string)) error {
	const equal, unequal = 0, 1 // enum nft_cmp_ops
	const sign, base = 2, 2     // NFTA_CMP_OP, NFTA_PAYLOAD_BASE
	ports := false
	return expressions(rules, order, func(m message, rule, outer *attrs) error {
		name := outer.text(exprName)
		var inner attrs
		switch name {
		case "cmp", "payload":
			if err := parseAttrs(outer[exprData], order, &inner); err != nil {
				return err
			}
		}
		switch {
		case name == "payload":
			ports = inner.num(base) == baseTransport
		case name == "range", name == "cmp" && inner.num(sign) != equal && inner.num(sign) != unequal:
			if !ports {
				f(familyNumbers[m.family], rule.text(ruleTable))
			}
		case name == "meta", name == "ct", name == "exthdr", name == "rt", name == "fib", name == "socket":
			ports = false
		}
		return nil
	})
}

// expressions calls f with each expression of rules.
func expressions(rules []byte, order binary.ByteOrder, f func(m message, rule, outer *attrs) error) error {
	return messages(rules, order, func(m message) error {
		if m.kind != msgNewRule {
			return nil
		}
		var a attrs
		if err := parseAttrs(m.attrs, order, &a); err != nil {
			return err
		}
		for _, e := range eachAttr(a[ruleExprs], order) {
			var outer attrs
			if e == nil {
				return errAttrs
			}
			if err := parseAttrs(e, order, &outer); err != nil {
				return err
			}
			if err := f(m, &a, &outer); err != nil {
				return err
			}
		}
		return nil
	})
}
