// SPDX-License-Identifier: Apache-2.0

package json

import (
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// maxDepth bounds how deep expressions stand in each other. nft nests one for each bit of a flag at most.
const maxDepth = 100

// expressions are all that have a type, by what JSON calls them. A reader reads the value behind the name, and returns
// nil for one that lacks something.
var expressions map[string]func(c *cursor) syntax.Expr

func init() { //nolint:gochecknoinits // expressions contain expressions: a table of functions that use the table
	expressions = map[string]func(c *cursor) syntax.Expr{
		"payload":    (*cursor).payload,
		"meta":       (*cursor).meta,
		"ct":         (*cursor).ct,
		"exthdr":     header("exthdr"),
		"tcp option": header("tcp option"),
		"ip option":  header("ip option"),
		"sctp chunk": header("sctp chunk"), "dccp option": header("dccp option"),
		"fib":      (*cursor).fib,
		"socket":   (*cursor).socket,
		"rt":       (*cursor).route,
		"numgen":   (*cursor).numgen,
		"jhash":    hash("jhash"),
		"symhash":  hash("symhash"),
		"&":        binary("&"),
		"|":        binary("|"),
		"^":        binary("^"),
		"<<":       binary("<<"),
		">>":       binary(">>"),
		"concat":   (*cursor).concat,
		"map":      (*cursor).mapExpr,
		"set":      (*cursor).anonymousSet,
		"range":    (*cursor).rangeExpr,
		"prefix":   (*cursor).prefix,
		"elem":     (*cursor).elem,
		"accept":   verdictExpr("accept"),
		"drop":     verdictExpr("drop"),
		"return":   verdictExpr("return"),
		"continue": verdictExpr("continue"),
		"jump":     verdictExpr("jump"),
		"goto":     verdictExpr("goto"),
	}
}

// expr reads an expression or a constant; nil for null.
func (c *cursor) expr() syntax.Expr {
	switch c.kind() {
	case kindString:
		return syntax.String(c.text())
	case kindNumber:
		n, _ := c.number()
		return syntax.Number(n)
	case kindTrue, kindFalse:
		return syntax.Bool(c.token() == kindTrue)
	case kindArray:
		return syntax.List(c.exprs())
	case kindObject:
		return c.objectExpr()
	}
	c.skip()
	return nil
}

// exprs reads a list of expressions; nil for what is none.
func (c *cursor) exprs() []syntax.Expr {
	out := []syntax.Expr{}
	if !c.elements(func() { out = append(out, c.expr()) }) {
		return nil
	}
	return out
}

func (c *cursor) objectExpr() syntax.Expr {
	var e syntax.Expr
	o := c.object(func(name []byte) bool {
		read := expressions[string(name)]
		if read == nil {
			c.skip()
			return false
		}
		e = read(c)
		return e != nil
	})
	if o != nil {
		return o
	}
	return e
}

// object reads an object with one member: known reads what is behind its name, and returns false where that is not
// understood. It is nil for one that was understood.
func (c *cursor) object(known func(name []byte) bool) *syntax.Opaque {
	start := c.start()
	if c.depth >= maxDepth {
		c.skip()
		return &syntax.Opaque{Text: canonical(c.since(start))}
	}
	c.depth++
	around := c.odd
	c.odd = false
	members, understood, name := 0, false, ""
	c.members(func(key []byte) {
		members++
		if members > 1 {
			c.skip()
			return
		}
		name = c.kept(key)
		understood = known(key)
	})
	c.depth--
	odd := c.odd
	c.odd = around
	if understood && members == 1 && !odd || c.err != nil {
		return nil
	}
	if members != 1 {
		name = ""
	}
	return &syntax.Opaque{Name: name, Text: canonical(c.since(start))}
}

func (c *cursor) payload() syntax.Expr {
	var p syntax.Payload
	var raw syntax.RawPayload
	c.members(func(name []byte) {
		switch string(name) {
		case "protocol":
			p.Protocol = c.word()
		case "field":
			p.Field = c.word()
		case "base":
			raw.Base = c.word()
		case "offset":
			raw.Offset, _ = c.number()
		case "len":
			raw.Len, _ = c.number()
		default:
			c.unknown()
		}
	})
	switch {
	case raw.Base != "":
		return &raw
	case p.Protocol != "" && p.Field != "":
		return &p
	}
	return nil
}

// keyed reads the key of an expression, and one more word of it.
func (c *cursor) keyed(other string) (key, more string) {
	c.members(func(name []byte) {
		switch string(name) {
		case "key":
			key = c.word()
		case other:
			more = c.word()
		default:
			c.unknown()
		}
	})
	return key, more
}

func (c *cursor) meta() syntax.Expr {
	if key, _ := c.keyed(""); key != "" {
		return &syntax.Meta{Key: key}
	}
	return nil
}

func (c *cursor) ct() syntax.Expr {
	if key, dir := c.keyed("dir"); key != "" {
		return &syntax.CT{Key: key, Dir: dir}
	}
	return nil
}

func (c *cursor) socket() syntax.Expr {
	if key, _ := c.keyed(""); key != "" {
		return &syntax.Socket{Key: key}
	}
	return nil
}

func (c *cursor) route() syntax.Expr {
	key, family := c.keyed("family")
	return &syntax.Route{Key: key, Family: family}
}

func header(kind string) func(c *cursor) syntax.Expr {
	return func(c *cursor) syntax.Expr {
		h := &syntax.Header{Kind: kind}
		c.members(func(name []byte) {
			switch string(name) {
			case "name":
				h.Name = c.word()
			case "field":
				h.Field = c.word()
			default:
				c.unknown()
			}
		})
		return h
	}
}

func (c *cursor) fib() syntax.Expr {
	f := &syntax.Fib{}
	c.members(func(name []byte) {
		switch string(name) {
		case "result":
			f.Result = c.word()
		case "flags":
			f.Flags = c.wordList()
		default:
			c.unknown()
		}
	})
	if len(f.Flags) == 0 {
		return nil
	}
	return f
}

// wordList reads one word, or a list of words; "" for what is none.
func (c *cursor) wordList() (out []string) {
	switch c.kind() {
	case kindNull:
		c.skip()
	case kindArray:
		c.elements(func() { out = append(out, c.word()) })
	default:
		out = append(out, c.word())
	}
	return out
}

func (c *cursor) numgen() syntax.Expr {
	n := &syntax.Numgen{}
	ok, has := true, false
	c.members(func(name []byte) {
		switch string(name) {
		case "mode":
			n.Mode = c.word()
		case "mod":
			n.Mod, has = c.number()
		case "offset":
			n.Offset = c.offset(&ok)
		default:
			c.unknown()
		}
	})
	if !ok || !has {
		return nil
	}
	return n
}

// offset reads a number that may be null; ok becomes false for another value.
func (c *cursor) offset(ok *bool) float64 {
	if c.kind() == kindNull {
		c.skip()
		return 0
	}
	n, isNumber := c.number()
	*ok = *ok && isNumber
	return n
}

func hash(kind string) func(c *cursor) syntax.Expr {
	return func(c *cursor) syntax.Expr {
		h := &syntax.Hash{Name: kind}
		ok, has := true, false
		c.members(func(name []byte) {
			switch string(name) {
			case "mod":
				h.Mod, has = c.number()
			case "offset":
				h.Offset = c.offset(&ok)
			case "seed":
				h.Seed, h.Seeded = c.number()
			case "expr":
				h.Expr = c.expr()
			default:
				c.unknown()
			}
		})
		if !ok || !has {
			return nil
		}
		return h
	}
}

// binary reads the operands of an operation. One alone are flags of which one is set.
func binary(op string) func(c *cursor) syntax.Expr {
	return func(c *cursor) syntax.Expr {
		operands := c.exprs()
		if len(operands) < 2 { //nolint:mnd // it has two sides
			return nil
		}
		return &syntax.Binary{Op: op, Operands: operands}
	}
}

func (c *cursor) concat() syntax.Expr {
	if list := c.exprs(); list != nil {
		return syntax.Concat(list)
	}
	return nil
}

func (c *cursor) mapExpr() syntax.Expr {
	m := c.lookup()
	if m.Key == nil {
		return nil
	}
	return &m
}

// lookup reads {"key": …, "data": …}.
func (c *cursor) lookup() (m syntax.Map) {
	c.members(func(name []byte) {
		switch string(name) {
		case "key":
			m.Key = c.expr()
		case "data":
			m.Data = c.mapData()
		default:
			c.unknown()
		}
	})
	return m
}

// mapData reads a map's name, or {"set": […]} with the elements of one that stands in the rule.
func (c *cursor) mapData() syntax.Expr {
	if c.kind() != kindObject {
		return c.expr()
	}
	var e syntax.Expr
	o := c.object(func(name []byte) bool {
		if read := expressions[string(name)]; read != nil && string(name) != "set" {
			e = read(c)
			return e != nil
		}
		if string(name) != "set" || c.kind() != kindArray {
			c.skip()
			return false
		}
		e = syntax.AnonymousSet(c.elementsOf(true))
		return true
	})
	if o != nil {
		return o
	}
	return e
}

func (c *cursor) anonymousSet() syntax.Expr {
	if c.kind() != kindArray {
		c.skip()
		return nil
	}
	return syntax.AnonymousSet(c.elementsOf(false))
}

// elementsOf reads the elements of a set, or those of a map, which are pairs.
func (c *cursor) elementsOf(pairs bool) []syntax.Element {
	out := []syntax.Element{}
	c.elements(func() {
		e := syntax.Element{Key: c.expr()}
		if list, ok := e.Key.(syntax.List); ok && pairs && len(list) == 2 {
			e = syntax.Element{Key: list[0], Value: list[1]}
		}
		out = append(out, e)
	})
	return out
}

func (c *cursor) rangeExpr() syntax.Expr {
	list := c.exprs()
	if len(list) != 2 { //nolint:mnd // from one to another
		return nil
	}
	return &syntax.Range{From: list[0], To: list[1]}
}

func (c *cursor) prefix() syntax.Expr {
	p := &syntax.Prefix{}
	ok := false
	c.members(func(name []byte) {
		switch string(name) {
		case "addr":
			p.Addr = c.expr()
		case "len":
			p.Len, ok = c.number()
		default:
			c.unknown()
		}
	})
	if !ok || p.Addr == nil {
		return nil
	}
	return p
}

func (c *cursor) elem() syntax.Expr {
	e := &syntax.Elem{}
	c.members(func(name []byte) {
		switch string(name) {
		case "val":
			e.Val = c.expr()
		case "timeout":
			e.Timeout, e.Timed = c.number()
		case "comment":
			e.Comment = c.text()
		case "expires":
			c.skip()
		default:
			known, start := c.kept(name), c.start()
			s := c.named([]byte(known))
			if s == nil {
				s = &syntax.Opaque{Name: known, Text: syntax.JSONObject(known, canonical(c.since(start)))}
			}
			e.Statements = append(e.Statements, s)
		}
	})
	if e.Val == nil {
		return nil
	}
	return e
}

// verdictExpr reads a verdict; jump and goto have a target.
func verdictExpr(kind string) func(c *cursor) syntax.Expr {
	return func(c *cursor) syntax.Expr {
		if v := c.verdict(kind); v != nil {
			return v
		}
		return nil
	}
}

func (c *cursor) verdict(kind string) *syntax.Verdict {
	v := &syntax.Verdict{Kind: kind}
	c.members(func(name []byte) {
		if string(name) != "target" {
			c.skip()
			return
		}
		v.Target = c.text()
	})
	needsTarget := kind == "jump" || kind == "goto"
	if needsTarget && v.Target == "" {
		return nil
	}
	if !needsTarget {
		v.Target = ""
	}
	return v
}

// setType reads the type of a set: names with dots between, a list of names, or {"typeof": EXPRESSION}.
func (c *cursor) setType() (t syntax.Type) {
	switch c.kind() {
	case kindString:
		t.Names = strings.Split(c.word(), " . ")
	case kindArray:
		c.elements(func() { t.Names = append(t.Names, c.word()) })
	case kindObject:
		members := 0
		c.members(func(name []byte) {
			members++
			if string(name) != "typeof" {
				c.skip()
				return
			}
			t.Of = c.expr()
		})
		if members != 1 {
			t.Of = nil
		}
	default:
		c.skip()
	}
	return t
}
