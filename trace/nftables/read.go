// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// object is one member of the list that nft prints; one of the fields is set, none for what the walk does not need.
type object struct {
	Table *tableObject `json:"table"`
	Chain *chainObject `json:"chain"`
	Rule  *ruleObject  `json:"rule"`
	Set   *setObject   `json:"set"`
	Map   *setObject   `json:"map"`

	raw []byte // the object's text
}

type tableObject struct {
	Family string `json:"family"`
	Name   string `json:"name"`
	Flags  flags  `json:"flags"`
}

type chainObject struct {
	Family string `json:"family"`
	Table  string `json:"table"`
	Name   string `json:"name"`
	Type   string `json:"type"`
	Hook   string `json:"hook"`
	Prio   *int   `json:"prio"`
	Policy string `json:"policy"`
}

// ruleObject has of a rule only where it stands: that is what makes reading 26 MB of rules cheap.
type ruleObject struct {
	Family string `json:"family"`
	Table  string `json:"table"`
	Chain  string `json:"chain"`
}

// fullRule has the rest of a rule.
type fullRule struct {
	Rule struct {
		Comment string `json:"comment"`
		Expr    []any  `json:"expr"`
	} `json:"rule"`
}

// setObject is a set or a map.
type setObject struct {
	Family  string `json:"family"`
	Table   string `json:"table"`
	Name    string `json:"name"`
	Type    any    `json:"type"`
	Map     any    `json:"map"`     // the type of a map's values
	Timeout int64  `json:"timeout"` // seconds
	Elem    []any  `json:"elem"`
}

// flags are a table's flags: nft prints one as a string and several as a list.
type flags []string

// UnmarshalJSON takes a string or a list of strings.
func (f *flags) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*f = flags{one}
		return nil
	}
	var all []string
	if err := json.Unmarshal(data, &all); err != nil {
		return fmt.Errorf("the flags of a table: %w", err)
	}
	*f = all
	return nil
}

// dormant tells whether the table's chains are not hooked in; known is false where nft did not say it clearly: 1.0.6 prints
// the table's name in place of its flags.
func (f flags) dormant() (yes, known bool) {
	known = true
	for _, flag := range f {
		yes = yes || flag == "dormant"
		known = known && slices.Contains([]string{"dormant", "owner", "persist"}, flag)
	}
	return yes, yes || known
}

// read calls visit for every table, chain, rule, set and map of the text; visit returns false to end the reading. The text is read as a
// stream: memory does not grow with it.
func read(data []byte, visit func(*object) (bool, error)) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return wrong(errors.New("it is empty"))
	}
	d := json.NewDecoder(bytes.NewReader(data))
	found := false
	err := readObject(d, func(key string) error {
		if key != "nftables" {
			return skip(d)
		}
		found = true
		return list(d, data, visit)
	})
	switch {
	case errors.Is(err, errEnough):
		return nil
	case err != nil:
		return wrong(badJSON(err, len(data)))
	case !found:
		return wrong(errors.New(`it has no "nftables"`))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return wrong(fmt.Errorf("there is something behind the ruleset (byte %d)", d.InputOffset()))
	}
	return nil
}

var errEnough = errors.New("enough was read")

func wrong(err error) error {
	return fmt.Errorf("nft-ruleset.json: %w: expected the output of: nft -j list ruleset", err)
}

// readObject reads an object, key by key; each has to read its value.
func readObject(d *json.Decoder, each func(key string) error) error {
	if err := delim(d, '{'); err != nil {
		return err
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		key, ok := t.(string)
		if !ok {
			return fmt.Errorf("it has %v where a key was due", t)
		}
		if err := each(key); err != nil {
			return err
		}
	}
	return delim(d, '}')
}

func delim(d *json.Decoder, want json.Delim) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	if t != want {
		return fmt.Errorf("it has %v where %v was due (byte %d)", t, want, d.InputOffset())
	}
	return nil
}

func skip(d *json.Decoder) error {
	var v json.RawMessage
	return d.Decode(&v)
}

func list(d *json.Decoder, data []byte, visit func(*object) (bool, error)) error {
	if err := delim(d, '['); err != nil {
		return err
	}
	for d.More() {
		var o object
		from := d.InputOffset()
		if err := d.Decode(&o); err != nil {
			return err
		}
		if o.Table == nil && o.Chain == nil && o.Rule == nil && o.Set == nil && o.Map == nil {
			continue
		}
		o.raw = bytes.TrimLeft(data[from:d.InputOffset()], ", \t\r\n")
		more, err := visit(&o)
		if err != nil {
			return fmt.Errorf("%w (byte %d)", err, d.InputOffset())
		}
		if !more {
			return errEnough
		}
	}
	return delim(d, ']')
}

// badJSON says in one line what is wrong with a JSON text.
func badJSON(err error, size int) error {
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fmt.Errorf("the JSON is cut off at byte %d", size)
	case errors.As(err, &syntax):
		return fmt.Errorf("it is no JSON: %w (byte %d)", err, syntax.Offset)
	case errors.As(err, &typ):
		return fmt.Errorf("it has a %s for %s, where %s was expected", typ.Value, typ.Field, typ.Type.Kind())
	}
	return err
}
