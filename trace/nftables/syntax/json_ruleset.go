// SPDX-License-Identifier: Apache-2.0

package syntax

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/svcproxy/kubectl-svcproxy/internal/parallel"
)

// JSON writes the ruleset as nft -j list ruleset does, with one object a line. What nft has no word for is in a member
// "svcproxy" (docs/snapshots.md).
func (r *Ruleset) JSON() ([]byte, error) {
	b := []byte(`{"nftables":[{"metainfo":{"json_schema_version":1`)
	if r.Complete {
		b = append(b, `,"svcproxy":{"complete":1}`...)
	}
	b = append(b, "}}"...)
	var chains []*chainJSON
	for _, t := range r.Tables {
		if t.Declared {
			b = t.appendTable(b)
		}
		for _, s := range t.Sets {
			b = t.appendSet(b, s)
		}
		for _, c := range t.Chains {
			b = t.appendChain(b, c)
			chains = append(chains, &chainJSON{table: t, name: c.Name})
		}
	}
	err := parallel.Each(chains, func() func(*chainJSON) error {
		read := r.NewRuleReader()
		return func(c *chainJSON) error { return c.write(read) }
	})
	if err != nil {
		return nil, err
	}
	size := len(b)
	for _, c := range chains {
		size += len(c.text)
	}
	b = append(make([]byte, 0, size+len(jsonEnd)), b...)
	for _, c := range chains {
		b = append(b, c.text...)
	}
	return append(b, jsonEnd...), nil
}

const jsonEnd = "]}\n"

// chainJSON are the rules of a chain, and their text.
type chainJSON struct {
	table *Table
	name  string
	text  []byte
}

func (c *chainJSON) write(read RuleReader) error {
	for _, s := range c.table.Rules(c.name) {
		rule, err := read(c.table, s)
		if err != nil {
			return fmt.Errorf("a rule of the chain %s %s %s: %w", c.table.Family, c.table.Name, c.name, err)
		}
		b := appendText(c.table.begin(c.text, "rule"), "chain", c.name)
		if rule.Handle != 0 {
			b = strconv.AppendUint(append(b, `,"handle":`...), rule.Handle, 10)
		}
		b = appendText(b, "comment", rule.Comment)
		c.text = append(appendStatements(append(b, `,"expr":`...), rule.Statements), "}}"...)
	}
	return nil
}

// begin writes the beginning of an object of a table.
func (t *Table) begin(b []byte, kind string) []byte {
	b = append(append(append(b, ",\n{\""...), kind...), `":{"family":`...)
	return appendText(appendJSONString(b, t.Family), "table", t.Name)
}

// appendText writes a further member that is a string, unless it is empty.
func appendText(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return appendJSONString(appendKey(append(b, ','), name), value)
}

// appendMore writes a further member, unless it is nil.
func appendMore(b []byte, name string, value Expr) []byte {
	if value == nil {
		return b
	}
	return appendJSON(appendKey(append(b, ','), name), value)
}

func (t *Table) appendTable(b []byte) []byte {
	b = appendJSONString(append(b, ",\n{\"table\":{\"family\":"...), t.Family)
	b = appendMore(appendText(b, "name", t.Name), "flags", words(t.Flags))
	if t.RulesNotRead {
		b = append(b, `,"svcproxy":{"left":1}`...)
	}
	if t.Alien != "" { // the reader notes a member that is not known
		what := strings.TrimSuffix(strings.TrimPrefix(t.Alien, alienBegins), alienEnds)
		b = append(appendKey(append(b, ','), what), "null"...)
	}
	return append(b, "}}"...)
}

func (t *Table) appendChain(b []byte, c *Chain) []byte {
	b = appendText(appendText(appendText(t.begin(b, "chain"), "name", c.Name), "type", c.Type), "hook", c.Hook)
	if c.Priority != nil {
		b = appendMore(b, "prio", Number(*c.Priority))
	}
	if c.Devices != nil {
		b = appendMore(b, "dev", list(c.Devices))
	}
	return append(appendText(b, "policy", c.Policy), "}}"...)
}

func (t *Table) appendSet(b []byte, s *Set) []byte {
	kind := "set"
	if s.Data != nil {
		kind = "map"
	}
	b = appendMore(appendText(t.begin(b, kind), "name", s.Name), "type", s.Keys.json())
	if s.Data != nil {
		b = appendMore(b, "map", s.Data.json())
	}
	b = appendMore(b, "flags", words(s.Flags))
	b = appendMore(b, "timeout", givenIf(s.Timeout != 0, float64(s.Timeout)))
	b = appendMore(b, "size", givenIf(s.Size != 0, float64(s.Size)))
	if len(s.Statements) > 0 {
		b = appendStatements(append(b, `,"stmt":`...), s.Statements)
	}
	if s.Count != 0 {
		b = append(strconv.AppendInt(append(b, `,"svcproxy":{"count":`...), int64(s.Count), 10), '}')
	}
	if s.Elements != nil {
		b = appendElements(append(b, `,"elem":`...), s.Elements)
	}
	return append(b, "}}"...)
}

func (t *Type) json() Expr {
	switch {
	case t.Of != nil:
		return &Opaque{Text: JSONObject("typeof", JSON(t.Of))}
	case len(t.Names) == 1:
		return String(t.Names[0])
	}
	return list(t.Names)
}

func list(of []string) List {
	out := make(List, len(of))
	for i, w := range of {
		out[i] = String(w)
	}
	return out
}

// words is a list of words; nil for none.
func words(of []string) Expr {
	if len(of) == 0 {
		return nil
	}
	return list(of)
}

func appendElements(b []byte, elements []Element) []byte {
	b = append(b, '[')
	for i := range elements {
		if i > 0 {
			b = append(b, ',')
		}
		e := &elements[i]
		if e.Value == nil {
			b = appendJSON(b, e.Key)
			continue
		}
		b = append(appendJSON(append(b, '['), e.Key), ',')
		b = append(appendJSON(b, e.Value), ']')
	}
	return append(b, ']')
}

func appendStatements(b []byte, list []Statement) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSONStatement(b, s)
	}
	return append(b, ']')
}

// appendNamed writes {"kind":{"name":value,…}}, or {"kind":null} where no member is there.
func appendNamed(b []byte, kind string, members ...member) []byte {
	start := len(b)
	b = appendMembers(b, kind, members...)
	if string(b[len(b)-len("{}}"):]) == "{}}" && len(b)-start == len(`{"":{}}`)+len(kind) {
		b = append(b[:len(b)-len("{}}")], "null}"...)
	}
	return b
}

// inverted is "over", or "until" where it is false.
func inverted(is bool) Expr {
	if !is {
		return nil
	}
	return Bool(true)
}

// appendJSONStatement writes a statement as nft -j does.
func appendJSONStatement(b []byte, s Statement) []byte {
	switch s := s.(type) {
	case *Match:
		return appendMembers(b, "match", member{"op", String(s.Op)}, member{"left", s.Left}, member{"right", s.Right})
	case *Verdict:
		return appendJSON(b, s)
	case *VMap:
		return appendMembers(b, "vmap", member{"key", s.Key}, member{"data", s.Data})
	case *Reject:
		return appendNamed(b, "reject", member{"type", given(s.Type)}, member{"expr", given(s.Code)})
	case *Queue:
		return appendNamed(b, "queue", member{"num", s.Num}, member{"flags", words(s.Flags)})
	case *NAT:
		return appendNamed(b, s.Kind, member{"family", given(s.Family)}, member{"addr", s.Addr}, member{"port", s.Port},
			member{"flags", words(s.Flags)}, member{"type_flags", words(s.TypeFlags)})
	case *TProxy:
		return appendNamed(b, "tproxy", member{"family", given(s.Family)}, member{"addr", s.Addr}, member{"port", s.Port})
	case *Dup:
		return appendMembers(b, "dup", member{"addr", s.Addr}, member{"dev", s.Dev})
	case *Reset:
		return append(appendJSON(append(b, `{"reset":`...), s.Option), '}')
	case *Mangle:
		return appendMembers(b, "mangle", member{"key", s.Key}, member{"value", s.Value})
	case *Update:
		b = appendMembers(b, s.Kind, member{"op", String(s.Op)}, member{"elem", s.Elem}, member{"data", s.Data},
			member{s.Kind, String(s.Set)})
		if len(s.Statements) > 0 {
			b = append(appendStatements(append(b[:len(b)-2], `,"stmt":`...), s.Statements), "}}"...)
		}
		return b
	case *ObjectRef:
		if s.Map == nil {
			return append(appendJSONString(appendKey(append(b, '{'), s.Kind), s.Name), '}')
		}
		return append(appendJSON(appendKey(append(b, '{'), s.Kind), s.Map), '}')
	case *Counter:
		b = strconv.AppendUint(append(b, `{"counter":{"packets":`...), s.Packets, 10)
		return append(strconv.AppendUint(append(b, `,"bytes":`...), s.Bytes, 10), "}}"...)
	case Plain:
		return append(appendKey(append(b, '{'), string(s)), "null}"...)
	case *Opaque:
		return append(b, s.Text...)
	}
	return appendLimits(b, s)
}

// appendLimits writes statements that count, limit and log.
func appendLimits(b []byte, s Statement) []byte {
	switch s := s.(type) {
	case *Limit:
		return appendMembers(b, "limit", member{"rate", Number(s.Rate)}, member{"rate_unit", given(s.RateUnit)},
			member{"burst", Number(s.Burst)}, member{"burst_unit", given(s.BurstUnit)}, member{"per", given(s.Per)},
			member{"inv", inverted(s.Inverted)})
	case *Quota:
		return appendMembers(b, "quota", member{"val", Number(s.Val)}, member{"val_unit", given(s.Unit)},
			member{"inv", inverted(s.Inverted)})
	case *CTCount:
		return appendMembers(b, "ct count", member{"val", Number(s.Val)}, member{"inv", inverted(s.Inverted)})
	case *Log:
		return appendNamed(b, "log", member{"prefix", given(s.Prefix)}, member{"group", givenIf(s.Grouped, s.Group)},
			member{"level", given(s.Level)})
	case *Flow:
		return appendMembers(b, "flow", member{"op", String(s.Op)}, member{"flowtable", String(s.Flowtable)})
	}
	return append(b, fmt.Sprintf(`{"unknown":{"statement":"%T"}}`, s)...)
}

// appendJSONNumber writes a number: whole ones without an exponent, as nft does.
func appendJSONNumber(b []byte, n float64) []byte {
	if n == math.Trunc(n) && math.Abs(n) < 1<<53 {
		return strconv.AppendInt(b, int64(n), 10)
	}
	return append(b, jsontext.Float(n).String()...)
}
