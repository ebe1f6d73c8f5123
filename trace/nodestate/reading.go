// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"bytes"
	"errors"
	"maps"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Reading is what became of a file of the node.
type Reading struct {
	State ReadState
	// Reason is why nothing, or only a part, of the file was read; "" where it was read, and where it is absent.
	Reason string
}

// ReadState is how much of a file was read.
type ReadState uint8

// The states.
const (
	// Absent: the file is not there. Where [State.ListsUnread] it does not exist on the node.
	Absent ReadState = iota
	// Unreadable: it is there, or should be, and nothing of it is used.
	Unreadable
	// Partial: what could be read is used, and what is not there may be on the node all the same.
	Partial
	// Whole: it was read.
	Whole
)

// Evidence are the files that a judgement takes as evidence beside the rules, in the order of [snapshot.NodeFiles]. One
// that cannot be read never keeps the others, or the rules, from being read: it costs what depends on it.
var Evidence = slices.DeleteFunc(slices.Clone(snapshot.NodeFiles), func(file string) bool {
	return IsRules(file) || file == snapshot.IPSetFile || file == snapshot.IPVSFile
})

// Reading tells what became of a file of the contract.
func (s *State) Reading(file string) Reading {
	switch r, ok := s.readings[file]; {
	case ok:
		return r
	case s.reasons[file] != "":
		return Reading{Unreadable, s.reasons[file]}
	case s.files[file]:
		return Reading{State: Whole}
	}
	return Reading{}
}

// NotRead returns the names of the files of which nothing or only a part was read, and for which there is a reason,
// sorted.
func (s *State) NotRead() []string {
	out := slices.Collect(maps.Keys(s.reasons))
	return slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(out, maps.Keys(s.readings)))))
}

// unreadable notes that a file could not be read, or with partial that only a part of it could. It notes nothing of the
// error nil.
func (l *loader) unreadable(file string, err error, partial bool) {
	if err == nil {
		return
	}
	state := Unreadable
	if partial {
		state = Partial
	}
	l.readings[file] = Reading{state, reasonOf(file, err)}
}

// reasonOf is the text of an error for a reader who knows the file.
func reasonOf(file string, err error) string {
	text := []byte(snapshot.Reason(err))
	text = bytes.TrimPrefix(text, []byte(file+": "))
	return string(bytes.Join(bytes.Fields(text), []byte(" ")))
}

// errEmpty is for a file that a command has left behind that failed: what it prints where there is nothing to print is
// left to a collector that lists what it could not read.
var errEmpty = errors.New("it is empty, as after a command that failed")

// Empty tells whether the file is there and has nothing in it: a command has failed, or had nothing to print.
func (r Reading) Empty() bool { return r.State == Unreadable && r.Reason == errEmpty.Error() }

// evidence returns the content of a file that is evidence; nil where it is absent, and where it cannot be read, which
// is noted. mayBeEmpty: a collector may have found nothing to list. The error is that of the node's files together.
func (l *loader) evidence(file string, mayBeEmpty bool) ([]byte, error) {
	data, err := l.file(file)
	switch {
	case errors.Is(err, snapshot.ErrTotal):
		return nil, err
	case err != nil:
		l.unreadable(file, err, false)
		return nil, nil
	case data != nil && len(bytes.TrimSpace(data)) == 0 && !(mayBeEmpty && l.ListsUnread()):
		l.unreadable(file, errEmpty, false)
		return nil, nil
	}
	return data, nil
}

// read reads a file that is evidence by its parser, unless it is absent or empty. ok is false where nothing of it is
// used. partial tells whether the parser's value counts although there is an error.
func read[T any](
	l *loader, file string, mayBeEmpty bool, parse func([]byte) (T, error), partial func(T, error) bool,
) (value T, ok bool, err error) {
	data, err := l.evidence(file, mayBeEmpty)
	if err != nil || data == nil {
		return value, false, err
	}
	value, failed := parse(data)
	some := failed != nil && partial != nil && partial(value, failed)
	l.unreadable(file, failed, some)
	return value, failed == nil || some, nil
}
