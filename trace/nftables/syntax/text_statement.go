// SPDX-License-Identifier: Apache-2.0

package syntax

import (
	"bytes"
	"net/netip"
	"slices"
	"strconv"
)

// appendStatement writes a statement.
func appendStatement(b []byte, s Statement) []byte {
	start := len(b)
	switch s := s.(type) {
	case *Match:
		return appendMatch(b, s)
	case *Verdict:
		return appendWords(b, s.Kind, s.Target)
	case *VMap:
		return appendMap(b, "vmap", (*Map)(s), false)
	case *Reject:
		return appendReject(b, s)
	case *Queue:
		b = append(b, "queue"...)
		if s.Num != nil {
			b = appendExpr(append(b, " num "...), s.Num, false)
		}
		if len(s.Flags) > 0 {
			b = appendFlags(append(b, " flags "...), s.Flags)
		}
		return b
	case *NAT:
		return appendNAT(b, s)
	case *TProxy:
		return appendNAT(b, &NAT{Kind: "tproxy", Family: s.Family, Addr: s.Addr, Port: s.Port})
	case *Dup:
		return appendDup(b, s)
	case *Reset:
		return appendExpr(append(b, "reset "...), s.Option, false)
	case *Mangle:
		b = append(appendExpr(b, s.Key, false), " set "...)
		if m, ok := s.Value.(*Map); ok {
			return appendMap(b, "map", m, isMark(s.Key))
		}
		return appendExpr(b, s.Value, isMark(s.Key))
	case *Update:
		return appendUpdate(b, s)
	case *Limit:
		return appendLimit(b, s)
	case *Quota:
		b = appendNumber(append(appendOver(append(b, "quota"...), s.Inverted), ' '), s.Val)
		return appendWord(b, start, s.Unit)
	case *CTCount:
		return appendNumber(append(appendOver(append(b, "ct count"...), s.Inverted), ' '), s.Val)
	case *Log:
		return appendLog(b, s)
	case *Flow:
		return append(append(append(append(b, "flow "...), s.Op...), ' '), s.Flowtable...)
	case *ObjectRef:
		return appendObject(b, s)
	case *Counter:
		return append(b, "counter"...)
	case Plain:
		return append(b, s...)
	case *Opaque:
		return append(b, s.Text...)
	}
	return b
}

func appendMatch(b []byte, m *Match) []byte {
	sign := m.Op
	binary, _ := m.Left.(*Binary)
	bits := binary != nil && (binary.Op == "&" || binary.Op == "|" || binary.Op == "^")
	if binary != nil && binary.Op == "&" && len(binary.Operands) == 2 && sign == "==" {
		if _, isFlags := binary.Operands[1].(List); isFlags { // tcp flags syn / fin,syn,rst,ack
			b = append(appendExpr(b, binary.Operands[0], false), ' ')
			b = append(appendRight(b, m), " / "...)
			return appendExpr(b, binary.Operands[1], false)
		}
	}
	if sign == "==" && !bits || sign == "in" {
		sign = ""
	}
	start := len(b)
	b = appendWord(appendExpr(b, m.Left, false), start, sign)
	before := len(b)
	if before > start {
		b = append(b, ' ')
	}
	if with := appendRight(b, m); len(with) > len(b) {
		return with
	}
	return b[:before]
}

// appendRight writes what a match compares with.
func appendRight(b []byte, m *Match) []byte {
	if n, ok := m.Right.(Number); ok {
		switch left := m.Left.(type) {
		case *RawPayload:
			return appendHex(b, uint64(n), 0)
		case *CT:
			if left.Key == "expiration" {
				return append(appendNumber(b, float64(n)), 's')
			}
		}
	}
	if isName(m.Left) {
		return appendQuoted(b, m.Right)
	}
	return appendExpr(b, m.Right, isMark(m.Left))
}

func appendReject(b []byte, r *Reject) []byte {
	switch {
	case r.Code == "port-unreachable" || r.Type == "":
		return append(b, "reject"...)
	case r.Type == "tcp reset":
		return append(b, "reject with tcp reset"...)
	}
	return append(append(append(append(b, "reject with "...), r.Type...), ' '), r.Code...)
}

func appendNAT(b []byte, n *NAT) []byte {
	start := len(b)
	b = appendWord(append(b, n.Kind...), start, n.Family)
	if givesBoth(n.Addr) {
		b = append(b, " addr . port"...)
	}
	if n.Addr != nil || n.Port != nil {
		b = append(b, " to "...)
		from := len(b)
		b = appendExpr(b, n.Addr, false)
		if n.Port != nil {
			if isScalar(n.Addr) && bytes.IndexByte(b[from:], ':') >= 0 {
				b = append(slices.Insert(b, from, '['), ']')
			}
			b = appendExpr(append(b, ':'), n.Port, false)
		}
	}
	if len(n.Flags) > 0 {
		b = appendFlags(append(b, ' '), n.Flags)
	}
	return b
}

// givesBoth tells whether an address comes from a map that gives an address and a port.
func givesBoth(addr Expr) bool {
	m, _ := addr.(*Map)
	if m == nil {
		return false
	}
	set, _ := m.Data.(AnonymousSet)
	if len(set) == 0 {
		return false
	}
	_, both := set[0].Value.(Concat)
	return both
}

func isScalar(e Expr) bool {
	switch e.(type) {
	case String, Number, Addr, Bool:
		return true
	}
	return false
}

// appendDup writes a copy to another host, or by an interface.
func appendDup(b []byte, d *Dup) []byte {
	b = append(b, "dup to "...)
	text, isText := d.Addr.(String)
	if _, err := netip.ParseAddr(string(text)); isText && err != nil {
		b = appendQuoted(b, text)
	} else {
		b = appendExpr(b, d.Addr, false)
	}
	if d.Dev != nil {
		b = appendQuoted(append(b, " device "...), d.Dev)
	}
	return b
}

func appendFlags(b []byte, flags []string) []byte {
	for i, flag := range flags {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, flag...)
	}
	return b
}

func appendUpdate(b []byte, u *Update) []byte {
	b = append(append(append(append(b, u.Op...), ' '), u.Set...), " { "...)
	b = appendExpr(b, u.Elem, false)
	for _, s := range u.Statements {
		b = appendStatement(append(b, ' '), s)
	}
	if u.Data != nil {
		b = appendExpr(append(b, " : "...), u.Data, false)
	}
	return append(b, " }"...)
}

func appendOver(b []byte, inverted bool) []byte {
	if inverted {
		return append(b, " over"...)
	}
	return b
}

// defaultBurst is what nft does not print.
const defaultBurst = 5

func appendLimit(b []byte, l *Limit) []byte {
	b = append(appendOver(append(b, "limit rate"...), l.Inverted), ' ')
	b = appendNumber(b, l.Rate)
	if l.RateUnit != "" && l.RateUnit != "packets" {
		b = append(append(b, ' '), l.RateUnit...)
	}
	b = append(append(b, '/'), l.Per...)
	if l.Burst > 0 && l.Burst != defaultBurst {
		unit := l.BurstUnit
		if unit == "" {
			unit = "packets"
		}
		b = append(appendNumber(append(b, " burst "...), l.Burst), ' ')
		b = append(b, unit...)
	}
	return b
}

func appendLog(b []byte, l *Log) []byte {
	b = append(b, "log"...)
	if l.Prefix != "" {
		b = strconv.AppendQuote(append(b, " prefix "...), l.Prefix)
	}
	if l.Grouped {
		b = appendNumber(append(b, " group "...), l.Group)
	}
	if l.Level != "" {
		b = append(append(b, " level "...), l.Level...)
	}
	return b
}

// appendObject writes the use of an object: ct helper set "x", and the like.
func appendObject(b []byte, o *ObjectRef) []byte {
	switch o.Kind {
	case "counter", "quota", "limit":
		b = append(append(b, o.Kind...), " name "...)
	case "ct count":
		if o.Map != nil {
			return append(b, JSONObject(o.Kind, JSON(o.Map))...)
		}
		return append(b, JSONObject(o.Kind, JSONString(o.Name))...)
	default:
		b = append(append(b, o.Kind...), " set "...)
	}
	if o.Map != nil {
		return appendMap(b, "map", quoted(o.Map), false)
	}
	return strconv.AppendQuote(b, o.Name)
}

// quoted is a map of objects with their names in quotes.
func quoted(m *Map) *Map {
	set, ok := m.Data.(AnonymousSet)
	if !ok {
		return m
	}
	set = slices.Clone(set)
	for i := range set {
		if name, ok := set[i].Value.(String); ok {
			set[i].Value = String(strconv.Quote(string(name)))
		}
	}
	return &Map{Key: m.Key, Data: set}
}
