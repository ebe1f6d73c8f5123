// SPDX-License-Identifier: Apache-2.0

package syntax

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Text writes the rule as nft list ruleset prints it, without the numbers of its counters. What nft has no words for it
// writes as JSON.
func (r *Rule) Text() string { return string(r.AppendText(nil)) }

// AppendText is [Rule.Text] that appends to a buffer.
func (r *Rule) AppendText(b []byte) []byte {
	for i, s := range r.Statements {
		if i > 0 {
			b = append(b, ' ')
		}
		b = appendStatement(b, s)
	}
	if r.Comment != "" {
		if len(r.Statements) > 0 {
			b = append(b, ' ')
		}
		b = append(b, "comment "...)
		b = strconv.AppendQuote(b, r.Comment)
	}
	return b
}

// StatementText writes a statement as [Rule.Text] does.
func StatementText(s Statement) string { return string(appendStatement(nil, s)) }

// ExprText writes an expression or a constant as [Rule.Text] does.
func ExprText(e Expr) string { return string(appendExpr(nil, e, false)) }

// ElementText writes an element of a set or a map.
func ElementText(e *Element) string { return string(appendElement(nil, e)) }

// appendElement writes what stands in a set; of a map, as no more than a list.
func appendElement(b []byte, e *Element) []byte {
	b = appendExpr(b, e.Key, false)
	if e.Value != nil {
		b = append(b, ',')
		b = appendExpr(b, e.Value, false)
	}
	return b
}

// appendExpr writes an expression or a constant, numbers in hex like those of marks where hex is set. Of nil it writes
// nothing.
func appendExpr(b []byte, e Expr, hex bool) []byte {
	switch e := e.(type) {
	case String:
		return append(b, e...)
	case Number:
		if hex {
			return appendHex(b, uint64(e), 8) //nolint:mnd // digits of a mark
		}
		return appendNumber(b, float64(e))
	case Addr:
		return e.AppendTo(b)
	case Bool:
		if e {
			return append(b, "exists"...)
		}
		return append(b, "missing"...)
	case List:
		return appendExprs(b, e, ",", false)
	case *Range:
		b = append(appendExpr(b, e.From, hex), '-')
		return appendExpr(b, e.To, hex)
	case *Prefix:
		return appendNumber(append(appendExpr(b, e.Addr, false), '/'), e.Len)
	case *Payload:
		return append(append(append(b, e.Protocol...), ' '), e.Field...)
	case *RawPayload:
		b = append(append(append(b, '@'), e.Base...), ',')
		b = append(appendNumber(b, e.Offset), ',')
		return appendNumber(b, e.Len)
	case *Meta:
		if !slices.Contains(unqualified, e.Key) {
			b = append(b, "meta "...)
		}
		return append(b, e.Key...)
	case *CT:
		return appendWords(b, "ct", e.Dir, e.Key)
	case *Header:
		if e.Kind != "exthdr" && e.Kind != "tcp option" {
			return appendJSON(b, e)
		}
		return appendWords(b, e.Kind, e.Name, e.Field)
	case *Fib:
		if len(e.Flags) == 0 {
			return appendJSON(b, e)
		}
		b = append(b, "fib "...)
		for i, flag := range e.Flags {
			if i > 0 {
				b = append(b, " . "...)
			}
			b = append(b, flag...)
		}
		return append(append(b, ' '), e.Result...)
	case *Socket:
		return appendWords(b, "socket", e.Key)
	case *Route:
		return appendWords(b, "rt", e.Family, e.Key)
	case *Verdict:
		return appendWords(b, e.Kind, e.Target)
	case *Opaque:
		return append(b, e.Text...)
	}
	return appendCalculated(b, e, hex)
}

// appendCalculated writes the expressions that hold others.
func appendCalculated(b []byte, e Expr, hex bool) []byte {
	switch e := e.(type) {
	case *Numgen:
		b = append(append(b, "numgen "...), e.Mode...)
		return appendOffset(appendNumber(append(b, " mod "...), e.Mod), e.Offset)
	case *Hash:
		b = appendSpaced(append(b, e.Name...), 0, e.Expr)
		b = appendNumber(append(b, " mod "...), e.Mod)
		if e.Seeded {
			b = append(b, " seed "...)
			b = appendHex(b, uint64(e.Seed), 0)
		}
		return appendOffset(b, e.Offset)
	case *Binary:
		hex = len(e.Operands) > 0 && e.Op != "<<" && e.Op != ">>" && isMark(e.Operands[0])
		return appendExprs(b, e.Operands, " "+e.Op+" ", hex)
	case Concat:
		return appendExprs(b, e, " . ", false)
	case *Map:
		return appendMap(b, "map", e, false)
	case AnonymousSet:
		b = append(b, "{ "...)
		for i := range e {
			if i > 0 {
				b = append(b, ", "...)
			}
			if e[i].Value == nil {
				b = appendExpr(b, e[i].Key, hex)
				continue
			}
			b = appendElement(b, &e[i])
		}
		return append(b, " }"...)
	case *Elem:
		b = appendExpr(b, e.Val, false)
		for _, s := range e.Statements {
			b = appendStatement(append(b, ' '), s)
		}
		if e.Timed {
			b = append(appendNumber(append(b, " timeout "...), e.Timeout), 's')
		}
		if e.Comment != "" {
			b = strconv.AppendQuote(append(b, " comment "...), e.Comment)
		}
	}
	return b
}

func appendExprs(b []byte, list []Expr, between string, hex bool) []byte {
	for i, x := range list {
		if i > 0 {
			b = append(b, between...)
		}
		b = appendExpr(b, x, hex)
	}
	return b
}

// maxExact is above the whole numbers that a float64 has without gaps.
const maxExact = 1 << 53

func appendNumber(b []byte, v float64) []byte {
	if n := int64(v); float64(n) == v && math.Abs(v) < maxExact {
		return strconv.AppendInt(b, n, 10)
	}
	return strconv.AppendFloat(b, v, 'f', -1, 64)
}

// appendHex writes 0x and at least so many digits.
func appendHex(b []byte, n uint64, digits int) []byte {
	s := strconv.FormatUint(n, 16)
	b = append(b, "0x"...)
	for range digits - len(s) {
		b = append(b, '0')
	}
	return append(b, s...)
}

func appendOffset(b []byte, n float64) []byte {
	if n == 0 {
		return b
	}
	return appendNumber(append(b, " offset "...), n)
}

// appendWords writes words with spaces between, and leaves empty ones out.
func appendWords(b []byte, words ...string) []byte {
	start := len(b)
	for _, w := range words {
		b = appendWord(b, start, w)
	}
	return b
}

// appendWord writes one more word, behind those from start on.
func appendWord(b []byte, start int, w string) []byte {
	if w == "" {
		return b
	}
	if len(b) > start {
		b = append(b, ' ')
	}
	return append(b, w...)
}

// appendSpaced is appendWord of an expression.
func appendSpaced(b []byte, start int, e Expr) []byte {
	before := len(b)
	if before > start {
		b = append(b, ' ')
	}
	if with := appendExpr(b, e, false); len(with) > len(b) {
		return with
	}
	return b[:before]
}

// isMark tells whether an expression is a mark, of which nft prints numbers in hex.
func isMark(e Expr) bool {
	switch e := e.(type) {
	case *Meta:
		return e.Key == "mark"
	case *CT:
		return e.Key == "mark"
	case *Binary:
		return len(e.Operands) > 0 && e.Op != "<<" && e.Op != ">>" && isMark(e.Operands[0])
	}
	return false
}

// unqualified are the keys of meta that nft prints without that word.
var unqualified = []string{"iif", "oif", "iifname", "oifname"}

// quotedKeys are the keys of meta and ct of which nft quotes the values.
var quotedKeys = []string{"iif", "oif", "iifname", "oifname", "ibrname", "obrname", "helper", "time", "hour", "day"}

// isName tells whether nft quotes the values of an expression.
func isName(e Expr) bool {
	switch e := e.(type) {
	case *Meta:
		return slices.Contains(quotedKeys, e.Key)
	case *CT:
		return slices.Contains(quotedKeys, e.Key)
	case *Fib:
		return e.Result == "oifname"
	}
	return false
}

// appendQuoted writes the value of an expression that isName.
func appendQuoted(b []byte, e Expr) []byte {
	switch e := e.(type) {
	case String:
		if strings.HasPrefix(string(e), "@") {
			return append(b, e...)
		}
		return strconv.AppendQuote(b, string(e))
	case AnonymousSet:
		b = append(b, "{ "...)
		for i := range e {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = appendQuoted(b, e[i].Key)
		}
		return append(b, " }"...)
	}
	return appendExpr(b, e, false)
}

// appendMap writes a look-up in a map; hex is for what the map gives.
func appendMap(b []byte, word string, m *Map, hex bool) []byte {
	b = append(appendExpr(b, m.Key, false), ' ')
	b = append(append(b, word...), ' ')
	set, ok := m.Data.(AnonymousSet)
	if !ok {
		return appendExpr(b, m.Data, false)
	}
	marks := isMark(m.Key)
	b = append(b, "{ "...)
	for i := range set {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(appendExpr(b, set[i].Key, marks), " : "...)
		b = appendExpr(b, set[i].Value, hex)
	}
	return append(b, " }"...)
}
