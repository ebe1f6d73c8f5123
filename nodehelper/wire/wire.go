// SPDX-License-Identifier: Apache-2.0

// Package wire is what the plugin and a node's helper say to one another, over any pair of byte streams: the standard
// streams of a container over attach or exec, or a pipe within one process.
//
// Both begin with a hello, which is one line of text:
//
//	0x16 "svcproxy-wire " {"protocol":1,"build":"v1.2.3"} "\n"
//
// This line never changes between versions of the protocol, so that each side can tell which version the other one
// speaks. The plugin speaks first, as what a container writes before somebody attaches to it is lost. Whatever stands
// before the hello (a runtime's error text, another program's output) is noise, and is kept for the error message.
//
// After its hello each side sends one DEFLATE stream (RFC 1951), flushed at the end of each message. In it are frames:
// one byte that says of which kind, four bytes of length (big-endian), and the payload, which is JSON but for the bytes
// of files. The plugin asks for one thing at a time. An answer is any number of progress messages and files, and it
// ends with a trailer that counts and hashes what came before, or with an error; an answer without a trailer is none.
//
// Neither side trusts the other with its memory: everything that is kept has a bound.
package wire

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Protocol is the version that this code speaks. It changes when a peer of the version before would misunderstand
// something.
const Protocol = 1

// The requests.
const (
	// MethodCollect has the helper read its node; its parameters are CollectParams.
	MethodCollect = "collect"
	// MethodProgram has the helper program paths; its parameters are ProgramParams, the answer is the file ProgramFile.
	MethodProgram = "program"
	// MethodUndo has the helper undo programmed paths; its parameters are UndoParams, the answer is the file ProgramFile.
	MethodUndo = "undo"
	// MethodOrphans has the helper list, and remove, what outlives the journal; its parameters are OrphansParams, the
	// answer is the file ProgramFile: Orphans.
	MethodOrphans = "orphans"
	// MethodProbe has the helper make connections; its parameters are ProbeParams, the answer is the file
	// snapshot.ProbesFile.
	MethodProbe = "probe"
)

// CollectParams say which files of the snapshot contract to read.
type CollectParams struct {
	// Files are their names. None: all of them, for a snapshot. All by name: without what says the same as another
	// file.
	Files []string `json:"files,omitempty"`
}

// ProbeParams say what to connect to.
type ProbeParams struct {
	Targets []snapshot.ProbeTarget `json:"targets"`
}

// File is one file of an answer, or why there is none.
type File struct {
	Name   string // one path element
	Data   []byte
	Unread string // in place of Data: one sentence that says why it could not be read
}

// Bounds on what one side keeps of what the other one sends.
const (
	maxHello   = 4 << 10  // bytes of a hello
	maxNoise   = 64 << 10 // bytes before it
	maxPayload = 16 << 20 // bytes of one frame: a plan is one
	maxText    = 8 << 10  // bytes of a sentence that is shown to a person
	chunk      = 64 << 10 // bytes of a file in one frame, as its writer chooses
)

// Limits bound an answer.
type Limits struct {
	File   int64 // bytes of one file
	Answer int64 // bytes of all files
	Files  int   // how many
}

// DefaultLimits are far above any real node. A file is bounded as in trace/snapshot.
var DefaultLimits = Limits{File: 1 << 30, Answer: 2 << 30, Files: 1000}

// A name becomes a part of a path on the plugin's side, so a helper must not be able to leave a directory with
// it.
var fileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

func checkName(name string) error {
	if !fileName.MatchString(name) {
		return fmt.Errorf("%q is no name of a file: letters, digits, '.', '_' and '-' are", Printable(name, 200))
	}
	return nil
}

// Printable makes one line of printable characters, at most limit bytes long, of what another program wrote: it is
// shown on a terminal, which must not take orders from it.
func Printable(s string, limit int) string {
	const more = "…"
	var b strings.Builder
	cut := 0 // how much fits beside more
	for _, r := range strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " ") {
		if !unicode.IsPrint(r) {
			r = '\uFFFD'
		}
		b.WriteRune(r)
		if b.Len() > limit {
			return strings.TrimSpace(b.String()[:cut]) + more
		}
		if b.Len() <= limit-len(more) {
			cut = b.Len()
		}
	}
	return b.String()
}
