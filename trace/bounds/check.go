// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Error says that an input passes a limit. Its text names the input, the limit and what would be accepted.
type Error struct{ text string }

// Error returns the text.
func (e *Error) Error() string { return e.text }

// Errorf makes an [Error].
func Errorf(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// Is tells whether an error is that of a limit.
func Is(err error) bool {
	_, ok := errors.AsType[*Error](err)
	return ok
}

// Bytes writes a number of bytes for people: "128 MB".
func Bytes(n int64) string {
	const mega, kilo = 1 << 20, 1 << 10
	switch {
	case n >= mega && n%mega == 0:
		return fmt.Sprintf("%d MB", n/mega)
	case n >= kilo && n%kilo == 0:
		return fmt.Sprintf("%d kB", n/kilo)
	}
	return fmt.Sprintf("%d bytes", n)
}

// TooLarge is the error of an input of more than limit bytes.
func TooLarge(name string, limit int64) error {
	return Errorf("%s is larger than %s, uncompressed: a file of at most %s was expected", name, Bytes(limit),
		Bytes(limit))
}

// CheckLines returns an [*Error] if a text has a line longer than [Line], or more than [Lines] lines.
func CheckLines(name string, data []byte) error { return checkLines(name, data, Lines) }

// CheckServers is CheckLines for virtual servers.
func CheckServers(name string, data []byte) error { return checkLines(name, data, ServerLines) }

func checkLines(name string, data []byte, most int) error {
	n := 0
	for len(data) > 0 {
		n++
		if n > most {
			return Errorf("%s has more than %d lines: at most %d were expected", name, most, most)
		}
		end := bytes.IndexByte(data[:min(len(data), Line+1)], '\n')
		switch {
		case end >= 0:
			data = data[end+1:]
		case len(data) > Line:
			return Errorf("line %d of %s is longer than %s: lines of at most %s were expected", n, name, Bytes(Line),
				Bytes(Line))
		default:
			return nil
		}
	}
	return nil
}

// CheckYAML returns an [*Error] if a text passes the limits of lines, or has more than [YAMLValues] values, as far as
// that can be told from its punctuation. Depth and aliases are bounded by the parser.
func CheckYAML(name string, data []byte) error {
	if err := CheckLines(name, data); err != nil {
		return err
	}
	values := 0
	for i, c := range data {
		switch c {
		case ',', '[', '{':
			values++
		case ':', '-', '?':
			if i+1 == len(data) || data[i+1] <= ' ' {
				values++
			}
		}
	}
	if values > YAMLValues {
		return Errorf("%s holds more than %d values of YAML: at most %d were expected, or JSON", name, YAMLValues, YAMLValues)
	}
	return nil
}

// JSON are limits of a JSON text; 0 is none.
type JSON struct {
	Depth   int // of nesting
	List    int // elements of one list, or members of one object
	Values  int // in all: strings, numbers, objects, …, names of members not counted
	Objects int // in all
	// Item is how many bytes each element of a list has that stands in the outermost object, as those of a List do.
	Item int
}

// NodeJSON are the limits of a JSON file of a node, RoutesJSON and PolicyJSON those of its network, ClusterJSON those
// of a file of the cluster.
var (
	NodeJSON    = JSON{Depth: JSONDepth, List: JSONList, Values: JSONValues}
	RoutesJSON  = JSON{Depth: JSONDepth, List: Routes, Values: JSONValues}
	PolicyJSON  = JSON{Depth: JSONDepth, List: Policies, Values: JSONValues}
	ClusterJSON = JSON{Depth: JSONDepth, List: JSONList, Values: JSONValues, Objects: JSONObjects, Item: Object}
)

// itemDepth is the depth of the elements of a List's items.
const itemDepth = 3

// Check returns an [*Error] if a text passes a limit. It reads any text, and finds what is no JSON no error: whoever
// reads the values does.
func (l JSON) Check(name string, data []byte) error {
	c := checker{JSON: l, name: name}
	return c.read(data)
}

// Reader returns a reader of a text that fails where [JSON.Check] does.
func (l JSON) Reader(name string, r io.Reader) io.Reader {
	return &checkedReader{Reader: r, checker: checker{JSON: l, name: name}}
}

type checkedReader struct {
	io.Reader

	checker checker
	err     error // of a limit
}

// Read reads a part. Of one that passes a limit it returns nothing: whoever gets bytes need not look at the error.
func (r *checkedReader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.Reader.Read(p)
	if r.err = r.checker.read(p[:n]); r.err != nil {
		return 0, r.err
	}
	return n, err
}

// checker is a text of JSON of which a part has been read.
type checker struct {
	JSON

	name            string
	counts          []int // elements of the lists and objects that are open
	values, objects int
	item            int // where the last object of a List has begun
	at              int // where the part that is being read begins
	quoted          bool
	escaped         bool // by a backslash at the end of the part before
}

// read reads the next part.
func (c *checker) read(part []byte) error {
	for i := 0; i < len(part); i++ {
		if c.quoted {
			i = c.stringEnd(part, i)
			continue
		}
		if !marks[part[i]] {
			continue
		}
		if err := c.mark(part[i], c.at+i); err != nil {
			return err
		}
	}
	c.at += len(part)
	return nil
}

// mark reads one of the marks, which is at an index of the text.
func (c *checker) mark(mark byte, at int) error {
	switch mark {
	case '"':
		c.quoted = true
	case '{', '[':
		c.values++
		if mark == '{' {
			c.objects++
		}
		c.counts = append(c.counts, 1)
		if len(c.counts) == itemDepth {
			c.item = at
		}
		switch {
		case c.Depth > 0 && len(c.counts) > c.Depth:
			return Errorf("%s is nested deeper than %d levels at byte %d: at most %d levels were expected", c.name, c.Depth,
				at, c.Depth)
		case c.Objects > 0 && c.objects > c.Objects:
			return Errorf("%s holds more than %d JSON objects: at most %d were expected", c.name, c.Objects, c.Objects)
		}
	case '}', ']':
		if c.Item > 0 && len(c.counts) == itemDepth && at-c.item > c.Item {
			return Errorf("%s holds an object of %d bytes at byte %d: objects of at most %s were expected", c.name, at-c.item,
				c.item, Bytes(int64(c.Item)))
		}
		if len(c.counts) > 0 {
			c.counts = c.counts[:len(c.counts)-1]
		}
	case ',':
		c.values++
		if len(c.counts) == 0 {
			return nil
		}
		n := &c.counts[len(c.counts)-1]
		*n++
		if c.List > 0 && *n > c.List {
			return Errorf("%s holds a list of more than %d elements at byte %d: at most %d were expected", c.name, c.List, at,
				c.List)
		}
	}
	if c.Values > 0 && c.values > c.Values {
		return Errorf("%s holds more than %d JSON values: at most %d were expected", c.name, c.Values, c.Values)
	}
	return nil
}

// marks are the characters that Check stops at: of a large file most are others.
var marks = [256]bool{'"': true, '{': true, '[': true, '}': true, ']': true, ',': true}

// stringEnd returns the index of the quote that ends the string that index i of a part is in, or the part's length.
func (c *checker) stringEnd(part []byte, i int) int {
	if c.escaped {
		c.escaped = false
		i++
	}
	for i < len(part) {
		n := bytes.IndexByte(part[i:], '"')
		end := i + n
		if n < 0 {
			end = len(part)
		}
		// A quote is escaped if an odd number of backslashes stands before it.
		back := end
		for back > i && part[back-1] == '\\' {
			back--
		}
		escaped := (end-back)%2 == 1
		switch {
		case n < 0:
			c.escaped = escaped
			return len(part)
		case !escaped:
			c.quoted = false
			return end
		}
		i = end + 1
	}
	return len(part)
}
