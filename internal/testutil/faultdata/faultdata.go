// SPDX-License-Identifier: Apache-2.0

// Package faultdata keeps faults that were made on a real node as small files: of a snapshot only the lines that differ
// from the one of the same node without the fault, with what connections did meanwhile. The recorded faults are in
// testdata/faults: a folder for each proxy mode, in it healthy (a snapshot, docs/snapshots.md) and NAME.fault files.
//
// A fault's file is text. Lines "KEY: VALUE" come first, then for each file that differs a line "=== PATH" and hunks:
// "@ LINE -N", where at that line, counted from 1 in the healthy file, N lines are replaced by the lines behind it that
// begin with "+".
package faultdata

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Namespace is that of the Services and pods of the recorded faults.
const Namespace = "svcproxy-e2e"

// Fault is one fault as it was recorded.
type Fault struct {
	What        string // a sentence
	Service     string // in the namespace of the tests
	Node        string
	From        string // as the flag of trace: pod/NAME, node, external
	Frontend    string // ADDRESS:PORT
	Connections int    // made while the fault was there
	Failed      int    // of them
	// Named is a regular expression for the finding of a path whose connections fail: the object at fault, or what is
	// missing to tell. Where none failed it is empty.
	Named string
	// UnknownToo: no connection failed, and to say that it is not known is right, too.
	UnknownToo bool
	// Beyond: connections fail for a reason that is not on the node; its files alone may show nothing.
	Beyond bool
	// Aside: what failed is not what the path is judged by; it is said of the node, or with a warning.
	Aside bool
	// Changes are the files that differ, by their path in the snapshot.
	Changes map[string][]Hunk
}

// Hunk replaces Removed lines at Line, counted from 1, by Added.
type Hunk struct {
	Line, Removed int
	Added         []string
}

// fields are those of the first lines, in their order.
func (f *Fault) fields() []struct {
	key   string
	value any
} {
	return []struct {
		key   string
		value any
	}{
		{"what", &f.What},
		{"service", &f.Service},
		{"node", &f.Node},
		{"from", &f.From},
		{"frontend", &f.Frontend},
		{"connections", &f.Connections},
		{"failed", &f.Failed},
		{"named", &f.Named},
		{"unknown-too", &f.UnknownToo},
		{"beyond", &f.Beyond},
		{"aside", &f.Aside},
	}
}

// Format writes a fault.
func (f *Fault) Format() []byte {
	var b strings.Builder
	for _, field := range f.fields() {
		switch v := field.value.(type) {
		case *string:
			fmt.Fprintf(&b, "%s: %s\n", field.key, *v)
		case *int:
			fmt.Fprintf(&b, "%s: %d\n", field.key, *v)
		case *bool:
			fmt.Fprintf(&b, "%s: %t\n", field.key, *v)
		}
	}
	paths := make([]string, 0, len(f.Changes))
	for p := range f.Changes {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	for _, p := range paths {
		fmt.Fprintf(&b, "=== %s\n", p)
		for _, h := range f.Changes[p] {
			fmt.Fprintf(&b, "@ %d -%d\n", h.Line, h.Removed)
			for _, line := range h.Added {
				b.WriteString("+" + line + "\n")
			}
		}
	}
	return []byte(b.String())
}

// Read reads the file of a recorded fault.
func Read(file string) (*Fault, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	f, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return f, nil
}

// MakeOnNode makes the fault in the files of its node, by name; what else it changes is left alone.
func (f *Fault) MakeOnNode(files map[string][]byte) error {
	for path, hunks := range f.Changes {
		name, ok := strings.CutPrefix(path, "nodes/"+f.Node+"/")
		if !ok {
			continue
		}
		faulty, err := Apply(files[name], hunks)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", f.What, path, err)
		}
		files[name] = faulty
	}
	return nil
}

// Make makes the fault in a folder that holds the healthy snapshot.
func (f *Fault) Make(dir string) error {
	for path, hunks := range f.Changes {
		file := filepath.Join(dir, filepath.FromSlash(path))
		healthy, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		faulty, err := Apply(healthy, hunks)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", f.What, path, err)
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, faulty, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Parse reads what Format wrote.
func Parse(data []byte) (*Fault, error) {
	f := &Fault{Changes: map[string][]Hunk{}}
	fields := f.fields()
	path := ""
	for i, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		var err error
		switch hunks := f.Changes[path]; {
		case i < len(fields):
			err = set(fields[i].key, fields[i].value, line)
		case strings.HasPrefix(line, "=== "):
			path = line[len("=== "):]
			f.Changes[path] = nil
		case path != "" && strings.HasPrefix(line, "@ "):
			var h Hunk
			if _, err = fmt.Sscanf(line, "@ %d -%d", &h.Line, &h.Removed); err == nil {
				f.Changes[path] = append(hunks, h)
			}
		case len(hunks) > 0 && strings.HasPrefix(line, "+"):
			last := &hunks[len(hunks)-1]
			last.Added = append(last.Added, line[1:])
		default:
			err = errors.New("it belongs to nothing")
		}
		if err != nil {
			return nil, fmt.Errorf("line %d, %q: %w", i+1, line, err)
		}
	}
	return f, nil
}

func set(key string, value any, line string) (err error) {
	text, ok := strings.CutPrefix(line, key+":")
	if !ok {
		return fmt.Errorf("want %q", key+": …")
	}
	text = strings.TrimPrefix(text, " ")
	switch v := value.(type) {
	case *string:
		*v = text
	case *int:
		*v, err = strconv.Atoi(text)
	case *bool:
		*v, err = strconv.ParseBool(text)
	}
	return err
}

// Apply returns a file with a fault's changes.
func Apply(healthy []byte, hunks []Hunk) ([]byte, error) {
	lines := split(healthy)
	var out []string
	at := 0
	for _, h := range hunks {
		first := h.Line - 1
		if first < at || first+h.Removed > len(lines) {
			return nil, fmt.Errorf("a change at line %d of %d, -%d, does not fit", h.Line, len(lines), h.Removed)
		}
		out = append(append(out, lines[at:first]...), h.Added...)
		at = first + h.Removed
	}
	out = append(out, lines[at:]...)
	if len(out) == 0 {
		return nil, nil
	}
	return []byte(strings.Join(out, "\n") + "\n"), nil
}

func split(data []byte) []string {
	if len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

// Diff returns what makes one file of another: lines that both have once, in the same order, are kept, and what is
// between them is compared by its beginning and its end.
func Diff(healthy, faulty []byte) []Hunk {
	a, b := split(healthy), split(faulty)
	var out []Hunk
	i, k := 0, 0
	for _, m := range append(anchors(a, b), [2]int{len(a), len(b)}) {
		if h, ok := between(a, b, i, m[0], k, m[1]); ok {
			out = append(out, h)
		}
		i, k = m[0], m[1]
	}
	return out
}

// between compares a[i:iEnd] with b[k:kEnd].
func between(a, b []string, i, iEnd, k, kEnd int) (h Hunk, differ bool) {
	for i < iEnd && k < kEnd && a[i] == b[k] {
		i, k = i+1, k+1
	}
	for i < iEnd && k < kEnd && a[iEnd-1] == b[kEnd-1] {
		iEnd, kEnd = iEnd-1, kEnd-1
	}
	return Hunk{Line: i + 1, Removed: iEnd - i, Added: b[k:kEnd]}, i < iEnd || k < kEnd
}

// anchors are pairs of the places of lines that both files have exactly once, as many as have the same order in both:
// the longest increasing subsequence of their places (patience).
func anchors(a, b []string) [][2]int {
	count := map[string][2]int{}
	for _, line := range a {
		c := count[line]
		count[line] = [2]int{c[0] + 1, c[1]}
	}
	where := map[string]int{}
	for k, line := range b {
		c := count[line]
		count[line] = [2]int{c[0], c[1] + 1}
		where[line] = k
	}
	var pairs [][2]int
	for i, line := range a {
		if count[line] == [2]int{1, 1} {
			pairs = append(pairs, [2]int{i, where[line]})
		}
	}
	before := make([]int, len(pairs))
	var tails []int // the pair that ends the best sequence of each length
	for p := range pairs {
		at, _ := slices.BinarySearchFunc(tails, pairs[p][1], func(t, k int) int { return pairs[t][1] - k })
		before[p] = -1
		if at > 0 {
			before[p] = tails[at-1]
		}
		tails = append(tails[:at], append([]int{p}, tails[min(at+1, len(tails)):]...)...)
	}
	if len(tails) == 0 {
		return nil
	}
	var out [][2]int
	for p := tails[len(tails)-1]; p >= 0; p = before[p] {
		out = append(out, pairs[p])
	}
	slices.Reverse(out)
	return out
}
