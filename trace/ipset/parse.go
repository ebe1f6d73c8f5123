// SPDX-License-Identifier: Apache-2.0

package ipset

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// Parse reads the output of ipset save, or of ipset list, also with what copying adds to it. No sets at all are valid.
// The error names the line; there is no partial result. A set whose type or options are not known to this version is
// not an error: matches of it are unknown. A last line without a line break is an error, because it may be truncated.
func Parse(data []byte) (*Sets, error) {
	s, err := parse(data)
	if err == nil {
		return s, nil
	}
	text := unpasted(data)
	if listed, ok := parseList(text); ok {
		return listed, nil
	}
	if s, err := parse([]byte(text)); err == nil {
		return s, nil
	}
	return nil, err
}

func parse(data []byte) (*Sets, error) {
	s := &Sets{byName: map[string]*set{}}
	for n := 1; len(data) > 0; n++ {
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			return nil, fmt.Errorf("ipset-save.txt: line %d has no end: the file seems to be cut off", n)
		}
		line := string(bytes.TrimRight(data[:end], "\r"))
		data = data[end+1:]
		if err := s.line(line); err != nil {
			return nil, fmt.Errorf("ipset-save.txt: line %d: %w: expected the output of: ipset save", n, err)
		}
	}
	s.sort()
	return s, nil
}

func (s *Sets) sort() {
	for _, x := range s.byName {
		for i := range x.bits {
			slices.SortFunc(x.bits[i], func(a, b int) int { return b - a })
		}
	}
}

func (s *Sets) line(line string) error {
	f, err := fields(line)
	if err != nil {
		return err
	}
	switch {
	case len(f) == 0 || strings.HasPrefix(f[0], "#") || f[0] == "COMMIT":
		return nil
	case len(f) < 3 || f[0] != "create" && f[0] != "add":
		return fmt.Errorf("%q is neither create nor add", short(line))
	case f[0] == "create":
		if s.byName[f[1]] != nil {
			return fmt.Errorf("set %s is declared twice", f[1])
		}
		x, err := create(f[1], f[2], f[3:])
		if err != nil {
			return err
		}
		s.byName[f[1]] = x
		return nil
	}
	x := s.byName[f[1]]
	if x == nil {
		return fmt.Errorf("there is no set %s to add to", short(f[1]))
	}
	return x.add(f[2], f[3:])
}

// fields splits a line at blanks outside of quotes.
func fields(line string) ([]string, error) {
	if !strings.Contains(line, `"`) {
		return strings.Fields(line), nil
	}
	var out []string
	for {
		line = strings.TrimLeft(line, " \t")
		switch {
		case line == "":
			return out, nil
		case line[0] == '"':
			end := strings.IndexByte(line[1:], '"')
			if end < 0 {
				return nil, errors.New("a quote is not closed")
			}
			out = append(out, line[1:1+end])
			line = line[end+2:]
		default:
			end := strings.IndexAny(line, " \t\"")
			if end < 0 {
				end = len(line)
			}
			out = append(out, line[:end])
			line = line[end:]
		}
	}
}

func short(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}

// createOptions are the options of create lines, with the number of their values. Those that do not affect lookups are
// ignored.
var createOptions = map[string]int{
	"family": 1, "hashsize": 1, "maxelem": 1, "bucketsize": 1, "initval": 1, "netmask": 1, "bitmask": 1, "markmask": 1,
	"timeout": 1, "range": 1, "size": 1, "probes": 1, "resize": 1, "gc": 1,
	"counters": 0, "comment": 0, "skbinfo": 0, "forceadd": 0, "nomatch": 0, "-exist": 0, "-!": 0,
}

// addOptions are the options of add lines, with the number of their values.
var addOptions = map[string]int{
	"timeout": 1, "packets": 1, "bytes": 1, "comment": 1, "skbmark": 1, "skbprio": 1, "skbqueue": 1,
	"before": 1, "after": 1, "nomatch": 0, "wildcard": 0, "-exist": 0, "-!": 0,
}

// options reads a line's options; unknown is the first one that is not known to this version.
func options(f []string, known map[string]int) (got map[string]string, unknown string, err error) {
	for i := 0; i < len(f); i++ {
		n, ok := known[f[i]]
		if !ok {
			return got, f[i], nil
		}
		if got == nil {
			got = map[string]string{}
		}
		if i+n >= len(f) {
			return nil, "", fmt.Errorf("option %s lacks its value", f[i])
		}
		value := ""
		if n == 1 {
			value = f[i+1]
		}
		got[f[i]] = value
		i += n
	}
	return got, "", nil
}

func create(name, typ string, f []string) (*set, error) {
	x := &set{name: name, typ: typ, dims: types[typ], markMask: ^uint32(0)}
	if x.dims == nil {
		if !strings.Contains(typ, ":") {
			return nil, fmt.Errorf("%q is not a set type", short(typ))
		}
		x.unknown = "set " + name + " is of the type " + typ + ", which this version does not know"
		return x, nil
	}
	opts, unknown, err := options(f, createOptions)
	if err != nil {
		return nil, err
	}
	if unknown != "" {
		x.unknown = "set " + name + " has the option " + short(unknown) + ", which this version does not know"
	}
	switch {
	case opts["family"] == "inet6":
		x.family = netfilter.IPv6
	case opts["family"] != "" && opts["family"] != "inet":
		return nil, fmt.Errorf("there is no family %q", short(opts["family"]))
	case typ != "list:set" && typ != "bitmap:port" && typ != "hash:mac":
		x.family = netfilter.IPv4
	}
	if err := x.masks(opts); err != nil {
		return nil, err
	}
	x.exact = map[key]bool{}
	return x, nil
}

// masks reads the options that change the packet before it is looked up.
func (x *set) masks(opts map[string]string) error {
	if v := opts["markmask"]; v != "" {
		m, err := strconv.ParseUint(v, 0, 32)
		if err != nil {
			return fmt.Errorf("markmask %q is not a number", short(v))
		}
		x.markMask = uint32(m)
	}
	size := netip.IPv4Unspecified()
	if x.family == netfilter.IPv6 {
		size = netip.IPv6Unspecified()
	}
	if v := opts["netmask"]; v != "" {
		bits, err := strconv.Atoi(v)
		if err != nil || bits < 0 || bits > size.BitLen() {
			return fmt.Errorf("netmask %q is not a prefix length", short(v))
		}
		ones := size.AsSlice()
		for i := range bits {
			ones[i/8] |= 0x80 >> (i % 8)
		}
		x.mask, _ = netip.AddrFromSlice(ones)
		x.masked = true
	}
	if v := opts["bitmask"]; v != "" {
		text, _, _ := strings.Cut(v, "/") // ipset 7.17 prints "255.0.255.0/51"
		m, err := netip.ParseAddr(text)
		if err != nil || m.BitLen() != size.BitLen() {
			return fmt.Errorf("bitmask %q is not a mask of the set's family", short(v))
		}
		x.mask, x.masked = m, true
	}
	return nil
}
