// SPDX-License-Identifier: Apache-2.0

package json

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// Read reads the output of nft -j list ruleset. The rules are checked as JSON, but parsed only on demand, from data,
// which must not change until then.
func Read(data []byte) (*syntax.Ruleset, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("it is empty")
	}
	r := &reader{cursor: newCursor(data), ruleset: &syntax.Ruleset{NewRuleReader: newRuleReader}}
	found := false
	r.delim(kindObject)
	for r.more('}') {
		if string(r.unquoted()) != "nftables" {
			r.skip()
			continue
		}
		found = true
		r.list()
	}
	r.token()
	switch {
	case r.err != nil:
		return nil, badJSON(r.err, len(data))
	case !found:
		return nil, errors.New(`it has no "nftables"`)
	}
	if _, err := r.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("there is something after the ruleset (byte %d)", r.dec.InputOffset())
	}
	return r.ruleset, nil
}

// reader reads the list of all objects.
type reader struct {
	*cursor

	ruleset *syntax.Ruleset
	// Of the last rule: those of a chain come together.
	family, table, chain string
	rules                *syntax.RuleList
}

// delim reads the beginning of an object or of an array.
func (r *reader) delim(want jsontext.Kind) {
	if r.err != nil {
		return
	}
	t, err := r.dec.ReadToken()
	if err != nil {
		r.fail(err)
		return
	}
	if t.Kind() != want {
		r.fail(fmt.Errorf("it has %s where %c was due (byte %d)", t, want, r.dec.InputOffset()))
	}
}

// list reads the list of all objects; each has one member, named by its kind.
func (r *reader) list() {
	r.delim(kindArray)
	for r.more(']') {
		if r.wants(kindObject, "nftables", "struct") {
			r.members(r.object)
		}
	}
	r.token()
}

// object reads one object. Those that do nothing to a packet by themselves are skipped: a rule that names one says so.
func (r *reader) object(kind []byte) {
	switch string(kind) {
	case "table":
		r.tableObject()
	case "chain":
		r.chainObject()
	case "rule":
		r.ruleObject()
	case "set":
		r.setObject("set")
	case "map":
		r.setObject("map")
	case "flowtable":
		r.flowtableObject()
	case "metainfo":
		r.metainfo()
	case "counter", "quota", "limit", "secmark", "synproxy", "tunnel", "ct helper", "ct timeout",
		"ct expectation":
		r.skip()
	default:
		r.alienObject(string(kind))
	}
}

// ownMember is a member that nft does not print: what the helper knows beside.
const ownMember = "svcproxy"

// own reads a number of the helper's own.
func (r *reader) own(field, name string) (out int) {
	if !r.wants(kindObject, field, "struct") {
		return 0
	}
	r.members(func(member []byte) {
		if string(member) != name {
			r.fail(fmt.Errorf("it has %q in %s, which is not known", member, field))
			return
		}
		n, _ := r.integer(field, "int")
		out = int(min(max(n, 0), math.MaxInt32))
	})
	return out
}

// metainfo tells who has written the listing.
func (r *reader) metainfo() {
	r.members(func(member []byte) {
		if string(member) == ownMember {
			r.ruleset.Complete = r.own("metainfo.svcproxy", "complete") != 0
			return
		}
		r.skip()
	})
}

// alienObject notes in its table that there is an object of a kind that is not known.
func (r *reader) alienObject(kind string) {
	var name syntax.TableName
	what := fmt.Sprintf("an object %q", kind)
	r.members(func(member []byte) {
		switch string(member) {
		case "family":
			name.Family = r.name(kind + ".family")
		case "table":
			name.Name = r.name(kind + ".table")
		default:
			r.skip()
		}
	})
	if r.err == nil && name.Name == "" {
		r.fail(fmt.Errorf("it has %s, which is not known", what))
	}
	r.note(name, what)
}

// alien skips a member of an object that is not known. It returns what the object's table has by it.
func (r *reader) alien(kind string, member []byte) string {
	what := fmt.Sprintf("a %s with %q", kind, member)
	r.skip()
	return what
}

// note notes in a table what is not known of it.
func (r *reader) note(name syntax.TableName, what string) {
	if what != "" && r.err == nil && syntax.IsRead(name.Family) {
		r.ruleset.Table(name).Note(what)
	}
}

// name reads the value of a member that has to be a string.
func (r *reader) name(field string) string {
	if !r.wants(kindString, field, "string") {
		return ""
	}
	return r.word()
}

func (r *reader) tableObject() {
	if !r.wants(kindObject, "table", "struct") {
		return
	}
	var name syntax.TableName
	var flags []string
	var alien string
	left := false
	r.members(func(member []byte) {
		switch string(member) {
		case "family":
			name.Family = r.name("table.family")
		case "name":
			name.Name = r.name("table.name")
		case "flags":
			flags = r.names("table.flags", "the flags of a table")
		case ownMember:
			left = r.own("table.svcproxy", "left") != 0
		case "handle", "comment":
			r.skip()
		default:
			alien = r.alien("table", member)
		}
	})
	r.note(name, alien)
	if r.err == nil && syntax.IsRead(name.Family) {
		t := r.ruleset.Table(name)
		t.Declared, t.Flags, t.RulesNotRead = true, flags, left
	}
}

// names are a table's flags or a chain's devices: nft prints one as a string and several as a list.
func (r *reader) names(field, what string) (out []string) {
	switch r.kind() {
	case kindString:
		return []string{r.name(field)}
	case kindNull:
		r.skip()
		return nil
	case kindArray:
	default:
		r.wants(kindArray, what, "a list")
		return nil
	}
	out = []string{}
	r.elements(func() {
		out = append(out, r.name(what))
	})
	return out
}

func (r *reader) chainObject() {
	if !r.wants(kindObject, "chain", "struct") {
		return
	}
	var name syntax.TableName
	c := &syntax.Chain{}
	var alien string
	r.members(func(member []byte) {
		switch string(member) {
		case "family":
			name.Family = r.name("chain.family")
		case "table":
			name.Name = r.name("chain.table")
		case "name":
			c.Name = r.name("chain.name")
		case "type":
			c.Type = r.name("chain.type")
		case "hook":
			c.Hook = r.name("chain.hook")
		case "policy":
			c.Policy = r.name("chain.policy")
		case "prio":
			if n, ok := r.integer("chain.prio", "int"); ok {
				priority := int(n)
				c.Priority = &priority
			}
		case "dev":
			c.Devices = r.names("chain.dev", "the devices of a chain")
		case "handle", "comment":
			r.skip()
		default:
			alien = r.alien("chain", member)
		}
	})
	r.note(name, alien)
	if r.err == nil && syntax.IsRead(name.Family) {
		t := r.ruleset.Table(name)
		t.Chains = append(t.Chains, c)
	}
}

// integer reads the value of a member that has to be a whole number.
func (r *reader) integer(field, expected string) (n int64, ok bool) {
	if !r.wants(kindNumber, field, expected) {
		return 0, false
	}
	t, err := r.dec.ReadToken()
	if err != nil {
		r.fail(err)
		return 0, false
	}
	if n, err = t.Int(); err != nil {
		r.fail(fmt.Errorf("it has a number %s for %s, where %s was expected", t, field, expected))
		return 0, false
	}
	return n, true
}

// ruleObject reads of a rule only where it stands: that is what makes reading 26 MB of rules cheap.
func (r *reader) ruleObject() {
	if !r.wants(kindObject, "rule", "struct") {
		return
	}
	start := r.start()
	var family, table, chain, alien string
	r.members(func(member []byte) {
		switch string(member) {
		case "family":
			family = r.name("rule.family")
		case "table":
			table = r.name("rule.table")
		case "chain":
			chain = r.name("rule.chain")
		case "handle", "comment", "expr", "index":
			r.skip()
		default:
			alien = r.alien("rule", member)
		}
	})
	r.note(syntax.TableName{Family: family, Name: table}, alien)
	if r.err != nil || !syntax.IsRead(family) {
		return
	}
	if r.rules == nil || family != r.family || table != r.table || chain != r.chain {
		r.family, r.table, r.chain = family, table, chain
		r.rules = r.ruleset.Table(syntax.TableName{Family: family, Name: table}).RuleList(chain)
	}
	r.rules.Sources = append(r.rules.Sources, r.since(start))
}

// flowtableObject reads a flowtable.
func (r *reader) flowtableObject() {
	if !r.wants(kindObject, "flowtable", "struct") {
		return
	}
	var name syntax.TableName
	f := &syntax.Flowtable{}
	var alien string
	r.members(func(member []byte) {
		switch string(member) {
		case "family":
			name.Family = r.name("flowtable.family")
		case "table":
			name.Name = r.name("flowtable.table")
		case "name":
			f.Name = r.name("flowtable.name")
		case "dev":
			f.Devices = r.names("flowtable.dev", "the devices of a flowtable")
		case "handle", "hook", "prio", "flags":
			r.skip()
		default:
			alien = r.alien("flowtable", member)
		}
	})
	r.note(name, alien)
	if r.err == nil && syntax.IsRead(name.Family) {
		t := r.ruleset.Table(name)
		t.Flowtables = append(t.Flowtables, f)
	}
}

// setObject reads a set or a map.
func (r *reader) setObject(kind string) {
	if !r.wants(kindObject, kind, "struct") {
		return
	}
	var name syntax.TableName
	s := &syntax.Set{}
	var alien string
	r.members(func(member []byte) {
		switch string(member) {
		case "family":
			name.Family = r.name(kind + ".family")
		case "table":
			name.Name = r.name(kind + ".table")
		case "name":
			s.Name = r.name(kind + ".name")
		case "type":
			s.Keys = r.setType()
		case "map":
			if r.kind() == kindNull {
				r.skip()
				return
			}
			data := r.setType()
			s.Data = &data
		case "timeout":
			s.Timeout, _ = r.integer(kind+".timeout", "int64")
		case "size":
			n, _ := r.integer(kind+".size", "int64")
			s.Size = int(min(max(n, 0), math.MaxInt32))
		case "flags":
			s.Flags = r.names(kind+".flags", "the flags of a set")
		case "elem":
			if r.wants(kindArray, kind+".elem", "slice") {
				s.Elements = r.elementsOf(kind == "map")
			}
		case "stmt":
			s.Statements = r.statementsOf()
		case ownMember:
			s.Count = r.own(kind+".svcproxy", "count")
		case "handle", "comment", "policy", "gc-interval", "auto-merge":
			r.skip()
		default:
			alien = r.alien(kind, member)
		}
	})
	r.note(name, alien)
	if r.err == nil && syntax.IsRead(name.Family) {
		t := r.ruleset.Table(name)
		t.Sets = append(t.Sets, s)
	}
}

// newRuleReader returns what reads the rules that [Read] has found.
func newRuleReader() syntax.RuleReader {
	c := newCursor(nil)
	var statements []syntax.Statement
	return func(_ *syntax.Table, s syntax.Source) (rule syntax.Rule, err error) {
		c.reset(s)
		statements = statements[:0]
		c.members(func(member []byte) {
			switch string(member) {
			case "comment":
				if c.wants(kindString, "rule.comment", "string") {
					rule.Comment = c.text()
				}
			case "expr":
				if c.wants(kindArray, "rule.expr", "slice") {
					c.elements(func() { statements = append(statements, c.statement()) })
				}
			default:
				c.skip()
			}
		})
		if c.err != nil {
			return rule, badJSON(c.err, len(s))
		}
		rule.Statements = statements
		return rule, nil
	}
}
