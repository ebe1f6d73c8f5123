// SPDX-License-Identifier: Apache-2.0

package json

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// The kinds of values (see [jsontext.Kind]).
const (
	kindNull   = 'n'
	kindTrue   = 't'
	kindFalse  = 'f'
	kindString = '"'
	kindNumber = '0'
	kindObject = '{'
	kindArray  = '['
)

// kindNames are what an error calls the kinds.
var kindNames = map[jsontext.Kind]string{
	kindNull: "null", kindTrue: "bool", kindFalse: "bool", kindString: "string", kindNumber: "number",
	kindObject: "object", kindArray: "array",
}

// options: nft repeats no names, and a damaged name or comment makes no rule unreadable.
var options = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// cursor reads a JSON text value by value. The first error ends the reading: what is read behind it is empty.
type cursor struct {
	dec   *jsontext.Decoder
	data  []byte
	err   error
	depth int
	odd   bool              // the object in progress has a member that is not known
	by    *syntax.Map       // that has the object of the statement in progress; nil: it has its own
	words map[string]string // those that were read before, so that the same word is one string
}

func newCursor(data []byte) *cursor {
	return &cursor{dec: jsontext.NewDecoder(bytes.NewBuffer(data), options...), data: data, words: map[string]string{}}
}

// reset begins with another text.
func (c *cursor) reset(data []byte) {
	c.dec.Reset(bytes.NewBuffer(data), options...)
	c.data, c.err, c.depth, c.odd = data, nil, 0, false
}

func (c *cursor) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// kind is that of the next value; 0 where there is none.
func (c *cursor) kind() jsontext.Kind {
	if c.err != nil {
		return 0
	}
	return c.dec.PeekKind()
}

// token reads a token, of which only the kind is used.
func (c *cursor) token() jsontext.Kind {
	if c.err != nil {
		return 0
	}
	t, err := c.dec.ReadToken()
	if err != nil {
		c.fail(err)
		return 0
	}
	return t.Kind()
}

// unknown skips the value of a member that is not known: the object that it is of is not understood by that.
func (c *cursor) unknown() {
	c.odd = true
	c.skip()
}

func (c *cursor) skip() {
	if c.err == nil {
		if err := c.dec.SkipValue(); err != nil {
			c.fail(err)
		}
	}
}

// raw reads a value that is a string or a number; valid until the next one is read.
func (c *cursor) raw() []byte {
	if c.err != nil {
		return nil
	}
	v, err := c.dec.ReadValue()
	if err != nil {
		c.fail(err)
		return nil
	}
	return v
}

// unquoted reads a string; valid until the next value is read.
func (c *cursor) unquoted() []byte {
	v := c.raw()
	if len(v) < 2 {
		return nil
	}
	inner := v[1 : len(v)-1]
	if bytes.IndexByte(inner, '\\') < 0 && isASCII(inner) {
		return inner
	}
	out, err := jsontext.AppendUnquote(nil, v)
	_ = err // bytes that are no UTF-8 are replaced
	return out
}

func isASCII(b []byte) bool {
	for _, x := range b {
		if x >= 0x80 { //nolint:mnd // above ASCII
			return false
		}
	}
	return true
}

// text reads a string; another value is skipped.
func (c *cursor) text() string {
	if c.kind() != kindString {
		c.skip()
		return ""
	}
	return string(c.unquoted())
}

// maxWords bounds the words that are kept.
const maxWords = 1 << 12

// word is text of a string that occurs often.
func (c *cursor) word() string {
	if c.kind() != kindString {
		c.skip()
		return ""
	}
	return c.kept(c.unquoted())
}

// number reads a number; another value is skipped.
func (c *cursor) number() (n float64, ok bool) {
	if c.kind() != kindNumber {
		c.skip()
		return 0, false
	}
	t, err := c.dec.ReadToken()
	if err != nil {
		c.fail(err)
		return 0, false
	}
	n, err = t.Float()
	if err != nil {
		c.fail(fmt.Errorf("it has a number that is too large: %w", err))
		return 0, false
	}
	return n, true
}

// members reads an object: each has to read the value behind a name. Another value is skipped.
func (c *cursor) members(each func(name []byte)) {
	if c.kind() != kindObject {
		c.skip()
		return
	}
	c.token()
	for c.more('}') {
		each(c.unquoted())
	}
	c.token()
}

// elements reads an array: each has to read a value. Another value is skipped, and makes it false.
func (c *cursor) elements(each func()) bool {
	if c.kind() != kindArray {
		c.skip()
		return false
	}
	c.token()
	for c.more(']') {
		each()
	}
	c.token()
	return true
}

// more tells whether there is something in front of the end of an object or an array.
func (c *cursor) more(end jsontext.Kind) bool {
	k := c.kind()
	if k == 0 {
		c.token() // for the error
	}
	return c.err == nil && k != end
}

// start is where the next value begins, as long as none of it was read.
func (c *cursor) start() int64 {
	if c.kind() == 0 {
		c.token()
	}
	return c.dec.InputOffset()
}

// since returns the text from an offset to here.
func (c *cursor) since(start int64) []byte {
	if c.err != nil {
		return nil
	}
	return bytes.TrimLeft(c.data[start:c.dec.InputOffset()], ",: \t\r\n")
}

// canonical writes a value with the members of its objects sorted, as encoding/json does.
func canonical(raw []byte) string {
	v := jsontext.Value(bytes.Clone(raw))
	err := v.Format(
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true), jsontext.ReorderRawObjects(true),
		jsontext.CanonicalizeRawInts(true), jsontext.CanonicalizeRawFloats(true),
		jsontext.EscapeForHTML(true), jsontext.EscapeForJS(true),
	)
	if err != nil { // it was read before, by the same options
		return string(raw)
	}
	return string(v)
}

// wants reads the next value if it is of a kind, or null. Of another it is an error that says where it stands.
func (c *cursor) wants(kind jsontext.Kind, field, expected string) bool {
	switch k := c.kind(); k {
	case kind:
		return true
	case kindNull:
		c.skip()
	case 0:
		c.token()
	default:
		c.fail(fmt.Errorf("it has a %s for %s, where %s was expected", kindNames[k], field, expected))
	}
	return false
}

// badJSON says in one line what is wrong with a JSON text.
func badJSON(err error, size int) error {
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fmt.Errorf("the JSON is cut off at byte %d", size)
	case errors.As(err, &syntactic):
		return fmt.Errorf("it is not JSON: %w (byte %d)", syntactic.Err, syntactic.ByteOffset)
	}
	return err
}

// kept returns the one string of a word whose bytes are overwritten later.
func (c *cursor) kept(b []byte) string {
	if s, ok := c.words[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(c.words) < maxWords {
		c.words[s] = s
	}
	return s
}
