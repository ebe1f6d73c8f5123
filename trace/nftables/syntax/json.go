// SPDX-License-Identifier: Apache-2.0

package syntax

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// JSON writes an expression as nft -j prints it, with the members of objects sorted. It is the text of what nft list
// ruleset has no words for.
func JSON(e Expr) string { return string(appendJSON(nil, e)) }

// JSONObject writes an object with one member, whose value is JSON text.
func JSONObject(name, value string) string {
	return string(append(append(appendKey([]byte{'{'}, name), value...), '}'))
}

// JSONString writes a string as JSON text.
func JSONString(s string) string { return string(appendJSONString(nil, s)) }

// appendJSONString writes a string as encoding/json does.
func appendJSONString(b []byte, s string) []byte {
	if isPlain(s) {
		return append(append(append(b, '"'), s...), '"')
	}
	v, err := jsontext.AppendQuote(nil, s)
	text := jsontext.Value(v)
	if err == nil {
		err = text.Format(jsontext.EscapeForHTML(true), jsontext.EscapeForJS(true))
	}
	if err != nil { // bytes that are no UTF-8: v has replacement characters for them
		text = v
	}
	return append(b, text...)
}

// isPlain tells whether nothing of a string has to be escaped.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

func appendKey(b []byte, name string) []byte { return append(appendJSONString(b, name), ':') }

// member is a member of an object; one whose value is nil is not there.
type member struct {
	name  string
	value Expr
}

// appendMembers writes {"kind":{"name":value,…}}.
func appendMembers(b []byte, kind string, members ...member) []byte {
	b = append(appendKey(append(b, '{'), kind), '{')
	first := true
	for _, m := range members {
		if m.value == nil {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		b, first = appendJSON(appendKey(b, m.name), m.value), false
	}
	return append(b, "}}"...)
}

// appendArray writes {"kind":[value,…]}.
func appendArray(b []byte, kind string, list ...Expr) []byte {
	return append(appendList(appendKey(append(b, '{'), kind), list), '}')
}

func appendList(b []byte, list []Expr) []byte {
	if list == nil {
		return append(b, "null"...)
	}
	b = append(b, '[')
	for i, e := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSON(b, e)
	}
	return append(b, ']')
}

// given is a value that an empty string stands for the absence of.
func given(s string) Expr {
	if s == "" {
		return nil
	}
	return String(s)
}

// givenIf is a number that may not be there.
func givenIf(is bool, n float64) Expr {
	if !is {
		return nil
	}
	return Number(n)
}

// appendJSON writes an expression; null for nil.
func appendJSON(b []byte, e Expr) []byte {
	switch e := e.(type) {
	case String:
		return appendJSONString(b, string(e))
	case Number:
		return appendJSONNumber(b, float64(e))
	case Addr:
		return appendJSONString(b, e.String())
	case Bool:
		return strconv.AppendBool(b, bool(e))
	case List:
		return appendList(b, e)
	case *Range:
		return appendArray(b, "range", e.From, e.To)
	case *Prefix:
		return appendMembers(b, "prefix", member{"addr", e.Addr}, member{"len", Number(e.Len)})
	case *Payload:
		return appendMembers(b, "payload", member{"field", String(e.Field)}, member{"protocol", String(e.Protocol)})
	case *RawPayload:
		return appendMembers(b, "payload", member{"base", String(e.Base)}, member{"len", Number(e.Len)},
			member{"offset", Number(e.Offset)})
	case *Meta:
		return appendMembers(b, "meta", member{"key", String(e.Key)})
	case *CT:
		return appendMembers(b, "ct", member{"dir", given(e.Dir)}, member{"key", String(e.Key)})
	case *Header:
		return appendMembers(b, e.Kind, member{"field", given(e.Field)}, member{"name", String(e.Name)})
	case *Fib:
		flags, _ := words(e.Flags).(List)
		return appendMembers(b, "fib", member{"flags", flags}, member{"result", String(e.Result)})
	case *Socket:
		return appendMembers(b, "socket", member{"key", String(e.Key)})
	case *Route:
		return appendMembers(b, "rt", member{"family", given(e.Family)}, member{"key", String(e.Key)})
	case *Numgen:
		return appendMembers(b, "numgen", member{"mod", Number(e.Mod)}, member{"mode", String(e.Mode)},
			member{"offset", Number(e.Offset)})
	case *Hash:
		return appendMembers(b, e.Name, member{"expr", e.Expr}, member{"mod", Number(e.Mod)},
			member{"offset", givenIf(e.Offset != 0, e.Offset)}, member{"seed", givenIf(e.Seeded, e.Seed)})
	case *Binary:
		return appendArray(b, e.Op, e.Operands...)
	case Concat:
		return appendArray(b, "concat", e...)
	case *Map:
		return appendMembers(b, "map", member{"data", e.Data}, member{"key", e.Key})
	case AnonymousSet:
		list := make([]Expr, len(e))
		for i := range e {
			if list[i] = e[i].Key; e[i].Value != nil {
				list[i] = List{e[i].Key, e[i].Value}
			}
		}
		return appendArray(b, "set", list...)
	case *Elem:
		b = appendMembers(b, "elem", member{"comment", given(e.Comment)},
			member{"timeout", givenIf(e.Timed, e.Timeout)}, member{"val", e.Val})
		for _, s := range e.Statements { // each is another member
			text := appendJSONStatement(nil, s)
			b = append(append(append(b[:len(b)-2], ','), text[1:len(text)-1]...), "}}"...)
		}
		return b
	case *Verdict:
		if e.Target == "" {
			return append(b, JSONObject(e.Kind, "null")...)
		}
		return appendMembers(b, e.Kind, member{"target", String(e.Target)})
	case *Opaque:
		return append(b, e.Text...)
	}
	return append(b, "null"...)
}
