// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"bytes"
	"errors"
	"fmt"
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
	var counts []int // elements of the lists and objects that are open
	values, objects, item := 0, 0, 0
	for i := 0; i < len(data); i++ {
		if !marks[data[i]] {
			continue
		}
		switch data[i] {
		case '"':
			i = stringEnd(data, i)
		case '{', '[':
			values++
			if data[i] == '{' {
				objects++
			}
			counts = append(counts, 1)
			if len(counts) == itemDepth {
				item = i
			}
			switch {
			case l.Depth > 0 && len(counts) > l.Depth:
				return Errorf("%s is nested deeper than %d levels at byte %d: at most %d levels were expected", name, l.Depth,
					i, l.Depth)
			case l.Objects > 0 && objects > l.Objects:
				return Errorf("%s holds more than %d JSON objects: at most %d were expected", name, l.Objects, l.Objects)
			}
		case '}', ']':
			if l.Item > 0 && len(counts) == itemDepth && i-item > l.Item {
				return Errorf("%s holds an object of %d bytes at byte %d: objects of at most %s were expected", name, i-item,
					item, Bytes(int64(l.Item)))
			}
			if len(counts) > 0 {
				counts = counts[:len(counts)-1]
			}
		case ',':
			values++
			if len(counts) == 0 {
				continue
			}
			n := &counts[len(counts)-1]
			*n++
			if l.List > 0 && *n > l.List {
				return Errorf("%s holds a list of more than %d elements at byte %d: at most %d were expected", name, l.List, i,
					l.List)
			}
		}
		if l.Values > 0 && values > l.Values {
			return Errorf("%s holds more than %d JSON values: at most %d were expected", name, l.Values, l.Values)
		}
	}
	return nil
}

// marks are the characters that Check stops at: of a large file most are others.
var marks = [256]bool{'"': true, '{': true, '[': true, '}': true, ']': true, ',': true}

// stringEnd returns the index of the quote that ends the string at i, or the last one.
func stringEnd(data []byte, i int) int {
	for i++; i < len(data); i++ {
		n := bytes.IndexByte(data[i:], '"')
		if n < 0 {
			return len(data)
		}
		end := i + n
		// The quote is escaped if an odd number of backslashes stands before it.
		back := end
		for back > i && data[back-1] == '\\' {
			back--
		}
		if (end-back)%2 == 0 {
			return end
		}
		i = end
	}
	return len(data)
}
