// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ruleKeys are the keys of a rule that parseRule reads, or that are not conditions.
var ruleKeys = map[string]bool{
	"priority": true, "not": true, "src": true, "srclen": true, "dst": true, "dstlen": true, "fwmark": true,
	"fwmask": true, "iif": true, "iif_detached": true, "oif": true, "oif_detached": true, "tos": true, "dscp": true,
	"dscp_mask": true, "ipproto": true, "sport": true, "sport_start": true, "sport_end": true, "dport": true,
	"dport_start": true, "dport_end": true, "uid_start": true, "uid_end": true, "tun_id": true, "l3mdev": true,
	"goto": true, "unresolved": true, "suppress_prefixlen": true, "suppress_ifgroup": true, "table": true, "action": true,
	"nop": true, "protocol": true, "flow_from": true, "flow_to": true,
}

// keyUnprinted has the numbers of attributes that the kernel told of a rule, and that ip may not print: conditions that
// are not known.
const keyUnprinted = "unprinted"

// printedAs are the keys by which an ip that knows these attributes prints them (FRA_DSCP, FRA_FLOWLABEL,
// FRA_FLOWLABEL_MASK and FRA_DSCP_MASK in include/uapi/linux/fib_rules.h).
var printedAs = map[int]string{25: "dscp", 26: "flowlabel", 27: "flowlabel", 30: "dscp_mask"}

// addUnprinted adds to rules the attributes that are listed for their priority, but those that are printed. Of several
// rules of a priority, it may be each.
func addUnprinted(rules, lists []map[string]json.RawMessage) error {
	for _, list := range lists {
		var attributes []int
		if err := json.Unmarshal(list[keyUnprinted], &attributes); err != nil || list["priority"] == nil {
			return fmt.Errorf("it has %s for what ip does not print of a rule", list[keyUnprinted])
		}
		for _, m := range rules {
			var left []int
			for _, a := range attributes {
				if m[printedAs[a]] == nil {
					left = append(left, a)
				}
			}
			if len(left) == 0 || string(m["priority"]) != string(list["priority"]) {
				continue
			}
			text, err := json.Marshal(left)
			if err != nil {
				return err
			}
			m[keyUnprinted] = text
		}
	}
	return nil
}

// dscpNumber reads a DSCP, also by the names that iproute2 comes with (RFC 2474, RFC 2597, RFC 3246).
func dscpNumber(s string) (v uint8, ok bool) {
	if n, err := strconv.ParseUint(s, 0, 6); err == nil {
		return uint8(n), true
	}
	s = strings.ToUpper(s)
	switch {
	case s == "EF":
		return 46, true
	case len(s) == 3 && s[:2] == "CS" && '0' <= s[2] && s[2] <= '7':
		return (s[2] - '0') * 8, true
	case len(s) == 4 && s[:2] == "AF" && '1' <= s[2] && s[2] <= '4' && '1' <= s[3] && s[3] <= '3':
		return (s[2]-'0')*8 + (s[3]-'0')*2, true
	}
	return 0, false
}

// protocols are the names by which ip prints the protocols that have ports, and a few others.
var protocols = map[string]uint8{
	"icmp": 1, "tcp": 6, "udp": 17, "dccp": 33, "gre": 47, "esp": 50, "ah": 51, "ipv6-icmp": 58, "ospf": 89,
	"sctp": 132, "udplite": 136,
}

// protocolNumber reads a protocol; 0 where it is not known.
func protocolNumber(s string) uint8 {
	if n := protocols[s]; n != 0 {
		return n
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "ipproto-"), 10, 8)
	if err != nil {
		return 0
	}
	return uint8(n)
}

// keys reads the keys of a rule; err is the first error.
type keys struct {
	m   map[string]json.RawMessage
	err error
}

func (k *keys) has(key string) bool { return k.m[key] != nil }

func (k *keys) fail(key string) {
	if k.err == nil {
		k.err = fmt.Errorf("its %s is %s", key, k.m[key])
	}
}

// text returns a text; "" where the key is not there.
func (k *keys) text(key string) string {
	if !k.has(key) {
		return ""
	}
	var s string
	if json.Unmarshal(k.m[key], &s) != nil {
		k.fail(key)
	}
	return s
}

// number returns a number of so many bits; 0 where the key is not there.
func (k *keys) number(key string, bits int) int {
	if !k.has(key) {
		return 0
	}
	n, err := strconv.ParseUint(string(k.m[key]), 10, bits)
	if err != nil {
		k.fail(key)
	}
	return int(n) //nolint:gosec // of at most 32 bits
}

// hex returns a number that is printed as a text.
func (k *keys) hex(key string) uint32 {
	n, err := strconv.ParseUint(k.text(key), 0, 32)
	if err != nil {
		k.fail(key)
	}
	return uint32(n)
}

// span returns a range, which is printed as one number or as two.
func (k *keys) span(one, low, high string) span {
	switch {
	case one != "" && k.has(one):
		n := uint32(k.number(one, 16)) //nolint:gosec // of 16 bits
		return span{n, n, true}
	case k.has(low):
		return span{uint32(k.number(low, 32)), uint32(k.number(high, 32)), true} //nolint:gosec // of 32 bits each
	}
	return span{}
}

func (k *keys) prefix(addr, bits string, fam int) netip.Prefix {
	var length *int
	if k.has(bits) {
		n := k.number(bits, 8)
		length = &n
	}
	p, err := rulePrefix(k.text(addr), length, fam)
	if err != nil {
		k.fail(addr)
	}
	return p
}

// rest tells whether there are other keys.
func (k *keys) rest(known map[string]bool) bool {
	for key := range k.m {
		if !known[key] {
			return true
		}
	}
	return false
}

// rulePrefix reads a source or destination of a rule; an invalid one stands for any.
func rulePrefix(s string, bits *int, fam int) (netip.Prefix, error) {
	if s == "" || s == "all" {
		return netip.Prefix{}, nil
	}
	p, err := parsePrefix(s)
	if err == nil && bits != nil {
		p, err = p.Addr().Prefix(*bits)
	}
	if err == nil && famOf(p.Addr()) != fam {
		err = errors.New("it is of the other IP family")
	}
	return p, err
}
