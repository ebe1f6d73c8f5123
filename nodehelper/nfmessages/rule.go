// SPDX-License-Identifier: Apache-2.0

package nfmessages

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// machine reads the expressions of one rule as the kernel runs them, and remembers what each register holds, as
// src/netlink_delinearize.c of nft does. What it makes are the statements that nft -j would print.
type machine struct {
	*dump
	family string
	sets   map[string]*dumpSet // of the table
	regs   registers
	out    []syntax.Statement
	last   *loaded // what the last comparison was of
	// The headers of the packet that the rule has made sure of: ether, vlan; ip, ip6, arp; tcp and so on. "" is not known.
	link, network, transport string
	// made are the statements, by number from 1 on, that made sure of a header; nft does not print one that a field of the
	// header stands behind. 0: none, or none that may go.
	madeNetwork, madeTransport, madeLink int
	gone                                 []int
	acted                                int // the number of the last statement that is not a match

	// What expression reads: here, so that not every expression of every rule has one of its own.
	outer, inner attrs
}

// reads is what the machine does for an expression of the kernel.
type reads func(m *machine, a *attrs) error

// rule reads a rule: the list of expressions, and the user's data.
func (d *dump) rule(family string, sets map[string]*dumpSet, a *attrs) (rule syntax.Rule, err error) {
	m := &d.machine
	*m = machine{dump: d, family: family, sets: sets, out: m.out[:0]}
	switch family {
	case "ip", "ip6", "arp":
		m.network = family
	case "bridge":
		m.link = "ether"
	}
	if n, more := a.beyond(upTo(ruleChainID)); more {
		m.unknown("a rule " + attributeName(n, more))
	}
	for kind, e := range eachAttr(a[ruleExprs], d.Order) {
		if e == nil {
			return rule, errAttrs
		}
		if kind != listElement {
			m.unknown("an expression that is none of a list")
		}
		if err := m.expression(e); err != nil {
			return rule, err
		}
	}
	m.drop()
	rule.Statements = m.out
	rule.Handle = a.num(ruleHandle)
	rule.Comment, err = comment(a[ruleUserData])
	return rule, err
}

// expression reads one expression: its name, and what belongs to it.
func (m *machine) expression(data []byte) error {
	m.outer, m.inner = attrs{}, attrs{}
	if err := parseAttrs(data, m.Order, &m.outer); err != nil {
		return err
	}
	name := bytes.TrimSuffix(m.outer[exprName], []byte{0})
	e, ok := wireExpressions[string(name)]
	if n, more := m.outer.beyond(upTo(exprData)); !ok || more {
		m.unknown(strings.TrimSpace(string(name) + " " + attributeName(n, more)))
		return nil
	}
	if err := parseAttrs(m.outer[exprData], m.Order, &m.inner); err != nil {
		return fmt.Errorf("expression %s: %w", name, err)
	}
	if n, more := m.inner.beyond(e.known); more {
		m.unknown(string(name) + " " + attributeName(n, more))
		return nil
	}
	if err := e.read(m, &m.inner); err != nil {
		return fmt.Errorf("expression %s: %w", name, err)
	}
	return nil
}

// unknown is an expression that is not known: it may be a match or a statement, and may have written to registers.
func (m *machine) unknown(name string) {
	m.addUnknown(name)
	m.regs.forget()
}

// addUnknown adds a statement that is not known.
func (m *machine) addUnknown(what string) {
	m.add(&syntax.Opaque{
		Name: "unknown", Text: syntax.JSONObject("unknown", syntax.JSONObject("statement", syntax.JSONString(what))),
	})
}

// attributeName is what an attribute that is not known is called.
func attributeName(n int, is bool) string {
	switch {
	case !is:
		return ""
	case n == 0:
		return "with an attribute that is not known"
	}
	return "with the attribute " + strconv.Itoa(n)
}

// The attributes of an expression (enum nft_expr_attributes).
const (
	exprName = 1
	exprData = 2
)

// add adds a statement that does something.
func (m *machine) add(statement syntax.Statement) {
	m.out = append(m.out, statement)
	m.acted = len(m.out)
}

// match adds a statement that asks something.
func (m *machine) match(sign string, left, right syntax.Expr) {
	m.out = append(m.out, &syntax.Match{Op: sign, Left: left, Right: right})
}

// drop removes the statements that nft does not print.
func (m *machine) drop() {
	if len(m.gone) == 0 {
		return
	}
	slices.Sort(m.gone)
	for _, at := range slices.Backward(slices.Compact(m.gone)) {
		m.out = slices.Delete(m.out, at-1, at)
	}
}

// uses notes that a field of a header stands in the rule: what made sure of the header goes without saying
// (payload_dependency_kill in src/payload.c of nft). It has to be said where something was done in between, which nft
// forgets.
func (m *machine) uses(h *headerBytes) {
	if h.protocol == "" || h.protocol == "th" {
		return
	}
	made := &m.madeTransport
	switch {
	case h.base == baseNetwork || h.protocol == "vlan":
		made = &m.madeNetwork
	case h.base == baseLink:
		made = &m.madeLink
	case impliedFamily[h.protocol] == m.network:
		m.forgets(&m.madeNetwork)
	}
	m.forgets(made)
}

// impliedFamily are the headers that only packets of one family have.
var impliedFamily = map[string]string{"icmp": "ip", "icmpv6": "ip6"}

// forgets leaves a statement out, if there is one.
func (m *machine) forgets(made *int) {
	if *made > m.acted {
		m.gone = append(m.gone, *made)
		*made = 0
	}
}

// learns takes note of what a comparison with a constant tells: statement is the number of the statement that it has
// become.
func (m *machine) learns(v *loaded, constant []byte, statement int) {
	size := v.typ().size
	if size == 0 || size > len(constant) {
		return
	}
	n := bigNumber(v.typ().inOrder(m.dump, constant[:size], v.swapped))
	switch v.context {
	case noContext:
	case isTransportProtocol:
		m.transport = transports[uint8(n)] //nolint:gosec // has one byte
		// In a table of both families a field that implies the family also matches it.
		if v.header == nil || m.family == m.network && m.family != "inet" {
			m.madeTransport = statement
		}
	case isNetworkFamily:
		m.network = familyNumbers[uint8(n)] //nolint:gosec // has one byte
		m.madeNetwork = statement
	case isNetworkProtocol:
		switch n {
		case 0x0800:
			m.network = "ip"
		case 0x86dd:
			m.network = "ip6"
		case 0x0806:
			m.network = "arp"
		case 0x8100:
			m.link = "vlan"
		}
		m.madeNetwork = statement
	case isHardware:
		if n == hardwareEther {
			m.link = "ether"
		}
		m.madeLink = statement
	}
}

// hardwareEther is ARPHRD_ETHER.
const hardwareEther = 1

// The parts of the user's data of rules, sets and elements (libnftnl: include/libnftnl/udata.h): one byte for the type,
// one for the length.
const userComment = 0

// userData returns the part of a type; nil where there is none.
func userData(data []byte, kind uint8) ([]byte, error) {
	for len(data) > 0 {
		if len(data) < 2 || int(data[1]) > len(data)-2 {
			return nil, fmt.Errorf("the user's data: %w", errAttrs)
		}
		if data[0] == kind {
			return data[2 : 2+int(data[1])], nil
		}
		data = data[2+int(data[1]):]
	}
	return nil, nil
}

func comment(data []byte) (string, error) {
	c, err := userData(data, userComment)
	return cString(c), err
}

// hostNumber reads a number in the machine's byte order, as some of the user's data are.
func (d *dump) hostNumber(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return d.Order.Uint32(b)
}
