// SPDX-License-Identifier: Apache-2.0

// Package conntrack reads the kernel's connection tracking table: which packets belong to a connection, and how its
// addresses are translated. NAT rules are evaluated for the first packet of a connection only; the rest are translated
// by its entry, also after the rules have changed.
package conntrack

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"unicode/utf8"
)

// Entry is one connection.
type Entry struct {
	Proto uint8  // IP protocol number (RFC 5237)
	State string // of TCP and SCTP ("ESTABLISHED"); "" for the others
	// Timeout is the time in seconds after which the entry expires without another packet; 0 where it was not listed.
	Timeout uint32
	// Original is the direction of the first packet, as it was sent; Reply that of the replies, as they are received: its
	// source is the address to which the first packet's destination was translated.
	Original, Reply Tuple
	// Unreplied: no reply has been seen. Assured: the entry is not evicted when the table is full.
	Unreplied, Assured bool
	Zone               uint16
}

// Tuple is one direction of a connection. Protocols without ports have 0.
type Tuple struct {
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16
}

// Translated tells whether the destination of the first packet was translated.
func (e *Entry) Translated() bool {
	return e.Reply.Src != e.Original.Dst || e.Reply.SrcPort != e.Original.DstPort
}

// Parse reads what conntrack -L prints, with or without -o extended and its last line on standard error, or
// /proc/net/nf_conntrack. An empty table is valid. The entries returned are those of all lines that are one; the error
// names the first line that is none, or says that the text ends within a line, whose last number may have lost its end:
// that there is no other connection is not known then.
func Parse(data []byte) ([]Entry, error) {
	out := make([]Entry, 0, bytes.Count(data, []byte("\n")))
	var failed error
	for n := 1; len(data) > 0; n++ {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		data = rest
		if !whole {
			return out, cmp.Or(failed, fmt.Errorf("it is cut off in line %d", n))
		}
		if len(bytes.TrimSpace(line)) == 0 || bytes.HasPrefix(line, trailer) {
			continue
		}
		e, ok := parse(line)
		if ok && utf8.Valid(line) {
			out = append(out, e)
		} else if failed == nil {
			const long = 120
			failed = fmt.Errorf("line %d: %q is not an entry as conntrack -L prints it", n, line[:min(len(line), long)])
		}
	}
	return out, failed
}

// trailer begins the line that conntrack writes to standard error behind the entries, with their number.
var trailer = []byte("conntrack v")

// The head of an entry: [ipv4 2] tcp 6 [431999] [ESTABLISHED].
func parse(line []byte) (e Entry, ok bool) {
	s := scanner{line}
	word := s.next()
	if string(word) == "ipv4" || string(word) == "ipv6" {
		s.next()
		word = s.next()
	}
	number, err := strconv.ParseUint(string(s.next()), 10, 8)
	if len(word) == 0 || err != nil {
		return e, false
	}
	e.Proto = uint8(number)
	t := &e.Original
	for word = s.next(); len(word) > 0; word = s.next() {
		key, value, pair := bytes.Cut(word, []byte("="))
		switch {
		case !pair && word[0] == '[':
			e.Unreplied = e.Unreplied || string(word) == "[UNREPLIED]"
			e.Assured = e.Assured || string(word) == "[ASSURED]"
		case !pair && word[0] >= '0' && word[0] <= '9':
			seconds, err := strconv.ParseUint(string(word), 10, 32)
			if err != nil {
				return e, false
			}
			e.Timeout = uint32(seconds)
		case !pair:
			e.State = string(word)
		case string(key) == "src" && t == &e.Original && t.Src.IsValid():
			t = &e.Reply // the second source begins the reply direction
			fallthrough
		default:
			if !e.set(t, string(key), string(value)) {
				return e, false
			}
		}
	}
	return e, e.Original.Dst.IsValid() && e.Reply.Src.IsValid() && e.Reply.Dst.IsValid()
}

// set reads one KEY=VALUE. Keys that have nothing to do with addresses, ports or state are ignored.
func (e *Entry) set(t *Tuple, key, value string) bool {
	var err error
	switch key {
	case "src":
		t.Src, err = netip.ParseAddr(value)
	case "dst":
		t.Dst, err = netip.ParseAddr(value)
	case "sport":
		t.SrcPort, err = port(value)
	case "dport":
		t.DstPort, err = port(value)
	case "zone":
		e.Zone, err = port(value)
	}
	return err == nil
}

func port(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err
}

// scanner returns the words of a line.
type scanner struct{ rest []byte }

func (s *scanner) next() []byte {
	s.rest = bytes.TrimLeft(s.rest, " \t\r")
	i := bytes.IndexAny(s.rest, " \t\r")
	if i < 0 {
		i = len(s.rest)
	}
	word := s.rest[:i]
	s.rest = s.rest[i:]
	return word
}
