// SPDX-License-Identifier: Apache-2.0

package json

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// statements are all that have a type, by what JSON calls them. A reader reads the value behind the name, and returns
// nil for one that lacks something.
var statements map[string]func(c *cursor) syntax.Statement

func init() { //nolint:gochecknoinits // statements contain statements: a table of functions that use the table
	statements = map[string]func(c *cursor) syntax.Statement{
		"match":      (*cursor).match,
		"accept":     verdictStatement("accept"),
		"drop":       verdictStatement("drop"),
		"return":     verdictStatement("return"),
		"continue":   verdictStatement("continue"),
		"jump":       verdictStatement("jump"),
		"goto":       verdictStatement("goto"),
		"vmap":       (*cursor).vmap,
		"reject":     (*cursor).reject,
		"queue":      (*cursor).queue,
		"dnat":       nat("dnat"),
		"snat":       nat("snat"),
		"masquerade": nat("masquerade"),
		"redirect":   nat("redirect"),
		"tproxy":     (*cursor).tproxy,
		"mangle":     (*cursor).mangle,
		"set":        update("set"),
		"map":        update("map"),
		"counter":    object("counter", (*cursor).counter),
		"limit":      object("limit", (*cursor).limit),
		"quota":      object("quota", (*cursor).quota),
		"ct count":   object("ct count", (*cursor).ctCount),
		"log":        (*cursor).log,
		"dup":        (*cursor).dup,
		"reset":      (*cursor).resetOption,

		"ct helper":      object("ct helper", byMap("ct helper")),
		"ct timeout":     object("ct timeout", byMap("ct timeout")),
		"ct expectation": object("ct expectation", byMap("ct expectation")),
		"secmark":        object("secmark", byMap("secmark")),
		"tunnel":         object("tunnel", byMap("tunnel")),
		"synproxy":       object("synproxy", byMap("synproxy")),
		"flow":           (*cursor).flow,
	}
}

// statement reads a statement: an object with one member, or a word alone.
func (c *cursor) statement() syntax.Statement {
	switch c.kind() {
	case kindObject:
	case kindString:
		name := c.text()
		return &syntax.Opaque{Name: name, Text: syntax.JSONString(name)}
	default:
		start := c.start()
		c.skip()
		return &syntax.Opaque{Text: canonical(c.since(start))}
	}
	var s syntax.Statement
	o := c.object(func(name []byte) bool {
		s = c.named(name)
		return s != nil
	})
	if o != nil {
		return o
	}
	return s
}

// named reads what is behind the name of a statement; nil for what is not understood.
func (c *cursor) named(name []byte) syntax.Statement {
	if read := statements[string(name)]; read != nil {
		return read(c)
	}
	known := c.kept(name)
	switch c.kind() {
	case kindNull:
		c.skip()
		return syntax.Plain(known)
	case kindString:
		return &syntax.ObjectRef{Kind: known, Name: c.text()}
	}
	c.skip()
	return nil
}

// statementsOf reads a list of statements.
func (c *cursor) statementsOf() (out []syntax.Statement) {
	c.elements(func() { out = append(out, c.statement()) })
	return out
}

func (c *cursor) match() syntax.Statement {
	m := &syntax.Match{}
	c.members(func(name []byte) {
		switch string(name) {
		case "op":
			m.Op = c.word()
		case "left":
			m.Left = c.expr()
		case "right":
			m.Right = c.expr()
		default:
			c.unknown()
		}
	})
	if m.Left == nil || m.Right == nil {
		return nil
	}
	return m
}

func verdictStatement(kind string) func(c *cursor) syntax.Statement {
	return func(c *cursor) syntax.Statement {
		if v := c.verdict(kind); v != nil {
			return v
		}
		return nil
	}
}

func (c *cursor) vmap() syntax.Statement {
	m := c.lookup()
	if m.Key == nil {
		return nil
	}
	return (*syntax.VMap)(&m)
}

func (c *cursor) reject() syntax.Statement {
	r := &syntax.Reject{}
	c.members(func(name []byte) {
		switch string(name) {
		case "type":
			r.Type = c.word()
		case "expr":
			r.Code = c.word()
		default:
			c.unknown()
		}
	})
	return r
}

func (c *cursor) queue() syntax.Statement {
	q := &syntax.Queue{}
	c.members(func(name []byte) {
		switch string(name) {
		case "num":
			q.Num = c.expr()
		case "flags":
			q.Flags = c.wordList()
		default:
			c.unknown()
		}
	})
	return q
}

func nat(kind string) func(c *cursor) syntax.Statement {
	return func(c *cursor) syntax.Statement {
		n := &syntax.NAT{Kind: kind}
		ok := true
		c.members(func(name []byte) {
			switch string(name) {
			case "family":
				n.Family = c.word()
			case "addr":
				n.Addr = c.given(&ok)
			case "port":
				n.Port = c.given(&ok)
			case "flags":
				n.Flags = c.wordList()
			case "type_flags":
				n.TypeFlags = c.wordList()
			default:
				c.unknown()
			}
		})
		if !ok {
			return nil
		}
		return n
	}
}

// given reads an expression; ok becomes false for null.
func (c *cursor) given(ok *bool) syntax.Expr {
	e := c.expr()
	*ok = *ok && e != nil
	return e
}

func (c *cursor) tproxy() syntax.Statement {
	t := &syntax.TProxy{}
	ok := true
	c.members(func(name []byte) {
		switch string(name) {
		case "family":
			t.Family = c.word()
		case "addr":
			t.Addr = c.given(&ok)
		case "port":
			t.Port = c.given(&ok)
		default:
			c.unknown()
		}
	})
	if !ok {
		return nil
	}
	return t
}

func (c *cursor) mangle() syntax.Statement {
	m := &syntax.Mangle{}
	c.members(func(name []byte) {
		switch string(name) {
		case "key":
			m.Key = c.expr()
		case "value":
			m.Value = c.expr()
		default:
			c.unknown()
		}
	})
	if m.Key == nil || m.Value == nil {
		return nil
	}
	return m
}

// update reads {"op": …, "elem": …, "set": "@NAME"}; of a map also "data", and "map" in place of "set".
func update(kind string) func(c *cursor) syntax.Statement {
	return func(c *cursor) syntax.Statement {
		u := &syntax.Update{Kind: kind}
		c.members(func(name []byte) {
			switch string(name) {
			case "op":
				u.Op = c.word()
			case kind:
				u.Set = c.text()
			case "elem":
				u.Elem = c.expr()
			case "data":
				u.Data = c.expr()
			case "stmt":
				c.elements(func() { u.Statements = append(u.Statements, c.statement()) })
			default:
				c.unknown()
			}
		})
		if u.Set == "" {
			return nil
		}
		return u
	}
}

// object reads a statement that may name an object of its kind instead.
func object(kind string, read func(c *cursor) syntax.Statement) func(c *cursor) syntax.Statement {
	return func(c *cursor) syntax.Statement {
		if c.kind() == kindString {
			return &syntax.ObjectRef{Kind: kind, Name: c.text()}
		}
		c.by = nil
		s := read(c)
		if by := c.by; by != nil {
			c.by = nil
			return &syntax.ObjectRef{Kind: kind, Map: by}
		}
		return s
	}
}

// objectOf reads "map", a member of limit and the like: a map has the object for the packet.
func (c *cursor) objectOf(name []byte) {
	if string(name) != "map" {
		c.unknown()
		return
	}
	if m := c.lookup(); m.Key != nil {
		c.by = &m
	}
}

// byMap reads the use of an object that a map has for the packet: {"map": …}.
func byMap(kind string) func(c *cursor) syntax.Statement {
	return func(c *cursor) syntax.Statement {
		if c.kind() != kindObject {
			c.skip()
			return nil
		}
		if m, ok := c.expr().(*syntax.Map); ok {
			return &syntax.ObjectRef{Kind: kind, Map: m}
		}
		return nil
	}
}

// counter is one of the rule's own, or one that a map has for the packet.
func (c *cursor) counter() syntax.Statement {
	if c.kind() != kindObject {
		c.skip()
		return syntax.Plain("counter")
	}
	c.members(func(name []byte) {
		switch string(name) {
		case "packets", "bytes":
			c.skip()
		default:
			c.objectOf(name)
		}
	})
	return syntax.Plain("counter")
}

// dup reads {"addr": …, "dev": …}.
func (c *cursor) dup() syntax.Statement {
	d := &syntax.Dup{}
	ok := true
	c.members(func(name []byte) {
		switch string(name) {
		case "addr":
			d.Addr = c.given(&ok)
		case "dev":
			d.Dev = c.given(&ok)
		default:
			c.unknown()
		}
	})
	if !ok || d.Addr == nil {
		return nil
	}
	return d
}

// resetOption reads the TCP option that is taken out.
func (c *cursor) resetOption() syntax.Statement {
	if e := c.expr(); e != nil {
		return &syntax.Reset{Option: e}
	}
	return nil
}

func (c *cursor) limit() syntax.Statement {
	l := &syntax.Limit{}
	ok := false
	c.members(func(name []byte) {
		switch string(name) {
		case "rate":
			l.Rate, ok = c.number()
		case "burst":
			l.Burst, _ = c.number()
		case "rate_unit":
			l.RateUnit = c.word()
		case "burst_unit":
			l.BurstUnit = c.word()
		case "per":
			l.Per = c.word()
		case "inv":
			l.Inverted = c.truth()
		default:
			c.objectOf(name)
		}
	})
	if !ok {
		return nil
	}
	return l
}

// truth reads true; false for another value.
func (c *cursor) truth() bool {
	if c.kind() == kindTrue {
		return c.token() == kindTrue
	}
	c.skip()
	return false
}

func (c *cursor) quota() syntax.Statement {
	q := &syntax.Quota{}
	ok := false
	c.members(func(name []byte) {
		switch string(name) {
		case "val":
			q.Val, ok = c.number()
		case "val_unit":
			q.Unit = c.word()
		case "inv":
			q.Inverted = c.truth()
		case "used", "used_unit":
			c.skip()
		default:
			c.objectOf(name)
		}
	})
	if !ok {
		return nil
	}
	return q
}

func (c *cursor) ctCount() syntax.Statement {
	n := &syntax.CTCount{}
	ok := false
	c.members(func(name []byte) {
		switch string(name) {
		case "val":
			n.Val, ok = c.number()
		case "inv":
			n.Inverted = c.truth()
		default:
			c.objectOf(name)
		}
	})
	if !ok {
		return nil
	}
	return n
}

func (c *cursor) log() syntax.Statement {
	l := &syntax.Log{}
	c.members(func(name []byte) {
		switch string(name) {
		case "prefix":
			l.Prefix = c.text()
		case "group":
			l.Group, l.Grouped = c.number()
		case "level":
			l.Level = c.word()
		case "snaplen", "queue-threshold", "flags":
			c.skip()
		default:
			c.unknown()
		}
	})
	return l
}

func (c *cursor) flow() syntax.Statement {
	f := &syntax.Flow{}
	c.members(func(name []byte) {
		switch string(name) {
		case "op":
			f.Op = c.word()
		case "flowtable":
			f.Flowtable = c.word()
		default:
			c.unknown()
		}
	})
	return f
}
