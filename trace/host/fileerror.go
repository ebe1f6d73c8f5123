// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// FileError is what is wrong with one of a node's files about its network.
type FileError struct {
	File string // its name in the contract
	// Partial: what could be read of it is in the [Network], and what it lacks is not known. Else nothing of it is.
	Partial bool
	// Err is the reason, with what was expected. It does not name the file.
	Err error
}

// Error names the file and the reason.
func (e *FileError) Error() string { return e.File + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *FileError) Unwrap() error { return e.Err }

// incomplete is the error of a file of which some lines could be read.
type incomplete struct{ reason string }

func (e *incomplete) Error() string { return e.reason }

// Unterminated tells whether a text of lines ends within one: what prints it ends every line, so that it was cut off
// there, and the last line may have lost its end.
func Unterminated(data []byte) bool { return len(data) > 0 && data[len(data)-1] != '\n' }

// Printable tells whether a line may be what a tool prints: text without NUL.
func Printable(line []byte) bool { return utf8.Valid(line) && bytes.IndexByte(line, 0) < 0 }

// ruleFiles are the files of the routing policy rules, by the index of [Network.fam].
var ruleFiles = [2]string{snapshot.RuleFile, snapshot.Rule6File}

// rulesUnread replaces a family's rules by what is certain without them: the rule for the table local is the first one
// (fib_default_rules_init in net/ipv4/fib_rules.c, fib6_rules_net_init in net/ipv6/fib6_rules.c), and what follows may
// look up any table.
func (n *Network) rulesUnread(fam int) {
	n.fam[fam].rules = []rule{bare(tableLocal), {unread: ruleFiles[fam], noPrefix: -1}}
}

// contradicted returns an error if the routes of a family, which were read, cannot be all: an address with a subnet has
// a route to it, so that a node with addresses has routes.
func (n *Network) contradicted(fam int) error {
	f := &n.fam[fam]
	if !f.routesKnown || len(f.tables) > 0 {
		return nil
	}
	for i := range n.addrs {
		if a := &n.addrs[i]; famOf(a.ip) == fam && !a.ip.IsLoopback() && !a.ip.IsLinkLocalUnicast() {
			return fmt.Errorf("it has no route, and %s has the address %s", snapshot.AddrFile, a.ip)
		}
	}
	return nil
}
