// SPDX-License-Identifier: Apache-2.0

// Package process finds the processes of a node that are what their names say, and reads their files. A process chooses
// its name, its command line, and mostly its executable and its file system: whoever is believed for these can have a
// privileged reader take his word for the node's. Nothing of a process is ever run.
package process

import (
	"path/filepath"
	"slices"
	"strconv"
)

// Program is a program that is looked for.
type Program struct {
	File string // the file name of its executable
	// Names are those by which a process of it calls itself (/proc/PID/comm, at most 15 bytes), where the executable is
	// several programs in one; nil: as the file.
	Names []string
}

// Programs makes a list of programs by their file names.
func Programs(files ...string) []Program {
	out := make([]Program, len(files))
	for i, f := range files {
		out[i] = Program{File: f}
	}
	return out
}

// named returns by which of the program's names a process goes, be it by comm or by its command line; "" for none.
func (x *Program) named(comm string, args []string) string {
	for _, name := range append(slices.Clone(x.Names), x.File) {
		if comm == name || len(args) > 0 && filepath.Base(args[0]) == name {
			return name
		}
	}
	return ""
}

// quote is a file name for people, who did not choose it.
func quote(name string) string {
	const most = 64
	return strconv.QuoteToASCII(name[:min(len(name), most)])
}
