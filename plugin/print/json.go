// SPDX-License-Identifier: Apache-2.0

package print

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

const (
	// jsonIndent is the indentation of cli-runtime's JSONPrinter.
	jsonIndent = "    "
	// jsonPiece is about how much of a report's text is held: all of it may be hundreds of megabytes.
	jsonPiece = 256 << 10
	// absent is no name of a node, and no kind of a frontend.
	absent = "\x00"
)

// jsonText writes a JSON text in pieces of whole lines.
type jsonText struct {
	write func(lines []byte) error
	held  []byte
}

// writeJSON writes a report as cli-runtime's JSONPrinter does, path by path.
func writeJSON(r *report.Report, write func(lines []byte) error) error {
	t, whole := &jsonText{write: write}, *r
	only := report.NodeReport{Node: absent}
	if len(r.Nodes) > 0 {
		whole.Nodes = []report.NodeReport{only}
	}
	err := t.list(whole, only, 0, len(r.Nodes), func(i, depth int) error {
		n := r.Nodes[i]
		all, only := n.Paths, report.Path{Frontend: report.Frontend{Kind: absent}}
		if len(all) > 0 {
			n.Paths = []report.Path{only}
		}
		return t.list(n, only, depth, len(all), func(i, depth int) error {
			text, err := jsonAt(&all[i], depth)
			if err != nil {
				return err
			}
			return t.add(text)
		})
	})
	if err != nil {
		return err
	}
	return t.write(append(t.held, '\n'))
}

// list adds a value that has a list: what is around its elements is cut out of the value's text with only one of them,
// which is in it once, as its quotation marks are in no string. A list without elements is in the value itself.
func (t *jsonText) list(value, only any, depth, count int, each func(i, depth int) error) error {
	const inside = 2 // the list's name, and its elements
	text, err := jsonAt(value, depth)
	if err != nil {
		return err
	}
	if count == 0 {
		return t.add(text)
	}
	element, err := jsonAt(only, depth+inside)
	if err != nil {
		return err
	}
	before, after, _ := bytes.Cut(text, element)
	next := slices.Concat([]byte(",\n"), bytes.Repeat([]byte(jsonIndent), depth+inside))
	for i := range count {
		if err := t.add(before); err != nil {
			return err
		}
		if err := each(i, depth+inside); err != nil {
			return err
		}
		before = next
	}
	return t.add(after)
}

// add adds a text, and writes what has become long.
func (t *jsonText) add(text []byte) error {
	t.held = append(t.held, text...)
	end := bytes.LastIndexByte(t.held, '\n') + 1
	if end < jsonPiece {
		return nil
	}
	err := t.write(t.held[:end])
	t.held = append(t.held[:0], t.held[end:]...)
	return err
}

// jsonAt is the text of a value that is inside depth others.
func jsonAt(v any, depth int) ([]byte, error) {
	return json.MarshalIndent(v, strings.Repeat(jsonIndent, depth), jsonIndent)
}
